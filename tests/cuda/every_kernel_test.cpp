// The CUDA kernels, run on the host, write the bits that the CPU's kernels write.
#include "tests/device/every_kernel.h"

#include <gtest/gtest.h>

#include "common/device/cpu_kernels.h"
#include "tests/cuda/gpu.h"

namespace zero {
namespace {

using namespace test;  // NOLINT: a test of what is there

template <class T>
Outputs on_cpu(Index n) {
  CpuKernels kernels(CpuIsa::generic);
  OnHost place;
  return run_every_kernel<T>(kernels, place, n);
}

template <class T>
void expect_the_bits_of_the_cpu() {
  for (const Index n : {1, 2, 7, 15, 16, 17, 31, 33, 61, 64, 130}) {
    const Outputs expected = on_cpu<T>(n);
    for (const Order order : kOrders) {
      Gpu gpu(order);
      const Outputs got = run_every_kernel<T>(gpu.kernels, gpu.place, n);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(bits(got[i]), bits(expected[i])) << name(order) << ", rows of " << n << ", output " << i;
      }
    }
  }
}

TEST(CudaKernels, EveryKernelHasTheBitsOfTheCpuInEveryOrderOfThreads) { expect_the_bits_of_the_cpu<float>(); }

TEST(CudaKernels, EveryKernelHasTheBitsOfTheCpuInEveryOrderOfThreadsInBf16) { expect_the_bits_of_the_cpu<Bf16>(); }

template <class T>
void expect_the_digest() {
  CpuKernels cpu(CpuIsa::generic);
  for (const Order order : kOrders) {
    Gpu gpu(order);
    EXPECT_EQ(digest_of(cpu, run_every_kernel<T>(gpu.kernels, gpu.place, kDigestedRow)), kDigest<T>) << name(order);
  }
}

TEST(CudaKernels, HaveTheDigestOfEveryOtherBuild) { expect_the_digest<float>(); }

TEST(CudaKernels, HaveTheDigestOfEveryOtherBuildInBf16) { expect_the_digest<Bf16>(); }

template <class T>
void expect_same_bits_wherever_a_view_begins(Order order) {
  constexpr Index kSize = 70;
  CpuKernels cpu(CpuIsa::generic);
  Gpu gpu(order);
  for (const auto& [kernel_name, kernel] : in_place_kernels<T>()) {
    std::vector<float> positive = values(kSize, 3, 3.0F);
    for (float& x : positive) x = std::abs(x);
    std::vector<std::vector<T>> whole = {stored<T>(values(kSize, 1, 3.0F)), stored<T>(values(kSize, 2, 3.0F)),
                                         stored<T>(positive)};
    const std::vector<std::vector<T>> before = whole;
    kernel(cpu, view(whole[0]), view(whole[1]), view(whole[2]), 0);
    std::vector<std::vector<T>> parts(3);
    for (Index cut = 0; cut <= kSize; ++cut) {
      parts = before;
      const Array a = gpu.place(parts[0]), b = gpu.place(parts[1]), c = gpu.place(parts[2]);
      for (const auto& [begin, n] : {std::pair<Index, Index>{cut, kSize - cut}, {0, cut}}) {
        kernel(gpu.kernels, a.part(begin, n), b.part(begin, n), c.part(begin, n), begin);
      }
      gpu.place.finish();
      for (std::size_t i = 0; i < parts.size(); ++i) {
        ASSERT_EQ(bits(parts[i]), bits(whole[i])) << kernel_name << ", " << name(order) << ", cut at " << cut;
      }
    }
  }
}

TEST(CudaKernels, SameBitsWhereverAViewBeginsOrEnds) {
  for (const Order order : kOrders) expect_same_bits_wherever_a_view_begins<float>(order);
}

TEST(CudaKernels, SameBitsWhereverAViewBeginsOrEndsInBf16) {
  for (const Order order : kOrders) expect_same_bits_wherever_a_view_begins<Bf16>(order);
}

}  // namespace
}  // namespace zero
