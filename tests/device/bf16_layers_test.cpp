// Layers on bf16: each is the fp32 kernel on the widened inputs, rounded once, to the bit, and close to plain double
// precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/device/cpu_kernels.h"
#include "tests/device/views.h"

namespace zero {
namespace {

using test::bits;
using test::first_not_finite;
using test::stored;
using test::values;
using test::view;
using test::widened;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Index kRows = 5;
// Beyond a block of columns (1024) too.
constexpr Index kWidths[] = {1, 7, 16, 33, 61, 257, 1030, 5000};

double d(float x) { return static_cast<double>(x); }
std::size_t z(Index i) { return static_cast<std::size_t>(i); }

std::vector<Bf16> bf16_values(Index n, std::uint64_t stream, float scale = 1) {
  return stored<Bf16>(values(n, stream, scale));
}

class Bf16Layers : public testing::TestWithParam<CpuIsa> {
 protected:
  CpuKernels kernels{GetParam()};

  // Expects `got` to be `wide` rounded.
  static void expect_rounded(const std::vector<Bf16>& got, const std::vector<float>& wide, Index n) {
    ASSERT_EQ(bits(got), bits(stored<Bf16>(wide))) << "size " << n;
  }
};
INSTANTIATE_TEST_SUITE_P(CpuLayers, Bf16Layers, testing::ValuesIn(test::isas()), [](const auto& isa) {
  return std::string(isa.param == CpuIsa::generic ? "generic" : isa.param == CpuIsa::avx2 ? "avx2" : "avx512");
});

TEST_P(Bf16Layers, LayernormIsTheFp32KernelRoundedOnce) {
  for (const Index C : kWidths) {
    const std::vector<Bf16> in = bf16_values(kRows * C, 1, 3), weight = bf16_values(C, 2), bias = bf16_values(C, 3),
                            d_out = bf16_values(kRows * C, 4), before = bf16_values(kRows * C, 5);
    const std::vector<float> w_in = widened(in), w_weight = widened(weight), w_bias = widened(bias),
                             w_d_out = widened(d_out);
    std::vector<float> mean(z(kRows)), rstd(z(kRows)), w_mean(z(kRows)), w_rstd(z(kRows)), w_out(in.size());
    std::vector<Bf16> out(in.size());
    kernels.layernorm_forward(view(out), view(mean), view(rstd), view(in), view(weight), view(bias), kRows, C);
    kernels.layernorm_forward(view(w_out), view(w_mean), view(w_rstd), view(w_in), view(w_weight), view(w_bias), kRows,
                              C);
    EXPECT_EQ(bits(mean), bits(w_mean));
    EXPECT_EQ(bits(rstd), bits(w_rstd));
    expect_rounded(out, w_out, C);
    for (const bool accumulate : {false, true}) {
      std::vector<Bf16> d_in = before, d_weight(z(C)), d_bias(z(C));
      std::vector<float> w_d_in = widened(before), w_d_weight(z(C)), w_d_bias(z(C));
      kernels.layernorm_backward(view(d_in), accumulate, view(d_weight), view(d_bias), view(d_out), view(in),
                                 view(weight), view(mean), view(rstd), kRows, C);
      kernels.layernorm_backward(view(w_d_in), accumulate, view(w_d_weight), view(w_d_bias), view(w_d_out), view(w_in),
                                 view(w_weight), view(mean), view(rstd), kRows, C);
      expect_rounded(d_in, w_d_in, C);
      expect_rounded(d_weight, w_d_weight, C);
      expect_rounded(d_bias, w_d_bias, C);
    }
  }
}

TEST_P(Bf16Layers, SoftmaxAndCrossEntropyAreTheFp32KernelsRoundedOnce) {
  for (const Index T : {1, 7, 16, 33, 61, 257}) {
    std::vector<Bf16> scores = bf16_values(2 * T * T, 1, 20), gradient = bf16_values(2 * T * T, 2);
    for (Index i = 0; i < 2 * T * T; ++i) {
      if (i % T > i / T % T) scores[z(i)] = gradient[z(i)] = from_float<Bf16>(kNan);  // the future: not read
    }
    std::vector<float> w_scores = widened(scores);
    kernels.causal_softmax_forward(view(scores), 0.25F, 2, T);
    kernels.causal_softmax_forward(view(w_scores), 0.25F, 2, T);
    expect_rounded(scores, w_scores, T);
    std::vector<float> w_gradient = widened(gradient), w_stored = widened(scores);
    kernels.causal_softmax_backward(view(gradient), view(scores), 0.25F, 2, T);
    kernels.causal_softmax_backward(view(w_gradient), view(w_stored), 0.25F, 2, T);
    expect_rounded(gradient, w_gradient, T);
  }
  for (const Index V : {1, 7, 257, 4095, 4096, 4097, 9000}) {
    std::vector<Bf16> logits = bf16_values(kRows * V, 1, 10);
    std::vector<float> w_logits = widened(logits), losses(z(kRows)), w_losses(z(kRows));
    std::vector<std::int32_t> targets;
    for (Index r = 0; r < kRows; ++r) targets.push_back(static_cast<std::int32_t>((r * 7919 + V - 1) % V));
    kernels.cross_entropy(view(losses), view(logits), targets.data(), 0.125F, kRows, V);
    kernels.cross_entropy(view(w_losses), view(w_logits), targets.data(), 0.125F, kRows, V);
    EXPECT_EQ(bits(losses), bits(w_losses));
    expect_rounded(logits, w_logits, V);
  }
}

TEST_P(Bf16Layers, EmbeddingRoundsOnceAndAddsTheTokensOfItsRowsInFp32) {
  for (const Index C : kWidths) {
    constexpr Index B = 2, T = 3, V = 4;
    const std::vector<std::int32_t> tokens = {3, 0, 3, 1, 3, 0};
    const std::vector<Bf16> table = bf16_values(V * C, 1), positions = bf16_values(T * C, 2),
                            gradient = bf16_values(B * T * C, 4);
    const std::vector<float> w_table = widened(table), w_positions = widened(positions), w_gradient = widened(gradient),
                             head = values(V * C, 3);
    std::vector<Bf16> out(gradient.size()), d_positions(z(T * C));
    std::vector<float> w_out(gradient.size()), w_d_positions(z(T * C)), d_table = head, w_d_table = head;
    kernels.embedding_forward(view(out), tokens.data(), view(table), view(positions), B, T, C);
    kernels.embedding_forward(view(w_out), tokens.data(), view(w_table), view(w_positions), B, T, C);
    expect_rounded(out, w_out, C);
    kernels.position_table_backward(view(d_positions), view(gradient), B, T, C);
    kernels.position_table_backward(view(w_d_positions), view(w_gradient), B, T, C);
    expect_rounded(d_positions, w_d_positions, C);
    for (Index first = 0; first < V; ++first) {
      kernels.token_table_backward(view(d_table).part(first * C, C), first, tokens.data(), view(gradient), B * T, C);
    }
    kernels.token_table_backward(view(w_d_table), 0, tokens.data(), view(w_gradient), B * T, C);
    EXPECT_EQ(bits(d_table), bits(w_d_table));
  }
}

// Half a step of bf16 relative, and what fp32 adds.
void expect_near(const std::vector<Bf16>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(d(to_float(got[i])), expected[i], 0x1p-8 * std::abs(expected[i]) + 1e-5) << "element " << i;
  }
}

TEST_P(Bf16Layers, LayersAreCloseToDoublePrecision) {
  constexpr Index C = 200;
  const std::vector<Bf16> in = bf16_values(kRows * C, 1, 3), weight = bf16_values(C, 2), bias = bf16_values(C, 3);
  std::vector<float> mean(z(kRows)), rstd(z(kRows)), losses(z(kRows));
  std::vector<Bf16> out(in.size()), softmax(in.begin(), in.begin() + 9 * 9), logits = in;
  const std::vector<std::int32_t> targets(z(kRows), 17);
  kernels.layernorm_forward(view(out), view(mean), view(rstd), view(in), view(weight), view(bias), kRows, C);
  kernels.causal_softmax_forward(view(softmax), 0.5F, 1, 9);
  kernels.cross_entropy(view(losses), view(logits), targets.data(), 0.25F, kRows, C);
  std::vector<double> e_out, e_softmax, e_logits;
  for (Index r = 0; r < kRows; ++r) {
    const auto x = [&](Index c) { return d(to_float(in[z(r * C + c)])); };
    double m = 0, v = 0, sum = 0;
    for (Index c = 0; c < C; ++c) m += x(c) / C;
    for (Index c = 0; c < C; ++c) v += (x(c) - m) * (x(c) - m) / C;
    for (Index c = 0; c < C; ++c) sum += std::exp(x(c));
    for (Index c = 0; c < C; ++c) {
      e_out.push_back((x(c) - m) / std::sqrt(v + 1e-5) * d(to_float(weight[z(c)])) + d(to_float(bias[z(c)])));
      e_logits.push_back((std::exp(x(c)) / sum - (c == 17 ? 1 : 0)) * 0.25);
    }
    EXPECT_NEAR(d(losses[z(r)]), std::log(sum) - x(17), 1e-5) << "fp32, from the stored logits";
  }
  for (Index t = 0; t < 9; ++t) {
    double sum = 0;
    for (Index s = 0; s <= t; ++s) sum += std::exp(0.5 * d(to_float(in[z(t * 9 + s)])));
    for (Index s = 0; s < 9; ++s) e_softmax.push_back(s <= t ? std::exp(0.5 * d(to_float(in[z(t * 9 + s)]))) / sum : 0);
  }
  expect_near(out, e_out);
  expect_near(softmax, e_softmax);
  expect_near(logits, e_logits);
}

TEST_P(Bf16Layers, NothingThatIsNotFiniteIsHidden) {
  constexpr Index kSize = 37;
  for (const Bf16 bad : {Bf16{0x7FC0}, Bf16{0x7F81}, Bf16{0x7F80}, Bf16{0xFF80}}) {  // NaNs and infinities
    for (Index at = 0; at < kSize; ++at) {
      const std::vector<Bf16> weight = bf16_values(kSize, 2), bias = bf16_values(kSize, 3);
      std::vector<Bf16> row = bf16_values(kSize, 1), out(z(kSize)), scores(z(kSize * kSize), from_float<Bf16>(0.5F));
      std::vector<float> one(1), two(1);
      row[z(at)] = bad;
      const std::int32_t target = 20;
      std::vector<Bf16> logits = row;
      kernels.cross_entropy(view(one), view(logits), &target, 1.0F, 1, kSize);
      EXPECT_FALSE(std::isfinite(one[0])) << bad.bits << " at " << at;
      EXPECT_GE(first_not_finite(view(logits)), 0) << bad.bits << " at " << at;
      std::copy(row.begin(), row.end(), scores.end() - kSize);
      kernels.causal_softmax_forward(view(scores), 0.5F, 1, kSize);
      EXPECT_GE(first_not_finite(view(scores).part(kSize * (kSize - 1), kSize)), 0) << bad.bits << " at " << at;
      kernels.layernorm_forward(view(out), view(one), view(two), view(row), view(weight), view(bias), 1, kSize);
      EXPECT_GE(first_not_finite(view(out)), 0) << bad.bits << " at " << at;
      std::vector<Bf16> pre = row, back = bf16_values(kSize, 4);
      kernels.bias_gelu_forward(view(out), view(pre), view(bias), 1, kSize);
      EXPECT_EQ(first_not_finite(view(out)), at) << bad.bits;
      kernels.gelu_backward(view(back), view(row));
      EXPECT_EQ(first_not_finite(view(back)), at) << bad.bits;
    }
  }
}

}  // namespace
}  // namespace zero
