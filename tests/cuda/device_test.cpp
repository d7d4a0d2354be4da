// The CUDA device: what its memory is and says when it ends, which GPU it is, and who is asked while the host waits.
#include "common/device/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/cuda/device_case.h"
#include "tests/device/views.h"
#include "tests/fakes/cuda_on_host/control.h"

namespace zero {
namespace {

using namespace test;  // NOLINT: a test of what is there

// --- waiting ---------------------------------------------------------------------------------------------------------

class CudaDeviceWaiting : public CudaDeviceQueues {};
INSTANTIATE_TEST_SUITE_P(InEverySchedule, CudaDeviceWaiting, ::testing::Range(std::size_t{0}, adversaries()));

TEST_P(CudaDeviceWaiting, WhoeverWatchesIsAskedWhileTheHostWaits) {
  const Buffer ones = device_.allocate(Category::activations, kSize);
  int looks = 0, others = 0;
  cuda::Watch watch = device_.watches().add([&] { ++looks; });
  cuda::Watch other = device_.watches().add([&] { ++others; });
  const auto asked_by = [&](const std::function<void()>& wait) {
    device_.kernels().fill(ones.array(), 1.0F);
    const int before = looks;
    wait();
    EXPECT_EQ(looks, others);
    return looks > before;
  };
  EXPECT_TRUE(asked_by([&] { device_.synchronize(device_.mark()); }));
  EXPECT_TRUE(asked_by([&] { device_.kernels().sum_in_order(ones.array()); }));
  EXPECT_TRUE(asked_by([&] { EXPECT_EQ(downloaded(device_, ones.array()), all(1.0F)); }));
  watch = std::move(other);  // the first is asked no more
  const int looks_before = looks, others_before = others;
  device_.kernels().fill(ones.array(), 2.0F);
  device_.synchronize(device_.mark());
  EXPECT_EQ(looks, looks_before);
  EXPECT_GT(others, others_before);
}

TEST_P(CudaDeviceWaiting, WhatAWatchThrowsEndsTheWaitAndTheDeviceGoesOn) {
  const Buffer ones = device_.allocate(Category::activations, kSize);
  {
    const cuda::Watch watch = device_.watches().add([] { throw ResourceFailure("rank 1 is gone"); });
    const auto throws = [&](const std::function<void()>& wait) {
      device_.kernels().fill(ones.array(), 1.0F);
      EXPECT_EQ(reason_of(wait), "rank 1 is gone");
    };
    throws([&] { device_.synchronize(device_.mark()); });
    throws([&] { downloaded(device_, ones.array()); });
    throws([&] { device_.kernels().end_scan(); });
    Buffer host = buffer(Tier::host);
    device_.copy_down(host.array(), ones.array());
    host.reset();  // throws nothing, and the copy has where to go
  }
  EXPECT_EQ(downloaded(device_, ones.array()), all(1.0F));
}

// A launch that waits for room in its stream asks no watch: so computing is never so far behind.
TEST_P(CudaDeviceWaiting, TheHostIsNeverManyMarksAheadOfComputing) {
  const Buffer ones = device_.allocate(Category::activations, kSize);
  int looks = 0;
  const cuda::Watch watch = device_.watches().add([&] { ++looks; });
  for (int mark = 0; mark < 100; ++mark) {
    device_.kernels().fill(ones.array(), 1.0F);
    static_cast<void>(device_.mark());
  }
  EXPECT_GE(looks, 100 - 32);
}

// --- memory ----------------------------------------------------------------------------------------------------------

TEST(CudaDeviceMemory, ThatRunsOutIsTheDesignsSentenceAndNothingIsBooked) {
  CudaDevice device(ProductKind::canonical, 0);
  const auto ask = [&](Tier tier) {
    return reason_of([&] { (void)device.allocate(Category::gathered, 1024, Dtype::fp32, tier); });
  };
  cuda_on_host::fail_next("cudaMallocAsync", cudaErrorMemoryAllocation);
  EXPECT_EQ(ask(Tier::device),
            "asked for 4.0 KiB (gathered), which the machine does not have, with 224 bytes held on the device "
            "(workspace 224 bytes); ask plan what fits");
  cuda_on_host::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation);
  EXPECT_EQ(ask(Tier::host),
            "asked for 4.0 KiB (gathered), which the machine does not have, with 0 bytes held on the host; ask plan "
            "what fits");
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(device.ledger().current(Tier::device, Category::gathered), 0);
  EXPECT_EQ(device.ledger().current(Tier::host), 0);
  EXPECT_EQ(ask(Tier::device), "nothing was thrown");
  EXPECT_EQ(ask(Tier::host), "nothing was thrown");
  cuda_on_host::fail_next("cudaMallocAsync", cudaErrorIllegalAddress);
  EXPECT_EQ(ask(Tier::device).find("cudaMallocAsync failed: an illegal memory access was encountered"), 0U);
  EXPECT_EQ(device.ledger().current(Tier::device, Category::gathered), 0);
}

TEST(CudaDeviceMemory, MoreThanTheGpuHasIsRefusedAndLeavesItAsItWas) {
  CudaDevice device(ProductKind::canonical, 0);
  const Buffer some = device.allocate(Category::activations, kSize);
  EXPECT_THROW((void)device.allocate_uninitialized(Category::parameters, Index{1} << 40), ResourceFailure);
  EXPECT_EQ(downloaded(device, some.array()), all(0.0F));
}

TEST(CudaDeviceMemory, IsHeldUnderItsCap) {
  CudaDevice device(ProductKind::canonical, 0);
  device.ledger().set_cap(Tier::device, device.ledger().current(Tier::device) + 4 * kSize);
  Buffer fits = device.allocate(Category::parameters, kSize);
  EXPECT_THROW((void)device.allocate(Category::gathered, 1), ResourceFailure);
  fits.reset();
  EXPECT_NO_THROW((void)device.allocate(Category::gathered, kSize));
}

TEST(CudaDeviceMemory, IsWhatTheLedgerSaysAndAllGivenBack) {
  const std::size_t before = cuda_on_host::live_allocations();
  {
    CudaDevice device(ProductKind::canonical, 0);
    EXPECT_EQ(device.ledger().current(Tier::device), CudaKernels::scratch_bytes());
    EXPECT_EQ(device.ledger().current(Tier::device, Category::workspace), CudaKernels::scratch_bytes());
    EXPECT_EQ(CudaKernels::scratch_bytes(), 224);  // common/formula/memory.cpp
    const std::size_t used = cuda_on_host::used_of_pool().now;
    Buffer buffer = device.allocate(Category::gathered, 1024);
    EXPECT_EQ(cuda_on_host::used_of_pool().now, used + 4096);
    const Buffer host = device.allocate(Category::optimizer, 1024, Dtype::fp32, Tier::host);
    EXPECT_EQ(device.ledger().current(Tier::host), 4096);
    buffer.reset();
    EXPECT_EQ(cuda_on_host::used_of_pool().now, used);
  }
  EXPECT_EQ(cuda_on_host::live_allocations(), before);
}

TEST(CudaDeviceMemory, OfTheHostBeginsAtPagesFullOfZerosAndIsTheCpusToWorkOn) {
  CudaDevice device(ProductKind::canonical, 0);
  EXPECT_FALSE(device.shares_host_memory());
  for (const Index size : {1, 1000, 1024, 5000}) {
    const Buffer a = device.allocate(Category::optimizer, size, Dtype::fp32, Tier::host);
    const Buffer b = device.allocate(Category::optimizer, size, Dtype::fp32, Tier::host);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(floats(a)) % 4096, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(floats(b)) % 4096, 0U);
    EXPECT_EQ(floats(a)[size - 1], 0.0F);
    device.kernels_of(Tier::host).fill(a.array(), 2.0F);
    device.kernels_of(Tier::host).copy(b.array(), a.array());
    EXPECT_EQ(floats(b)[size - 1], 2.0F);
  }
  EXPECT_THROW((void)device.allocate(Category::optimizer, 1, Dtype::fp32, Tier::nvme), UnusableInput);
}

TEST(CudaDeviceMemory, OfABufferWithoutElementsIsNone) {
  CudaDevice device(ProductKind::canonical, 0);
  const Buffer empty = device.allocate(Category::activations, 0);
  const Buffer host = device.allocate(Category::activations, 0, Dtype::fp32, Tier::host);
  device.upload(empty.array(), nullptr);
  device.download(nullptr, empty.array());
  device.synchronize(device.copy_down(host.array(), empty.array()));
  device.kernels().fill(empty.array(), 1.0F);
}

// --- which GPU -------------------------------------------------------------------------------------------------------

TEST(CudaDevice, IsTheGpuOfTheLocalRank) {
  cuda_on_host::set_device_count(3);
  {
    const CudaDevice device(ProductKind::canonical, 4);
    EXPECT_EQ(device.ordinal(), 1);
    EXPECT_EQ(device.description().find("cuda: "), 0U) << device.description();
    EXPECT_NE(device.description().find(", compute capability "), std::string::npos);
    EXPECT_NE(device.description().find(", GPU 1 of 3"), std::string::npos);
    EXPECT_NE(device.bus_id(), CudaDevice(ProductKind::canonical, 3).bus_id());
  }
  cuda_on_host::set_device_count(1);
  EXPECT_EQ(make_cuda_device(ProductKind::canonical, 4)->description().find("cuda: "), 0U);
}

TEST(CudaDevice, ThatCannotBeHadSaysWhy) {
  EXPECT_EQ(why_no_cuda(), std::nullopt);
  cuda_on_host::fail_next("cudaGetDeviceCount", cudaErrorNoDevice);
  const std::optional<std::string> why = why_no_cuda();
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->find("--backend cuda: cudaGetDeviceCount finds no GPU"), 0U);
  cuda_on_host::fail_next("cudaGetDeviceCount", cudaErrorNoDevice);
  EXPECT_THROW((void)make_cuda_device(ProductKind::canonical, 0), UnusableInput);
}

}  // namespace
}  // namespace zero
