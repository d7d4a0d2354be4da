// Sums of the CUDA kernels beyond the sizes that every kernel is tried with.
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "common/device/cpu_kernels.h"
#include "tests/cuda/gpu.h"
#include "tests/device/every_kernel.h"

namespace zero {
namespace {

using namespace test;  // NOLINT: a test of what is there

/// More elements than one turn of all threads takes.
constexpr Index kStrides = 1024 * 256 + 1000;

TEST(CudaSums, TreesOfEveryNumberOfTermsSplitAsOnTheCpu) {
  CpuKernels cpu(CpuIsa::generic);
  Gpu gpu(Order::forward);
  constexpr Index kSize = 5;
  std::vector<std::vector<float>> wide;
  std::vector<std::vector<Bf16>> narrow;
  for (std::uint64_t t = 0; t < CudaKernels::kMostTerms; ++t) {
    wide.push_back(values(kSize, t, 100.0F));
    narrow.push_back(stored<Bf16>(values(kSize, 1000 + t, 100.0F)));
  }
  std::vector<ConstArray> on_host, on_device;
  for (std::size_t t = 0; t < wide.size(); ++t) {
    const bool bf16 = t % 3 == 1;
    on_host.push_back(bf16 ? view(std::as_const(narrow[t])) : view(std::as_const(wide[t])));
    on_device.push_back(bf16 ? gpu.place(std::as_const(narrow[t])) : gpu.place(std::as_const(wide[t])));
  }
  for (std::size_t n = 1; n <= wide.size(); n = n < 40 ? n + 1 : n + 27) {
    std::vector<float> expected(kSize), got(kSize);
    std::vector<Bf16> expected_bf16(kSize), got_bf16(kSize);
    cpu.tree_sum(view(expected), std::span(on_host).first(n));
    cpu.merge_sums(view(expected_bf16), std::span(on_host).first(n), 3.0F);
    gpu.kernels.tree_sum(gpu.place(got), std::span(on_device).first(n));
    gpu.kernels.merge_sums(gpu.place(got_bf16), std::span(on_device).first(n), 3.0F);
    gpu.place.finish();
    ASSERT_EQ(bits(got), bits(expected)) << n << " terms";
    ASSERT_EQ(bits(got_bf16), bits(expected_bf16)) << n << " terms";
  }
  std::vector<ConstArray> too_many = on_device;
  too_many.push_back(on_device[0]);
  std::vector<float> out(kSize);
  EXPECT_THROW(gpu.kernels.tree_sum(gpu.place(out), too_many), std::logic_error);
}

template <class T>
void expect_sums_of_the_cpu(const std::vector<T>& in, Order order) {
  CpuKernels cpu(CpuIsa::generic);
  Gpu gpu(order);
  const ConstArray on_host = view(in), on_device = gpu.place(in);
  OrderFreeSum expected, got;
  expected.add(scanned(cpu, on_host).squares);
  got.add(scanned(gpu.kernels, on_device).squares);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(got.value() + 0.0), std::bit_cast<std::uint64_t>(expected.value() + 0.0));
  gpu.kernels.scan(on_device, 1);  // added to what is there
  expected.add(scanned(cpu, on_host).squares);
  got = gpu.kernels.end_scan().squares;
  EXPECT_EQ(std::bit_cast<std::uint64_t>(got.value() + 0.0), std::bit_cast<std::uint64_t>(expected.value() + 0.0));
  EXPECT_EQ(scanned(gpu.kernels, on_device).first_not_finite, scanned(cpu, on_host).first_not_finite);
  const double sum = cpu.sum_in_order(on_host), sum_got = gpu.kernels.sum_in_order(on_device);
  EXPECT_TRUE(std::isnan(sum) ? std::isnan(sum_got) : sum == sum_got) << sum_got << " and not " << sum;
  Digest digest, digest_got;
  cpu.digest(digest, on_host, 3, 1000);
  gpu.kernels.digest(digest_got, on_device, 3, 1000);
  EXPECT_EQ(digest_got, digest);
}

std::vector<float> finite(std::vector<float> v) {
  for (float& x : v) x = std::isfinite(x) ? x : 1.0F;
  return v;
}

TEST(CudaSums, OverElementsOfAllMagnitudesAreThoseOfTheCpu) {
  for (const Order order : kOrders) {
    for (const Index n : {0, 1, 31, 32, 33, 255, 256, 257, 1000, 9000}) {
      SCOPED_TRACE(std::string(name(order)) + ", " + std::to_string(n));
      expect_sums_of_the_cpu(finite(wild(n, 3)), order);
      expect_sums_of_the_cpu(stored<Bf16>(finite(wild(n, 4))), order);
    }
  }
}

TEST(CudaSums, OfMoreElementsThanThreadsAreThoseOfTheCpu) {
  expect_sums_of_the_cpu(finite(wild(kStrides, 5)), Order::shuffled);
}

TEST(CudaSums, FindTheFirstOfSeveralTensorsThatAreNotFinite) {
  for (const Order order : kOrders) {
    Gpu gpu(order);
    std::vector<float> v = values(kStrides, 1);
    const auto first = [&] {
      const ConstArray in = gpu.place(std::as_const(v));
      gpu.kernels.begin_scan();
      for (const Index tensor : {9, 2, 5}) gpu.kernels.scan(in.part(tensor * 320, kStrides - tensor * 320), tensor);
      const Index found = gpu.kernels.end_scan().first_not_finite;
      gpu.place.finish();
      return found;
    };
    EXPECT_EQ(first(), ScanResult::kNone);
    for (const auto& [at, tensor] : std::initializer_list<std::pair<Index, Index>>{{kStrides - 1, 2},
                                                                                   {kStrides - 2, 2},
                                                                                   {1700, 2},
                                                                                   {700, 2},
                                                                                   {100, ScanResult::kNone},
                                                                                   {0, ScanResult::kNone}}) {
      v = values(kStrides, 1);
      v[static_cast<std::size_t>(at)] =
          at % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
      EXPECT_EQ(first(), tensor) << name(order) << " " << at;
    }
  }
}

TEST(CudaElements, MoreThanThreadsAreTakenInStrides) {
  CpuKernels cpu(CpuIsa::generic);
  Gpu gpu(Order::reverse);
  std::vector<float> expected(static_cast<std::size_t>(kStrides)), got = expected;
  cpu.fill_normal(view(expected), 1, 2, 3, 0.5F);
  gpu.kernels.fill_normal(gpu.place(got), 1, 2, 3, 0.5F);
  cpu.dropout(view(expected), view(expected), 0.25, 4, 5, 2);
  gpu.kernels.dropout(gpu.place(got), gpu.place(got), 0.25, 4, 5, 2);
  gpu.place.finish();
  EXPECT_EQ(bits(got), bits(expected));
}

TEST(CudaElements, FillAndCopyBetweenTypesAreThoseOfTheCpu) {
  CpuKernels cpu(CpuIsa::generic);
  Gpu gpu(Order::shuffled);
  const std::vector<float> in = wild(333, 1);
  std::vector<Bf16> round(333), round_got(333), fill(333), fill_got(333);
  std::vector<float> wide(333), wide_got(333), same(333);
  cpu.copy(view(round), view(in));
  cpu.copy(view(wide), view(std::as_const(round)));
  cpu.fill(view(fill), 0.1F);
  gpu.kernels.copy(gpu.place(round_got), gpu.place(in));
  gpu.kernels.copy(gpu.place(wide_got), gpu.place(round_got));
  gpu.kernels.copy(gpu.place(same), gpu.place(in));
  gpu.kernels.fill(gpu.place(fill_got), 0.1F);
  gpu.place.finish();
  EXPECT_EQ(bits(round_got), bits(round));
  EXPECT_EQ(bits(wide_got), bits(wide));
  EXPECT_EQ(bits(same), bits(in));
  EXPECT_EQ(bits(fill_got), bits(fill));
}

}  // namespace
}  // namespace zero
