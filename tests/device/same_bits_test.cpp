// An element has the same bits whatever the vector code and wherever a view begins or ends.
#include <gtest/gtest.h>

#include <string>

#include "common/device/cpu_kernels.h"
#include "tests/device/every_kernel.h"

namespace zero {
namespace {

using namespace test;  // NOLINT: a test of what is there

template <class T>
Outputs run_all(CpuIsa isa, Index n) {
  CpuKernels kernels(isa);
  OnHost place;
  return run_every_kernel<T>(kernels, place, n);
}

template <class T>
void expect_same_bits_with_every_isa() {
  for (const Index n : {1, 2, 7, 15, 16, 17, 31, 33, 61, 64, 130, 257}) {
    const Outputs expected = run_all<T>(CpuIsa::generic, n);
    for (const CpuIsa isa : test::isas()) {
      const Outputs got = run_all<T>(isa, n);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(bits(got[i]), bits(expected[i])) << name(isa) << ", rows of " << n << ", output " << i;
      }
    }
  }
}

TEST(SameBits, WithEveryInstructionSet) { expect_same_bits_with_every_isa<float>(); }

TEST(SameBits, WithEveryInstructionSetInBf16) { expect_same_bits_with_every_isa<Bf16>(); }

template <class T>
void expect_same_bits_wherever_a_view_begins() {
  constexpr Index kSize = 150;
  for (const CpuIsa isa : test::isas()) {
    CpuKernels kernels(isa);
    for (const auto& [kernel_name, kernel] : in_place_kernels<T>()) {
      std::vector<float> positive = values(kSize, 3, 3.0F);
      for (float& x : positive) x = std::abs(x);
      std::vector<std::vector<T>> whole = {stored<T>(values(kSize, 1, 3.0F)), stored<T>(values(kSize, 2, 3.0F)),
                                           stored<T>(positive)};
      const std::vector<std::vector<T>> before = whole;
      kernel(kernels, view(whole[0]), view(whole[1]), view(whole[2]), 0);
      for (Index cut = 0; cut <= kSize; ++cut) {
        std::vector<std::vector<T>> parts = before;
        for (const auto& [begin, n] : {std::pair<Index, Index>{cut, kSize - cut}, {0, cut}}) {
          kernel(kernels, view(parts[0]).part(begin, n), view(parts[1]).part(begin, n), view(parts[2]).part(begin, n),
                 begin);
        }
        for (std::size_t i = 0; i < parts.size(); ++i) {
          ASSERT_EQ(bits(parts[i]), bits(whole[i])) << kernel_name << ", " << name(isa) << ", cut at " << cut;
        }
      }
    }
  }
}

TEST(SameBits, WhereverAViewBeginsOrEnds) { expect_same_bits_wherever_a_view_begins<float>(); }

TEST(SameBits, WhereverAViewBeginsOrEndsInBf16) { expect_same_bits_wherever_a_view_begins<Bf16>(); }

TEST(SameBits, AsEveryOtherBuildOfThisSource) {
  CpuKernels generic(CpuIsa::generic);
  EXPECT_EQ(digest_of(generic, run_all<float>(cpu_isa(), kDigestedRow)), kDigest<float>);
  EXPECT_EQ(digest_of(generic, run_all<Bf16>(cpu_isa(), kDigestedRow)), kDigest<Bf16>);
}

}  // namespace
}  // namespace zero
