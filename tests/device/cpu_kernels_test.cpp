// Fills, sums, digests and AdamW against the definitions in kernels.h.
#include "common/device/cpu_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <stdexcept>

#include "tests/device/views.h"

namespace zero {
namespace {

using test::bits;
using test::first_not_finite;
using test::scanned;
using test::values;
using test::view;

constexpr Index kSizes[] = {0, 1, 7, 16, 31, 33, 61, 257, 1025};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class EveryIsa : public testing::TestWithParam<CpuIsa> {
 protected:
  CpuKernels kernels{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(CpuKernels, EveryIsa, testing::ValuesIn(test::isas()), [](const auto& isa) {
  return std::string(isa.param == CpuIsa::generic ? "generic" : isa.param == CpuIsa::avx2 ? "avx2" : "avx512");
});

TEST_P(EveryIsa, CopiesAndFillsEveryElementAndNoOther) {
  for (const Index n : kSizes) {
    const std::vector<float> in = values(n, 1);
    std::vector<float> out(static_cast<std::size_t>(n) + 2, 5.0F);
    kernels.copy(view(out).part(1, n), view(in));
    EXPECT_EQ(std::vector<float>(out.begin() + 1, out.end() - 1), in);
    kernels.fill(view(out).part(1, n), 3.0F);
    EXPECT_EQ(std::vector<float>(out.begin() + 1, out.end() - 1), std::vector<float>(in.size(), 3.0F));
    EXPECT_EQ(out.front(), 5.0F);
    EXPECT_EQ(out.back(), 5.0F);
  }
}

TEST_P(EveryIsa, FillsNormalNumbersBySeedTensorAndIndex) {
  std::vector<float> out(100);
  kernels.fill_normal(view(out), 11, 5, 1000, 0.02F);
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(bits(out[i]), bits(0.02F * normal_of(random_bits(11, 5, 1000 + i))));
  }
}

float tree(const std::vector<float>& terms, std::size_t begin, std::size_t n) {
  if (n == 1) return terms[begin];
  std::size_t split = 1;
  while (2 * split < n) split *= 2;
  return tree(terms, begin, split) + tree(terms, begin + split, n - split);
}

TEST_P(EveryIsa, AddsAsATreeSplitAtTheLargestPowerOfTwo) {
  for (std::size_t n = 1; n <= 40; ++n) {
    for (const Index size : {1, 33, 1100}) {
      std::vector<std::vector<float>> terms;
      for (std::size_t t = 0; t < n; ++t) terms.push_back(values(size, 100 + t, 1.0F + static_cast<float>(t)));
      std::vector<ConstArray> views;
      for (const auto& term : terms) views.push_back(view(term));
      std::vector<float> expected;
      for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
        std::vector<float> column;
        for (const auto& term : terms) column.push_back(term[i]);
        expected.push_back(tree(column, 0, n));
      }
      std::vector<float> out(static_cast<std::size_t>(size));
      kernels.tree_sum(view(out), views);
      ASSERT_EQ(bits(out), bits(expected)) << n << " terms of " << size;
      kernels.tree_sum(view(terms[n / 2]), views);  // in place
      ASSERT_EQ(bits(terms[n / 2]), bits(expected)) << n << " terms of " << size << " in place";
    }
  }
}

TEST_P(EveryIsa, MergesPartialSumsTheSmallestFirstAndDividesOnce) {
  for (std::size_t n = 1; n <= 5; ++n) {
    for (const float divisor : {1.0F, 3.0F}) {
      std::vector<std::vector<float>> terms;
      for (std::size_t t = 0; t < n; ++t) terms.push_back(values(700, 50 + t));
      std::vector<ConstArray> views;
      for (const auto& term : terms) views.push_back(view(term));
      std::vector<float> expected = terms[n - 1];
      for (std::size_t t = n - 1; t-- > 0;) {
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = terms[t][i] + expected[i];
      }
      for (float& x : expected) x /= divisor;
      kernels.merge_sums(view(terms[0]), views, divisor);  // in place
      EXPECT_EQ(bits(terms[0]), bits(expected)) << n << " terms / " << divisor;
    }
  }
}

TEST_P(EveryIsa, SumsKeepAMinusZero) {
  const std::vector<float> minus_zero(20, -0.0F);
  const std::vector<ConstArray> one = {view(minus_zero)};
  std::vector<float> out(20);
  kernels.tree_sum(view(out), one);
  EXPECT_EQ(bits(out), bits(minus_zero));
  kernels.merge_sums(view(out), one, 1);
  EXPECT_EQ(bits(out), bits(minus_zero));
}

TEST_P(EveryIsa, SumsSquaresByBlocksOf32) {
  for (const Index n : {0, 1, 31, 32, 33, 257, 8192, 8193, 20000}) {
    const std::vector<float> in = values(n, 9, 1e3F);
    OrderFreeSum expected, sum, parts;
    for (std::size_t begin = 0; begin < in.size(); begin += 32) {
      double block = 0;
      for (std::size_t i = begin; i < std::min(begin + 32, in.size()); ++i)
        block += static_cast<double>(in[i]) * static_cast<double>(in[i]);
      expected.add(block);
    }
    sum.add(scanned(kernels, view(in)).squares);
    EXPECT_EQ(sum.value(), expected.value()) << n;
    const Index cut = n / 64 * 32;  // a slice begins at a multiple of 32
    parts.add(scanned(kernels, view(in).part(cut, n - cut)).squares);
    parts.add(scanned(kernels, view(in).part(0, cut)).squares);
    EXPECT_EQ(parts.value(), expected.value()) << n;
  }
}

TEST_P(EveryIsa, SquaresOfLargeFiniteNumbersStayFiniteAndOthersShow) {
  std::vector<float> in(100, 1e30F);
  OrderFreeSum sum;
  sum.add(scanned(kernels, view(in)).squares);
  EXPECT_NEAR(sum.value(), 1e62, 1e56);
  in[50] = -kInfinity;
  OrderFreeSum infinite;
  infinite.add(scanned(kernels, view(in)).squares);
  EXPECT_EQ(infinite.value(), std::numeric_limits<double>::infinity());
  in[99] = kNan;
  OrderFreeSum undefined;
  undefined.add(scanned(kernels, view(in)).squares);
  EXPECT_TRUE(std::isnan(undefined.value()));
}

TEST_P(EveryIsa, SumsInOrder) {
  const std::vector<float> in = values(1000, 4, 1e8F);
  double expected = 0;
  for (const float x : in) expected += static_cast<double>(x);
  EXPECT_EQ(kernels.sum_in_order(view(in)), expected);
}

TEST_P(EveryIsa, ScansFindTheSmallestNumberOfATensorThatIsNotFinite) {
  for (const std::size_t at : {1999U, 1024U, 513U, 512U, 511U, 33U, 0U}) {
    std::vector<float> in = values(2000, 3, 3e38F);
    in[5] = std::numeric_limits<float>::denorm_min();
    in[6] = std::numeric_limits<float>::max();
    const auto first = [&] {
      kernels.begin_scan();
      for (const Index tensor : {7, 3, 5}) kernels.scan(view(in).part(tensor * 64, 2000 - tensor * 64), tensor);
      return kernels.end_scan().first_not_finite;
    };
    EXPECT_EQ(first(), ScanResult::kNone);
    in[at] = at % 3 == 0 ? kNan : at % 3 == 1 ? kInfinity : -kInfinity;
    EXPECT_EQ(first(), at >= 3 * 64 ? 3 : ScanResult::kNone);
    EXPECT_EQ(scanned(kernels, view(in)).first_not_finite, 0);
    EXPECT_EQ(scanned(kernels, view(in).part(0, 0)).first_not_finite, ScanResult::kNone);
  }
}

TEST_P(EveryIsa, DigestsAddUpOverAnySplit) {
  const std::vector<float> in = values(300, 8);
  Digest whole, by_hand;
  kernels.digest(whole, view(in), 17, 5000);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const ElementHash hash = element_hash(tensor_key(17), 5000 + i, bits_of(in[i]));
    by_hand.add({.low = hash.low, .high = hash.high});
  }
  EXPECT_EQ(to_hex(whole), to_hex(by_hand));
  for (Index cut = 0; cut <= 300; cut += 37) {
    Digest parts;
    kernels.digest(parts, view(in).part(cut, 300 - cut), 17, 5000 + cut);
    kernels.digest(parts, view(in).part(0, cut), 17, 5000);
    EXPECT_EQ(to_hex(parts), to_hex(whole)) << cut;
  }
}

TEST_P(EveryIsa, DigestsSeeTensorPlaceAndEveryBit) {
  std::vector<float> in = values(100, 8);
  const auto digest_of = [&](Index tensor, Index first) {
    Digest digest;
    kernels.digest(digest, view(in), tensor, first);
    return to_hex(digest);
  };
  const std::string base = digest_of(1, 0);
  EXPECT_NE(digest_of(2, 0), base);
  EXPECT_NE(digest_of(1, 1), base);
  std::swap(in[3], in[4]);
  EXPECT_NE(digest_of(1, 0), base);
  std::swap(in[3], in[4]);
  in[99] = float_of(bits_of(in[99]) ^ 1U);
  EXPECT_NE(digest_of(1, 0), base);
  in.assign(100, 0.0F);
  const std::string zeros = digest_of(1, 0);
  in[42] = -0.0F;
  EXPECT_NE(digest_of(1, 0), zeros);
}

TEST_P(EveryIsa, AdamWIsTheFormulaElementByElement) {
  AdamWStep step{.learning_rate = 1e-3F,
                 .beta1 = 0.9F,
                 .beta2 = 0.95F,
                 .epsilon = 1e-8F,
                 .weight_decay = 0.1F,
                 .bias_correction1 = 0.19F,
                 .bias_correction2 = 0.0975F,
                 .clip_factor = 0.7F};
  for (const Index n : kSizes) {
    std::vector<float> p = values(n, 1), m = values(n, 2, 0.1F), v = values(n, 3, 0.01F);
    const std::vector<float> g = values(n, 4);
    for (float& x : v) x = std::abs(x);
    std::vector<double> ep, em, ev;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const auto d = [](float x) { return static_cast<double>(x); };
      const double grad = d(g[i]) * d(step.clip_factor);
      em.push_back(d(step.beta1) * d(m[i]) + (1 - d(step.beta1)) * grad);
      ev.push_back(d(step.beta2) * d(v[i]) + (1 - d(step.beta2)) * grad * grad);
      ep.push_back(d(p[i]) -
                   d(step.learning_rate) * (em[i] / d(step.bias_correction1) /
                                                (std::sqrt(ev[i] / d(step.bias_correction2)) + d(step.epsilon)) +
                                            d(step.weight_decay) * d(p[i])));
    }
    kernels.adamw(view(p), view(m), view(v), view(g), {}, step);
    for (std::size_t i = 0; i < p.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(p[i]), ep[i], 2e-7);
      EXPECT_NEAR(static_cast<double>(m[i]), em[i], 2e-8);
      EXPECT_NEAR(static_cast<double>(v[i]), ev[i], 2e-8);
    }
  }
}

TEST_P(EveryIsa, AdamWLeavesZerosAtZeroAndDecaysWithoutAGradient) {
  const AdamWStep step{.learning_rate = 0.5F,
                       .beta1 = 0.9F,
                       .beta2 = 0.999F,
                       .epsilon = 1e-8F,
                       .weight_decay = 0.25F,
                       .bias_correction1 = 0.1F,
                       .bias_correction2 = 0.001F};
  std::vector<float> p(40, 0.0F), m(40, 0.0F), v(40, 0.0F);
  const std::vector<float> g(40, 0.0F);
  p[39] = 2.0F;
  kernels.adamw(view(p), view(m), view(v), view(g), {}, step);
  EXPECT_EQ(p[39], 1.75F);
  p[39] = 0.0F;
  EXPECT_EQ(bits(p), bits(g)) << "padding stays zero";
  EXPECT_EQ(bits(m), bits(g));
  EXPECT_EQ(bits(v), bits(g));
}

TEST_P(EveryIsa, AdamWHidesNoNan) {
  std::vector<float> p(33, 1.0F), m(33, 0.0F), v(33, 0.0F), g(33, 1.0F);
  g[7] = kNan;
  g[32] = kInfinity;
  kernels.adamw(view(p), view(m), view(v), view(g), {}, {.learning_rate = 0.1F, .beta1 = 0.9F, .beta2 = 0.9F});
  EXPECT_EQ(first_not_finite(view(p)), 7);
  EXPECT_FALSE(std::isfinite(m[32]));
  EXPECT_FALSE(std::isfinite(v[32]));
}

TEST_P(EveryIsa, RefusesViewsThatDoNotFit) {
  std::vector<float> four(4), five(5);
  const std::vector<ConstArray> terms = {view(four), view(five)};
  EXPECT_THROW(kernels.copy(view(four), view(five)), std::logic_error);
  EXPECT_THROW(kernels.tree_sum(view(four), terms), std::logic_error);
  EXPECT_THROW(kernels.tree_sum(view(four), {}), std::logic_error);
  EXPECT_THROW(kernels.add_bias(view(five), view(four), 2, 3), std::logic_error);
  EXPECT_THROW(kernels.gelu_backward(view(four), view(five)), std::logic_error);
  const std::int32_t token = 4;
  EXPECT_THROW(kernels.embedding_forward(view(five), &token, view(four), view(four), 1, 1, 1), std::logic_error);
  const std::int32_t negative = -1;
  EXPECT_THROW(kernels.token_table_backward(view(four), 0, &negative, view(four), 1, 1), std::logic_error);
  for (const double rate : {-0.1, 1.0, static_cast<double>(kNan)}) {
    EXPECT_THROW(kernels.dropout(view(four), view(four), rate, 1, 2, 0), std::logic_error) << rate;
  }
  std::vector<Bf16> half(4);
  EXPECT_THROW(kernels.gelu_backward(view(four), view(half)), std::logic_error);
  EXPECT_THROW(kernels.adamw(view(four), view(four), view(four), view(half), view(four), {}), std::logic_error);
  const std::vector<ConstArray> integers = {{&token, 1, Dtype::int32}};
  EXPECT_THROW(kernels.tree_sum(view(four).part(0, 1), integers), std::logic_error);
}

}  // namespace
}  // namespace zero
