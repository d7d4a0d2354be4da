#include "common/base/order_free_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace zero {
namespace {

double sum_of(const std::vector<double>& terms) {
  OrderFreeSum sum;
  for (const double term : terms) sum.add(term);
  return sum.value();
}

/// The exact sum of terms that are multiples of 2^-320, bit by bit in a plain binary number, rounded to nearest even.
double reference(const std::vector<double>& terms) {
  constexpr int kBits = 720;
  std::vector<int> number(kBits, 0);
  for (const double term : terms) {
    int exponent = 0;
    const double fraction = std::frexp(term, &exponent);
    auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
    for (int bit = exponent - 53 + 320; mantissa != 0; ++bit, mantissa >>= 1) {
      if ((mantissa & 1) == 0) continue;
      int carry = bit;
      while (number[static_cast<std::size_t>(carry)] == 1) number[static_cast<std::size_t>(carry++)] = 0;
      number[static_cast<std::size_t>(carry)] = 1;
    }
  }
  int top = kBits - 1;
  while (top >= 0 && number[static_cast<std::size_t>(top)] == 0) --top;
  const auto at = [&](int bit) { return bit >= 0 && number[static_cast<std::size_t>(bit)] == 1; };
  std::uint64_t mantissa = 0;
  for (int bit = top; bit > top - 53; --bit) mantissa = mantissa << 1 | (at(bit) ? 1U : 0U);
  bool sticky = false;
  for (int bit = top - 54; bit >= 0; --bit) sticky = sticky || at(bit);
  if (at(top - 53) && (sticky || (mantissa & 1) != 0)) ++mantissa;
  return top < 0 ? 0 : std::ldexp(static_cast<double>(mantissa), top - 52 - 320);
}

std::vector<double> squares_of_wild_floats(int n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<double> terms;
  while (static_cast<int>(terms.size()) < n) {
    float x = 0;
    const auto bits = static_cast<std::uint32_t>(random());
    std::memcpy(&x, &bits, sizeof x);
    if (std::isfinite(x)) terms.push_back(static_cast<double>(x) * static_cast<double>(x));
  }
  return terms;
}

TEST(OrderFreeSum, EqualsTheExactSumRoundedOnce) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<double> terms = squares_of_wild_floats(300, seed);
    EXPECT_EQ(sum_of(terms), reference(terms)) << "seed " << seed;
  }
  std::mt19937_64 random(1);
  for (int exponent = -200; exponent < 280; ++exponent) {  // every alignment of a mantissa to the digits
    std::vector<double> terms;
    for (int i = 0; i < 5; ++i) {
      terms.push_back(std::ldexp(static_cast<double>(random() >> 11), exponent - 53 - 7 * i));
    }
    EXPECT_EQ(sum_of(terms), reference(terms)) << "exponent " << exponent;
  }
}

TEST(OrderFreeSum, DoesNotDependOnTheOrder) {
  std::vector<double> terms = squares_of_wild_floats(1000, 99);
  const double expected = sum_of(terms);
  std::mt19937_64 random(5);
  for (int i = 0; i < 10; ++i) {
    std::shuffle(terms.begin(), terms.end(), random);
    EXPECT_EQ(sum_of(terms), expected);
  }
}

TEST(OrderFreeSum, DoesNotDependOnWhoAddedWhat) {
  const std::vector<double> terms = squares_of_wild_floats(1000, 3);
  for (const std::size_t ranks : {1, 2, 3, 7, 8}) {
    std::vector<OrderFreeSum> parts(ranks);
    for (std::size_t i = 0; i < terms.size(); ++i) parts[i * ranks / terms.size()].add(terms[i]);
    OrderFreeSum total;
    for (std::size_t r = ranks; r-- > 0;) total.add(parts[r]);
    EXPECT_EQ(total.value(), sum_of(terms)) << ranks << " ranks";
  }
}

TEST(OrderFreeSum, RoundsTiesToEven) {
  EXPECT_EQ(sum_of({1.0, 0x1p-53}), 1.0);
  EXPECT_EQ(sum_of({1.0 + 0x1p-52, 0x1p-53}), 1.0 + 0x1p-51);
  EXPECT_EQ(sum_of({1.0, 0x1p-53, 0x1p-300}), 1.0 + 0x1p-52);
  EXPECT_EQ(sum_of({2.0 - 0x1p-52, 0x1p-53}), 2.0);
}

TEST(OrderFreeSum, KeepsTheLeastSquareBesideTheLargest) {
  const double least = std::ldexp(1.0, -298);
  const double largest = std::pow(static_cast<double>(std::numeric_limits<float>::max()), 2) * 32;
  EXPECT_EQ(sum_of({least}), least);
  EXPECT_EQ(sum_of({largest, least}), largest);
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({0.0, -0.0}), 0);
  std::vector<double> many(10000, largest);
  EXPECT_EQ(sum_of(many), reference(many));
  EXPECT_TRUE(std::isfinite(sum_of(many)));
}

TEST(OrderFreeSum, CutsOffWhatLiesBelowItsUnitTheSameInEveryOrder) {
  EXPECT_EQ(sum_of({std::numeric_limits<double>::denorm_min(), 1.0}), 1.0);
  EXPECT_EQ(sum_of({0x1.8p-320}), 0x1p-320);
  EXPECT_EQ(sum_of({0x1p-321, 0x1p-321}), 0);
}

TEST(OrderFreeSum, LetsInfinitiesAndNansThrough) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(sum_of({1.0, infinity, 2.0}), infinity);
  EXPECT_TRUE(std::isnan(sum_of({nan, 1.0})));
  EXPECT_TRUE(std::isnan(sum_of({infinity, nan})));
  EXPECT_TRUE(std::isnan(sum_of({-1.0}))) << "a negative term is not passed over";
  EXPECT_EQ(sum_of({0x1p320}), infinity);
  OrderFreeSum a, b;
  a.add(infinity);
  b.add(1.0);
  b.add(a);
  EXPECT_EQ(b.value(), infinity);
}

TEST(OrderFreeSum, EqualsIntegerArithmetic) {
  std::mt19937_64 random(11);
  unsigned __int128 exact = 0;
  OrderFreeSum sum;
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t term = random() >> 11;
    exact += term;
    sum.add(static_cast<double>(term));
  }
  EXPECT_EQ(sum.value(), static_cast<double>(exact));  // the conversion rounds to nearest even
}

}  // namespace
}  // namespace zero
