#include "tests/cuda/adversary.h"
#include "tests/fakes/cuda_on_host/control.h"

namespace zero::test {
namespace {

using cuda_on_host::Schedule;

struct Adversary {
  Schedule schedule;
  Order order;
  const char* name;
};
// Every schedule of streams with every order of threads once in three runs in a row.
constexpr Adversary kAdversaries[] = {
    {Schedule::lazy, Order::forward, "what is waited for alone, threads forward"},
    {Schedule::eager_others, Order::reverse, "all else first, threads in reverse"},
    {Schedule::shuffled, Order::shuffled, "shuffled"},
};

}  // namespace

std::size_t adversaries() { return std::size(kAdversaries); }

std::string choose_adversary(std::size_t number) {
  const Adversary& chosen = kAdversaries[number % adversaries()];
  cuda_on_host::set_schedule(chosen.schedule);
  set_order(chosen.order);
  return chosen.name;
}

void set_order(Order order) {
  switch (order) {
    case Order::forward: return cuda_on_host::set_order(cuda_on_host::Order::forward);
    case Order::reverse: return cuda_on_host::set_order(cuda_on_host::Order::reverse);
    case Order::shuffled: return cuda_on_host::set_order(cuda_on_host::Order::shuffled);
  }
}

const char* name(Order order) {
  return order == Order::forward ? "forward" : order == Order::reverse ? "reverse" : "shuffled";
}

bool pretend_gpus(int count) {
  cuda_on_host::set_device_count(count);
  return true;
}

}  // namespace zero::test
