// Prints at the end of a test program how much ran on CUDA on the host.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/fakes/cuda_on_host/control.h"

namespace {

class PrintCounts : public testing::Environment {
  void TearDown() override {
    const cuda_on_host::Counts counts = cuda_on_host::counts();
    std::printf("CUDA on the host: %llu kernels ran on %llu threads\n", static_cast<unsigned long long>(counts.kernels),
                static_cast<unsigned long long>(counts.threads));
  }
};

[[maybe_unused]] const testing::Environment* const registered = testing::AddGlobalTestEnvironment(new PrintCounts);

}  // namespace
