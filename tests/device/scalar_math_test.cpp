#include "common/device/scalar_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/base/random.h"

namespace zero {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// |got - exact| in units in the last place that a float next to `exact` has.
double error_in_ulps(float got, double exact) {
  if (std::isinf(got) && std::abs(exact) > static_cast<double>(std::numeric_limits<float>::max())) return 0;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(static_cast<double>(got) - exact) / ulp;
}

/// The largest error of `f` against `exact` over every `stride`-th float between the bit patterns of `from` and `to`.
template <class F, class Exact>
double worst_error(float from, float to, std::uint32_t stride, F f, Exact exact) {
  double worst = 0;
  for (std::uint32_t bits = bits_of(from); bits <= bits_of(to); bits += stride) {
    const float x = float_of(bits);
    worst = std::max(worst, error_in_ulps(f(x), exact(static_cast<double>(x))));
  }
  return worst;
}

constexpr std::uint32_t kStride = 997;

TEST(Exp, IsWithinItsErrorBound) {
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LE(worst_error(0.0F, 89.5F, kStride, exp_fp32, exact), 1.1);
  EXPECT_LE(worst_error(-0.0F, -105.0F, kStride, exp_fp32, exact), 1.1);
}

TEST(Exp, OfSpecialValues) {
  EXPECT_EQ(exp_fp32(0.0F), 1.0F);
  EXPECT_EQ(exp_fp32(-0.0F), 1.0F);
  EXPECT_EQ(exp_fp32(std::numeric_limits<float>::denorm_min()), 1.0F);
  EXPECT_EQ(exp_fp32(kInfinity), kInfinity);
  EXPECT_EQ(bits_of(exp_fp32(-kInfinity)), 0U);
  EXPECT_EQ(exp_fp32(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(bits_of(exp_fp32(std::numeric_limits<float>::lowest())), 0U);
  EXPECT_EQ(exp_fp32(88.73F), kInfinity);
  EXPECT_LT(exp_fp32(88.72F), kInfinity);
  EXPECT_EQ(exp_fp32(-103.0F), static_cast<float>(std::exp(-103.0)));  // a subnormal
  EXPECT_TRUE(std::isnan(exp_fp32(kNan)));
  EXPECT_TRUE(std::isnan(exp_fp32(-kNan)));
}

TEST(Tanh, IsWithinThreeUlps) {
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LE(worst_error(0.0F, 20.0F, kStride, tanh_fp32, exact), 3.0);
  EXPECT_LE(worst_error(-0.0F, -20.0F, kStride, tanh_fp32, exact), 3.0);
}

TEST(Tanh, OfSpecialValues) {
  EXPECT_EQ(bits_of(tanh_fp32(0.0F)), 0U);
  EXPECT_EQ(bits_of(tanh_fp32(-0.0F)), 0x80000000U);
  EXPECT_EQ(tanh_fp32(std::numeric_limits<float>::denorm_min()), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(tanh_fp32(9.1F), 1.0F);
  EXPECT_EQ(tanh_fp32(kInfinity), 1.0F);
  EXPECT_EQ(tanh_fp32(-kInfinity), -1.0F);
  EXPECT_EQ(tanh_fp32(std::numeric_limits<float>::max()), 1.0F);
  EXPECT_TRUE(std::isnan(tanh_fp32(kNan)));
  for (float x = 0; x < 10; x += 0.0137F) {
    EXPECT_EQ(tanh_fp32(-x), -tanh_fp32(x));
    EXPECT_LE(tanh_fp32(x), 1.0F);
  }
}

TEST(Log, IsWithinOneUlp) {
  const auto exact = [](double x) { return std::log(x); };
  EXPECT_LE(
      worst_error(std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(), 9973, log_fp32, exact),
      1.0);
  EXPECT_LE(worst_error(0.5F, 2.0F, 101, log_fp32, exact), 1.0);
}

TEST(Log, OfSpecialValues) {
  EXPECT_EQ(log_fp32(0.0F), -kInfinity);
  EXPECT_EQ(log_fp32(-0.0F), -kInfinity);
  EXPECT_EQ(bits_of(log_fp32(1.0F)), 0U);
  EXPECT_EQ(log_fp32(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(log_fp32(-1.0F)));
  EXPECT_TRUE(std::isnan(log_fp32(-kInfinity)));
  EXPECT_TRUE(std::isnan(log_fp32(-std::numeric_limits<float>::denorm_min())));
  EXPECT_TRUE(std::isnan(log_fp32(kNan)));
}

double exact_gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

TEST(Gelu, AndItsDerivativeAreWithinTheErrorOfTheFormula) {
  for (float x = -12; x <= 12; x += 0.00137F) {
    const auto exact = static_cast<double>(x);
    EXPECT_NEAR(static_cast<double>(gelu(x)), exact_gelu(exact), 4e-7 * std::max(1.0, std::abs(exact))) << x;
    const double t = std::tanh(std::sqrt(2 / M_PI) * (exact + 0.044715 * exact * exact * exact));
    const double derivative =
        0.5 * (1 + t) + 0.5 * exact * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * exact * exact);
    EXPECT_NEAR(static_cast<double>(gelu_derivative(x)), derivative, 2e-6) << x;
  }
}

TEST(Gelu, HidesNothingInfiniteAndMakesNothingInfiniteOfFiniteNumbers) {
  EXPECT_EQ(gelu(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(gelu(-kInfinity)));
  EXPECT_TRUE(std::isnan(gelu(kNan)));
  EXPECT_TRUE(std::isnan(gelu_derivative(kInfinity)));
  EXPECT_TRUE(std::isnan(gelu_derivative(-kInfinity)));
  EXPECT_TRUE(std::isnan(gelu_derivative(kNan)));
  for (const float x : {1e10F, 1e20F, 3e38F}) {
    EXPECT_EQ(gelu(x), x);
    EXPECT_EQ(gelu(-x), 0.0F);
    EXPECT_EQ(gelu_derivative(x), 1.0F);
    EXPECT_EQ(gelu_derivative(-x), 0.0F);
  }
  EXPECT_EQ(gelu(0.0F), 0.0F);
  EXPECT_EQ(gelu_derivative(0.0F), 0.5F);
}

TEST(Normal, IsTheTransformOfBoxAndMuller) {
  double worst = 0;
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const std::uint64_t bits = random_bits(3, 4, i);
    const double u = (static_cast<double>(bits >> 40) + 1) * 0x1p-24;
    const double angle = 2 * M_PI * static_cast<double>(bits & 0xFFFFFFFFU) * 0x1p-32;
    const double exact = std::sqrt(-2 * std::log(u)) * std::cos(angle);
    worst = std::max(worst, std::abs(static_cast<double>(normal_of(bits)) - exact));
  }
  EXPECT_LE(worst, 1e-6);
}

TEST(Normal, HasTheMomentsOfANormalDistribution) {
  constexpr int kDraws = 1 << 20;
  double sum = 0, squares = 0, cubes = 0, fourths = 0;
  int beyond_two = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = static_cast<double>(normal_of(random_bits(1, 2, i)));
    ASSERT_LE(std::abs(x), 5.77);
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
  }
  // Five standard deviations of each mean.
  EXPECT_NEAR(sum / kDraws, 0, 0.005);
  EXPECT_NEAR(squares / kDraws, 1, 0.007);
  EXPECT_NEAR(cubes / kDraws, 0, 0.019);
  EXPECT_NEAR(fourths / kDraws, 3, 0.05);
  EXPECT_NEAR(static_cast<double>(beyond_two) / kDraws, 0.0455, 0.0011);
}

TEST(Normal, OfTheExtremeBitsIsFinite) {
  for (const std::uint64_t bits :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0xFFFFFFFF}, ~std::uint64_t{0xFFFFFFFF}}) {
    EXPECT_TRUE(std::isfinite(normal_of(bits)));
  }
  EXPECT_NEAR(static_cast<double>(normal_of(0)), 5.768, 0.001);
}

TEST(ElementHash, ChangesInAboutHalfItsBitsWithEveryInputBit) {
  const ElementHash base = element_hash(tensor_key(3), 1000, 0x3F800000);
  const auto changed = [&](const ElementHash& other) {
    return __builtin_popcountll(base.low ^ other.low) + __builtin_popcountll(base.high ^ other.high);
  };
  for (int bit = 0; bit < 32; ++bit) {
    const std::uint64_t flip = std::uint64_t{1} << bit;
    for (const int count : {changed(element_hash(tensor_key(3), 1000, 0x3F800000 ^ flip)),
                            changed(element_hash(tensor_key(3), 1000 ^ flip, 0x3F800000)),
                            changed(element_hash(tensor_key(3 ^ flip), 1000, 0x3F800000))}) {
      EXPECT_GT(count, 32) << "bit " << bit;
      EXPECT_LT(count, 96) << "bit " << bit;
    }
  }
}

TEST(Bf16, EveryNumberComesBackFromFp32) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const Bf16 stored{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(stored);
    EXPECT_EQ(bits_of(wide), bits << 16);
    const std::uint32_t expected = std::isnan(wide) ? bits | 0x40U : bits;  // a signalling NaN becomes a quiet one
    EXPECT_EQ(from_float<Bf16>(wide).bits, expected) << bits;
  }
}

TEST(Bf16, RoundsToNearestWithTiesToEven) {
  // Every finite bf16 and its successor away from zero: what lies between goes to the nearer one.
  for (const std::uint32_t sign : {0U, 0x8000U}) {
    for (std::uint32_t below = sign; below < (sign | 0x7F80U); ++below) {
      const std::uint32_t even = (below & 1U) == 0 ? below : below + 1;
      const auto rounded = [&](std::uint32_t low) { return from_float<Bf16>(float_of(below << 16 | low)).bits; };
      ASSERT_EQ(rounded(0x0001), below);
      ASSERT_EQ(rounded(0x7FFF), below);
      ASSERT_EQ(rounded(0x8000), even) << below;
      ASSERT_EQ(rounded(0x8001), below + 1);
      ASSERT_EQ(rounded(0xFFFF), below + 1);
    }
  }
}

TEST(Bf16, OfSpecialValues) {
  const auto rounded = [](float x) { return from_float<Bf16>(x).bits; };
  EXPECT_EQ(rounded(0.0F), 0x0000);
  EXPECT_EQ(rounded(-0.0F), 0x8000);
  EXPECT_EQ(rounded(1.0F), 0x3F80);
  EXPECT_EQ(rounded(kInfinity), 0x7F80);
  EXPECT_EQ(rounded(-kInfinity), 0xFF80);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), 0x7F80) << "past half a step above the largest: infinity";
  EXPECT_EQ(rounded(-std::numeric_limits<float>::max()), 0xFF80);
  EXPECT_EQ(rounded(float_of(0x7F7F7FFF)), 0x7F7F) << "the largest bf16";
  EXPECT_EQ(rounded(float_of(0x7F7F8000)), 0x7F80);
  EXPECT_EQ(rounded(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(rounded(float_of(0x00008000)), 0x0000) << "half of the least subnormal: a tie to even";
  EXPECT_EQ(rounded(float_of(0x00008001)), 0x0001);
  EXPECT_EQ(rounded(float_of(0x007FFFFF)), 0x0080) << "the largest subnormal of fp32 is the least normal number";
  for (std::uint32_t payload = 1; payload < 0x800000; payload += 641) {
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const std::uint32_t bits = rounded(float_of(sign | 0x7F800000U | payload));
      ASSERT_EQ(bits & 0xFFC0U, (sign >> 16) | 0x7FC0U) << "a quiet NaN of the same sign";
      ASSERT_EQ(bits & 0x3FU, payload >> 16 & 0x3FU);
    }
  }
}

TEST(DropoutScalars, KeepWordsFromRateTimesTwoToThe32On) {
  EXPECT_EQ(dropout_scalars(0).least_kept, 0U);
  EXPECT_EQ(dropout_scalars(0).scale, 1.0F);
  EXPECT_EQ(dropout_scalars(0.5).least_kept, 0x80000000U);
  EXPECT_EQ(dropout_scalars(0.5).scale, 2.0F);
  EXPECT_EQ(dropout_scalars(0.1).least_kept, 429496730U) << "0.1 * 2^32 = 429496729.6";
  EXPECT_EQ(dropout_scalars(0.1).scale, static_cast<float>(1 / 0.9));
  EXPECT_EQ(dropout_scalars(0x1p-32).least_kept, 1U);
  EXPECT_EQ(dropout_scalars(1 - 0x1p-50).least_kept, std::uint64_t{1} << 32) << "above every word";
  EXPECT_EQ(dropout_element(3.0F, 429496729U, dropout_scalars(0.1)), 0.0F);
  EXPECT_EQ(dropout_element(3.0F, 429496730U, dropout_scalars(0.1)), 3.0F * static_cast<float>(1 / 0.9));
  EXPECT_EQ(dropout_element(3.0F, 0xFFFFFFFFU, dropout_scalars(1 - 0x1p-50)), 0.0F);
}

TEST(TreeSplit, IsTheLargestPowerOfTwoBelow) {
  const std::vector<std::size_t> expected = {1, 2, 2, 4, 4, 4, 4, 8};
  for (std::size_t n = 2; n <= 9; ++n) EXPECT_EQ(tree_split(n), expected[n - 2]);
}

}  // namespace
}  // namespace zero
