// Kernels on bf16: each is the fp32 kernel on the widened inputs, rounded once, to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "common/device/cpu_kernels.h"
#include "tests/device/views.h"

namespace zero {
namespace {

using test::bits;
using test::first_not_finite;
using test::scanned;
using test::stored;
using test::values;
using test::view;
using test::widened;

constexpr Index kRows = 5;
// Beyond a block of columns (1024) too.
constexpr Index kWidths[] = {1, 7, 16, 33, 61, 257, 1030, 5000};

std::size_t z(Index i) { return static_cast<std::size_t>(i); }

std::vector<Bf16> bf16_values(Index n, std::uint64_t stream, float scale = 1) {
  return stored<Bf16>(values(n, stream, scale));
}

class Bf16Kernels : public testing::TestWithParam<CpuIsa> {
 protected:
  CpuKernels kernels{GetParam()};

  // Expects `got` to be `wide` rounded.
  static void expect_rounded(const std::vector<Bf16>& got, const std::vector<float>& wide, Index n) {
    ASSERT_EQ(bits(got), bits(stored<Bf16>(wide))) << "size " << n;
  }
};
INSTANTIATE_TEST_SUITE_P(CpuKernels, Bf16Kernels, testing::ValuesIn(test::isas()), [](const auto& isa) {
  return std::string(isa.param == CpuIsa::generic ? "generic" : isa.param == CpuIsa::avx2 ? "avx2" : "avx512");
});

TEST_P(Bf16Kernels, CopiesRoundAndWidenEveryElementAndNoOther) {
  for (const Index n : kWidths) {
    const std::vector<float> in = values(n, 1);
    std::vector<Bf16> half(z(n) + 2, Bf16{0x4040});
    kernels.copy(view(half).part(1, n), view(in));
    EXPECT_EQ(bits(std::vector<Bf16>(half.begin() + 1, half.end() - 1)), bits(stored<Bf16>(in)));
    EXPECT_EQ(half.front().bits, 0x4040);
    EXPECT_EQ(half.back().bits, 0x4040);
    std::vector<float> wide(in.size());
    kernels.copy(view(wide), view(half).part(1, n));
    EXPECT_EQ(bits(wide), bits(widened(stored<Bf16>(in))));
    std::vector<Bf16> again(in.size());
    kernels.copy(view(again), view(half).part(1, n));
    EXPECT_EQ(bits(again), bits(stored<Bf16>(in)));
    kernels.fill(view(again), 1.005F);
    expect_rounded(again, std::vector<float>(in.size(), 1.005F), n);
    kernels.fill_normal(view(wide), 3, 4, 5, 0.02F);
    kernels.fill_normal(view(again), 3, 4, 5, 0.02F);
    expect_rounded(again, wide, n);
  }
}

TEST_P(Bf16Kernels, SumsOfAnyMixOfTypesAreFp32SumsRoundedOnce) {
  for (std::size_t n = 1; n <= 20; ++n) {
    for (const int mix : {0, 1, 2, 3}) {  // all bf16; every second, or the last, fp32; all fp32
      for (const Index size : {1, 33, 1100}) {
        std::vector<std::vector<float>> wide;
        std::vector<std::vector<Bf16>> half;
        std::vector<ConstArray> terms, wide_terms;
        wide.reserve(n);
        half.reserve(n);
        for (std::size_t t = 0; t < n; ++t) {
          const bool fp32 = mix == 3 || (mix == 1 && t % 2 == 1) || (mix == 2 && t == n - 1);
          half.push_back(bf16_values(size, 10 + t, 1.0F + static_cast<float>(t)));
          wide.push_back(fp32 ? values(size, 10 + t) : widened(half.back()));
          wide_terms.push_back(view(std::as_const(wide.back())));
          terms.push_back(fp32 ? wide_terms.back() : view(std::as_const(half.back())));
        }
        std::vector<float> expected(z(size)), sum(z(size));
        std::vector<Bf16> rounded(z(size));
        kernels.tree_sum(view(expected), wide_terms);
        kernels.tree_sum(view(sum), terms);
        EXPECT_EQ(bits(sum), bits(expected));
        kernels.tree_sum(view(rounded), terms);
        expect_rounded(rounded, expected, size);
        kernels.merge_sums(view(expected), wide_terms, 3.0F);
        kernels.merge_sums(view(sum), terms, 3.0F);
        EXPECT_EQ(bits(sum), bits(expected));
        kernels.merge_sums(view(rounded), terms, 3.0F);
        expect_rounded(rounded, expected, size);
        kernels.tree_sum(view(sum), terms);
        if (terms[0].dtype == Dtype::bf16) {  // in place
          kernels.tree_sum(view(half[0]), terms);
          expect_rounded(half[0], sum, size);
        }
      }
    }
  }
}

TEST_P(Bf16Kernels, SquaresSumsChecksAndDigestsSeeTheStoredValues) {
  for (const Index n : kWidths) {
    std::vector<Bf16> in = bf16_values(n, 3, 100);
    const std::vector<float> wide = widened(in);
    OrderFreeSum squares, expected_squares;
    squares.add(scanned(kernels, view(in)).squares);
    expected_squares.add(scanned(kernels, view(wide)).squares);
    EXPECT_EQ(squares.value(), expected_squares.value());
    EXPECT_EQ(kernels.sum_in_order(view(in)), kernels.sum_in_order(view(wide)));
    Digest digest, expected_digest;
    kernels.digest(digest, view(in), 3, 100);
    kernels.digest(expected_digest, view(wide), 3, 100);
    EXPECT_EQ(digest, expected_digest);
    EXPECT_EQ(first_not_finite(view(in)), -1);
    in[z(n - 1)] = Bf16{0x7F80};
    EXPECT_EQ(first_not_finite(view(in)), n - 1);
    in[z(n / 2)] = Bf16{0xFFC1};
    EXPECT_EQ(first_not_finite(view(in)), n / 2);
  }
}

TEST_P(Bf16Kernels, AdamWUpdatesTheMasterWeightsAndRoundsThemWhateverTheSplit) {
  const AdamWStep step{.learning_rate = 1e-3F,
                       .beta1 = 0.9F,
                       .beta2 = 0.95F,
                       .epsilon = 1e-8F,
                       .weight_decay = 0.1F,
                       .bias_correction1 = 0.19F,
                       .bias_correction2 = 0.0975F,
                       .clip_factor = 0.7F};
  for (const Index n : {1, 33, 257}) {
    const std::vector<Bf16> g = bf16_values(n, 4);
    const std::vector<float> wide = widened(g), p0 = values(n, 1), m0 = values(n, 2, 0.1F);
    std::vector<float> v0 = values(n, 3, 0.01F);
    for (float& x : v0) x = std::abs(x);
    std::vector<float> ep = p0, em = m0, ev = v0;
    kernels.adamw(view(ep), view(em), view(ev), view(wide), {}, step);
    for (Index cut = 0; cut <= n; cut += 7) {
      std::vector<float> p = p0, m = m0, v = v0;
      std::vector<Bf16> rounded(z(n));
      for (const auto& [begin, size] : {std::pair<Index, Index>{0, cut}, {cut, n - cut}}) {
        kernels.adamw(view(p).part(begin, size), view(m).part(begin, size), view(v).part(begin, size),
                      view(g).part(begin, size), view(rounded).part(begin, size), step);
      }
      ASSERT_EQ(bits(p), bits(ep));
      ASSERT_EQ(bits(m), bits(em));
      ASSERT_EQ(bits(v), bits(ev));
      expect_rounded(rounded, ep, n);
    }
  }
}

TEST_P(Bf16Kernels, BiasAndGeluAreTheFp32KernelsRoundedOnce) {
  for (const Index C : kWidths) {
    const std::vector<Bf16> in = bf16_values(kRows * C, 1, 4), bias = bf16_values(C, 2),
                            other = bf16_values(kRows * C, 3);
    const std::vector<float> w_in = widened(in), w_bias = widened(bias), w_other = widened(other);
    std::vector<Bf16> out = in, columns(z(C));
    std::vector<float> w_out = w_in, w_columns(z(C));
    kernels.add_bias(view(out), view(bias), kRows, C);
    kernels.add_bias(view(w_out), view(w_bias), kRows, C);
    expect_rounded(out, w_out, C);
    kernels.add_bias_residual(view(out), view(in), view(bias), view(other), kRows, C);
    kernels.add_bias_residual(view(w_out), view(w_in), view(w_bias), view(w_other), kRows, C);
    expect_rounded(out, w_out, C);
    kernels.bias_backward(view(columns), view(in), kRows, C);
    kernels.bias_backward(view(w_columns), view(w_in), kRows, C);
    expect_rounded(columns, w_columns, C);

    std::vector<Bf16> pre = in, back = other;
    kernels.bias_gelu_forward(view(out), view(pre), view(bias), kRows, C);
    std::vector<float> sum = w_in;
    kernels.add_bias(view(sum), view(w_bias), kRows, C);
    expect_rounded(pre, sum, C);
    std::vector<float> w_pre = widened(pre), w_back = w_other;  // gelu of what was stored
    const std::vector<float> zeros(z(C), 0.0F);
    kernels.bias_gelu_forward(view(w_out), view(w_pre), view(zeros), kRows, C);
    expect_rounded(out, w_out, C);
    kernels.gelu_backward(view(back), view(pre));
    kernels.gelu_backward(view(w_back), view(w_pre));
    expect_rounded(back, w_back, C);
  }
}

}  // namespace
}  // namespace zero
