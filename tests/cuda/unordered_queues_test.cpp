// That the tests of queues can fail: what lacks a wait, on the host in the schedule that runs no more than is waited
// for.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda/device_case.h"
#include "tests/fakes/cuda_on_host/control.h"

namespace zero {
namespace {

using namespace test;  // NOLINT: a test of what is there

class CudaDevicePlain : public CudaDeviceQueues {};
INSTANTIATE_TEST_SUITE_P(Lazily, CudaDevicePlain, ::testing::Values(std::size_t{0}));

TEST_P(CudaDevicePlain, WhatIsNotWaitedForIsReadAsPoison) {
  const Buffer from = buffer(), to = buffer();
  Mark written;
  {
    const OnQueue queue(device_, Queue::communication);
    device_.kernels().fill(from.array(), 3.0F);
    written = device_.mark();
  }
  device_.kernels().copy(to.array(), from.array());
  EXPECT_TRUE(std::isnan(downloaded(device_, to.array())[0]));
  device_.synchronize(written);
  EXPECT_EQ(downloaded(device_, from.array()), all(3.0F));
}

TEST_P(CudaDevicePlain, MemoryFreedBeforeAnotherQueueHasReadItIsAFault) {
  Buffer from = buffer();
  const Buffer to = buffer();
  Mark read;
  {
    const OnQueue queue(device_, Queue::communication);
    device_.kernels().copy(to.array(), from.array());
    read = device_.mark();
  }
  from.reset();
  device_.synchronize(device_.mark());
  EXPECT_THROW(device_.synchronize(read), cuda_on_host::Fault);
}

TEST_P(CudaDevicePlain, ACopyDownIsNotThereBeforeItsMark) {
  const Buffer device = buffer();
  const Buffer host = device_.allocate(Category::activations, kSize, Dtype::fp32, Tier::host);
  device_.kernels().fill(device.array(), 2.0F);
  const Mark copied = device_.copy_down(host.array(), device.array());
  device_.synchronize(device_.mark());  // of computing alone
  EXPECT_EQ(floats(host)[0], 0.0F);
  device_.synchronize(copied);
  EXPECT_EQ(floats(host)[0], 2.0F);
}

TEST_P(CudaDevicePlain, ResultsOfKernelsWaitForNoOtherQueue) {
  const Buffer twos = buffer(), other = buffer();
  device_.kernels().fill(twos.array(), 2.0F);
  {
    const OnQueue queue(device_, Queue::communication);
    device_.kernels().fill(other.array(), 3.0F);
  }
  const auto before = cuda_on_host::counts().kernels;
  device_.kernels().sum_in_order(twos.array());
  EXPECT_EQ(cuda_on_host::counts().kernels - before, 2);
}

}  // namespace
}  // namespace zero
