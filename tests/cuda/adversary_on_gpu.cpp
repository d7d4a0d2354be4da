#include "tests/cuda/adversary.h"

namespace zero::test {

std::size_t adversaries() { return 1; }
std::string choose_adversary(std::size_t) { return "as the GPU does"; }
void set_order(Order) {}
const char* name(Order) { return "in the GPU's order"; }
bool pretend_gpus(int) { return false; }

}  // namespace zero::test
