// Dropout against its definition in kernels.h.
#include <gtest/gtest.h>

#include <cmath>

#include "common/device/cpu_kernels.h"
#include "tests/device/views.h"

namespace zero {
namespace {

using test::bits;
using test::stored;
using test::values;
using test::view;

constexpr std::uint64_t kSeed = 0x123456789ABCDEFULL, kStream = 0xFEDCBA9876543210ULL;

class Dropout : public testing::TestWithParam<CpuIsa> {
 protected:
  CpuKernels kernels{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(CpuKernels, Dropout, testing::ValuesIn(test::isas()), [](const auto& isa) {
  return std::string(isa.param == CpuIsa::generic ? "generic" : isa.param == CpuIsa::avx2 ? "avx2" : "avx512");
});

template <class T>
void expect_definition(CpuKernels& kernels, double rate) {
  for (const Index n : {0, 1, 3, 16, 33, 512, 515, 1500}) {
    for (const std::uint64_t first :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, (std::uint64_t{3} << 34) + 2}) {
      const std::vector<T> in = stored<T>(values(n, 1));
      std::vector<T> out(in.size()), expected;
      for (std::size_t i = 0; i < in.size(); ++i) {
        const std::uint64_t at = first + i;
        const PhiloxBlock block =
            philox4x32_10({{static_cast<std::uint32_t>(at / 4), static_cast<std::uint32_t>(at >> 34),
                            static_cast<std::uint32_t>(kStream), static_cast<std::uint32_t>(kStream >> 32)}},
                          static_cast<std::uint32_t>(kSeed), kSeed >> 32);
        const bool keep = static_cast<double>(block.word[at % 4]) >= rate * 0x1p32;
        const auto scale = static_cast<float>(1 / (1 - rate));
        expected.push_back(from_float<T>(keep ? to_float(in[i]) * scale : 0.0F));
      }
      kernels.dropout(view(out), view(in), rate, kSeed, kStream, static_cast<Index>(first));
      ASSERT_EQ(bits(out), bits(expected)) << n << " elements from " << first << " at rate " << rate;
      out = in;
      kernels.dropout(view(out), view(out), rate, kSeed, kStream, static_cast<Index>(first));
      ASSERT_EQ(bits(out), bits(expected)) << "in place";
    }
  }
}

TEST_P(Dropout, KeepsAnElementWhereItsRandomWordIsNotBelowTheRate) {
  for (const double rate : {0.0, 0.1, 0.5, 0.9, 1 - 0x1p-40}) {
    expect_definition<float>(kernels, rate);
    expect_definition<Bf16>(kernels, rate);
  }
}

TEST_P(Dropout, AtRateZeroIsTheIdentity) {
  const std::vector<float> in = values(1000, 1);
  const std::vector<Bf16> half = stored<Bf16>(in);
  std::vector<float> out(in.size());
  std::vector<Bf16> half_out(in.size());
  kernels.dropout(view(out), view(in), 0, kSeed, kStream, 5);
  kernels.dropout(view(half_out), view(half), 0, kSeed, kStream, 5);
  EXPECT_EQ(bits(out), bits(in));
  EXPECT_EQ(bits(half_out), bits(half));
}

TEST_P(Dropout, KeepsTheFractionAndTheMean) {
  constexpr Index kSize = 1 << 18;
  const std::vector<float> ones(static_cast<std::size_t>(kSize), 1.0F);
  std::vector<float> out(ones.size());
  for (const double rate : {0.1, 0.5, 0.75}) {
    kernels.dropout(view(out), view(ones), rate, kSeed, kStream, 0);
    double kept = 0;
    for (const float x : out) {
      ASSERT_TRUE(x == 0.0F || x == static_cast<float>(1 / (1 - rate)));
      kept += x != 0.0F ? 1 : 0;
    }
    // Five standard deviations.
    EXPECT_NEAR(kept / kSize, 1 - rate, 5 * std::sqrt(rate * (1 - rate) / kSize));
    EXPECT_NEAR(kernels.sum_in_order(view(out)) / kSize, 1, 5 * std::sqrt(rate / (1 - rate) / kSize));
  }
}

TEST_P(Dropout, MasksDifferBySeedStreamAndPlaceAndNotByWhatIsMasked) {
  constexpr Index kSize = 4096;
  const auto mask = [&](float value, std::uint64_t seed, std::uint64_t stream, Index first) {
    std::vector<float> out(static_cast<std::size_t>(kSize), value);
    kernels.dropout(view(out), view(out), 0.5, seed, stream, first);
    for (float& x : out) x = x != 0 ? 1.0F : 0.0F;
    return out;
  };
  const std::vector<float> base = mask(1, 1, 2, 0);
  EXPECT_EQ(mask(-7, 1, 2, 0), base);
  for (const std::vector<float>& other : {mask(1, 2, 2, 0), mask(1, 1, 3, 0), mask(1, 1, 2, 1)}) {
    double equal = 0;
    for (std::size_t i = 0; i < base.size(); ++i) equal += base[i] == other[i] ? 1 : 0;
    EXPECT_NEAR(equal / kSize, 0.5, 0.04);
  }
}

}  // namespace
}  // namespace zero
