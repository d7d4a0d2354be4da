// The layers' loops against plain double precision.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "common/device/cpu_kernels.h"
#include "tests/device/views.h"

namespace zero {
namespace {

using test::bits;
using test::first_not_finite;
using test::values;
using test::view;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double d(float x) { return static_cast<double>(x); }
std::size_t z(Index i) { return static_cast<std::size_t>(i); }

void expect_near(const std::vector<float>& got, const std::vector<double>& expected, double tolerance, Index n) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(d(got[i]), expected[i], tolerance * std::max(1.0, std::abs(expected[i])))
        << "element " << i << ", size " << n;
  }
}

class EveryLayer : public testing::TestWithParam<CpuIsa> {
 protected:
  CpuKernels kernels{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(CpuLayers, EveryLayer, testing::ValuesIn(test::isas()), [](const auto& isa) {
  return std::string(isa.param == CpuIsa::generic ? "generic" : isa.param == CpuIsa::avx2 ? "avx2" : "avx512");
});

constexpr Index kWidths[] = {1, 7, 11, 16, 31, 33, 61, 257};
constexpr Index kRows = 5;

TEST_P(EveryLayer, EmbeddingAddsTokenAndPositionRows) {
  for (const Index C : kWidths) {
    constexpr Index B = 2, T = 3, V = 4;
    const std::vector<std::int32_t> tokens = {3, 0, 3, 1, 3, 0};
    const std::vector<float> table = values(V * C, 1), positions = values(T * C, 2);
    std::vector<float> out(z(B * T * C));
    kernels.embedding_forward(view(out), tokens.data(), view(table), view(positions), B, T, C);
    for (Index r = 0; r < B * T; ++r) {
      for (Index c = 0; c < C; ++c) {
        EXPECT_EQ(out[z(r * C + c)], table[z(tokens[z(r)] * C + c)] + positions[z(r % T * C + c)]);
      }
    }
    const std::vector<float> head = values(V * C, 3), gradient = values(B * T * C, 4);
    std::vector<float> d_table = head, d_positions(z(T * C), kNan), expected_table = head, expected_positions(z(T * C));
    for (Index r = 0; r < B * T; ++r) {
      for (Index c = 0; c < C; ++c) {
        expected_table[z(tokens[z(r)] * C + c)] += gradient[z(r * C + c)];
        float& at = expected_positions[z(r % T * C + c)];
        at = r < T ? gradient[z(r * C + c)] : at + gradient[z(r * C + c)];
      }
    }
    kernels.token_table_backward(view(d_table), 0, tokens.data(), view(gradient), B * T, C);
    kernels.position_table_backward(view(d_positions), view(gradient), B, T, C);
    EXPECT_EQ(bits(d_table), bits(expected_table));
    EXPECT_EQ(bits(d_positions), bits(expected_positions));
    std::vector<float> blocks = head;  // the table's rows in two blocks, with one row between them left as it was
    for (const auto& [first, rows] : {std::pair<Index, Index>{0, 2}, {3, 1}}) {
      kernels.token_table_backward(view(blocks).part(first * C, rows * C), first, tokens.data(), view(gradient), B * T,
                                   C);
    }
    EXPECT_EQ(bits(blocks), bits(expected_table));
  }
}

TEST_P(EveryLayer, BiasKernelsAreTheirFormulasToTheBit) {
  for (const Index C : kWidths) {
    const std::vector<float> in = values(kRows * C, 1), bias = values(C, 2), residual = values(kRows * C, 3);
    std::vector<float> out = in, sum(in.size()), column(z(C)), expected_column(z(C));
    kernels.add_bias(view(out), view(bias), kRows, C);
    kernels.add_bias_residual(view(sum), view(in), view(bias), view(residual), kRows, C);
    kernels.bias_backward(view(column), view(in), kRows, C);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t c = i % z(C);
      EXPECT_EQ(bits(out[i]), bits(in[i] + bias[c]));
      EXPECT_EQ(bits(sum[i]), bits(residual[i] + (in[i] + bias[c])));
      expected_column[c] = i < z(C) ? in[i] : expected_column[c] + in[i];
    }
    EXPECT_EQ(bits(column), bits(expected_column));
    std::vector<float> in_place = in;
    kernels.add_bias_residual(view(in_place), view(in_place), view(bias), view(residual), kRows, C);
    EXPECT_EQ(bits(in_place), bits(sum));
  }
}

TEST_P(EveryLayer, GeluKernelsAreTheScalarFunctionsToTheBit) {
  for (const Index C : kWidths) {
    const std::vector<float> bias = values(C, 2), in = values(kRows * C, 1, 6.0F), gradient = values(kRows * C, 3);
    std::vector<float> pre = in, out(in.size()), back = gradient;
    kernels.bias_gelu_forward(view(out), view(pre), view(bias), kRows, C);
    kernels.gelu_backward(view(back), view(pre));
    for (std::size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(bits(pre[i]), bits(in[i] + bias[i % z(C)]));
      EXPECT_EQ(bits(out[i]), bits(gelu(pre[i])));
      EXPECT_EQ(bits(back[i]), bits(gradient[i] * gelu_derivative(pre[i])));
    }
  }
}

struct Layernorm {
  std::vector<double> out, mean, rstd;
};

Layernorm reference_layernorm(const std::vector<float>& in, const std::vector<float>& weight,
                              const std::vector<float>& bias, Index C) {
  Layernorm result;
  for (std::size_t begin = 0; begin < in.size(); begin += z(C)) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < z(C); ++c) mean += d(in[begin + c]) / static_cast<double>(C);
    for (std::size_t c = 0; c < z(C); ++c) variance += std::pow(d(in[begin + c]) - mean, 2) / static_cast<double>(C);
    result.mean.push_back(mean);
    result.rstd.push_back(1 / std::sqrt(variance + 1e-5));
    for (std::size_t c = 0; c < z(C); ++c) {
      result.out.push_back((d(in[begin + c]) - mean) * result.rstd.back() * d(weight[c]) + d(bias[c]));
    }
  }
  return result;
}

TEST_P(EveryLayer, LayernormForwardNormalises) {
  for (const Index C : kWidths) {
    const std::vector<float> in = values(kRows * C, 1, 3.0F), weight = values(C, 2), bias = values(C, 3);
    std::vector<float> out(in.size()), mean(z(kRows)), rstd(z(kRows));
    kernels.layernorm_forward(view(out), view(mean), view(rstd), view(in), view(weight), view(bias), kRows, C);
    const Layernorm expected = reference_layernorm(in, weight, bias, C);
    expect_near(mean, expected.mean, 1e-6, C);
    expect_near(rstd, expected.rstd, 1e-5, C);
    expect_near(out, expected.out, 1e-5, C);
  }
}

TEST_P(EveryLayer, LayernormBackwardIsTheDerivative) {
  for (const Index C : kWidths) {
    if (C == 1) continue;  // there the derivative is zero and what is left is rounding
    const std::vector<float> in = values(kRows * C, 1, 3.0F), weight = values(C, 2), bias = values(C, 3),
                             d_out = values(kRows * C, 4), before = values(kRows * C, 5);
    std::vector<float> out(in.size()), mean(z(kRows)), rstd(z(kRows)), d_in(in.size(), kNan), d_weight(z(C), kNan),
        d_bias(z(C), kNan), added = before;
    kernels.layernorm_forward(view(out), view(mean), view(rstd), view(in), view(weight), view(bias), kRows, C);
    kernels.layernorm_backward(view(d_in), false, view(d_weight), view(d_bias), view(d_out), view(in), view(weight),
                               view(mean), view(rstd), kRows, C);
    const Layernorm at = reference_layernorm(in, weight, bias, C);
    std::vector<double> e_in, e_weight(z(C), 0), e_bias(z(C), 0);
    for (Index r = 0; r < kRows; ++r) {
      double mean_g = 0, mean_gn = 0;
      const auto n = [&](Index c) { return (d(in[z(r * C + c)]) - at.mean[z(r)]) * at.rstd[z(r)]; };
      for (Index c = 0; c < C; ++c) {
        const double dy = d(d_out[z(r * C + c)]);
        e_weight[z(c)] += dy * n(c);
        e_bias[z(c)] += dy;
        mean_g += dy * d(weight[z(c)]) / static_cast<double>(C);
        mean_gn += dy * d(weight[z(c)]) * n(c) / static_cast<double>(C);
      }
      for (Index c = 0; c < C; ++c) {
        e_in.push_back(at.rstd[z(r)] * (d(d_out[z(r * C + c)]) * d(weight[z(c)]) - mean_g - n(c) * mean_gn));
      }
    }
    expect_near(d_in, e_in, 1e-5, C);
    expect_near(d_weight, e_weight, 1e-5, C);
    expect_near(d_bias, e_bias, 1e-6, C);
    std::vector<float> again_weight(z(C)), again_bias(z(C));
    kernels.layernorm_backward(view(added), true, view(again_weight), view(again_bias), view(d_out), view(in),
                               view(weight), view(mean), view(rstd), kRows, C);
    for (std::size_t i = 0; i < added.size(); ++i) EXPECT_EQ(bits(added[i]), bits(before[i] + d_in[i]));
    EXPECT_EQ(bits(again_weight), bits(d_weight));
  }
}

TEST_P(EveryLayer, CausalSoftmaxIsASoftmaxOverThePast) {
  for (const Index T : {1, 7, 16, 31, 33, 61}) {
    constexpr Index kCount = 2;
    constexpr float kScale = 0.25F;
    const std::vector<float> scores = values(kCount * T * T, 1, 20.0F), gradient = values(kCount * T * T, 2);
    std::vector<float> p = scores, back = gradient;
    for (Index i = 0; i < kCount * T * T; ++i) {
      if (i % T > i / T % T) p[z(i)] = back[z(i)] = kNan;  // the future: not read
    }
    kernels.causal_softmax_forward(view(p), kScale, kCount, T);
    kernels.causal_softmax_backward(view(back), view(p), kScale, kCount, T);
    std::vector<double> e_p(p.size(), 0), e_back(p.size(), 0);
    for (Index row = 0; row < kCount * T; ++row) {
      const Index t = row % T;
      double sum = 0, dot = 0;
      for (Index s = 0; s <= t; ++s) sum += std::exp(0.25 * d(scores[z(row * T + s)]));
      for (Index s = 0; s <= t; ++s) {
        e_p[z(row * T + s)] = std::exp(0.25 * d(scores[z(row * T + s)])) / sum;
        dot += e_p[z(row * T + s)] * d(gradient[z(row * T + s)]);
      }
      for (Index s = 0; s <= t; ++s) {
        e_back[z(row * T + s)] = 0.25 * e_p[z(row * T + s)] * (d(gradient[z(row * T + s)]) - dot);
      }
    }
    expect_near(p, e_p, 1e-6, T);
    expect_near(back, e_back, 1e-6, T);
  }
}

TEST_P(EveryLayer, CrossEntropyGivesLossAndGradient) {
  for (const Index V : kWidths) {
    const std::vector<float> logits = values(kRows * V, 1, 10.0F);
    std::vector<std::int32_t> targets;
    for (Index r = 0; r < kRows; ++r) targets.push_back(static_cast<std::int32_t>(r * 7 % V));
    std::vector<float> losses(z(kRows)), gradient = logits;
    kernels.cross_entropy(view(losses), view(gradient), targets.data(), 0.125F, kRows, V);
    std::vector<double> e_losses, e_gradient;
    for (Index r = 0; r < kRows; ++r) {
      double sum = 0;
      for (Index v = 0; v < V; ++v) sum += std::exp(d(logits[z(r * V + v)]));
      e_losses.push_back(std::log(sum) - d(logits[z(r * V + targets[z(r)])]));
      for (Index v = 0; v < V; ++v) {
        e_gradient.push_back((std::exp(d(logits[z(r * V + v)])) / sum - (v == targets[z(r)] ? 1 : 0)) * 0.125);
      }
    }
    expect_near(losses, e_losses, 2e-6, V);
    expect_near(gradient, e_gradient, 1e-6, V);
  }
}

TEST_P(EveryLayer, LargeFiniteRowsStayFinite) {
  std::vector<float> logits = {3e38F, -3e38F, 0.0F}, losses(1);
  const std::int32_t target = 0;
  kernels.cross_entropy(view(losses), view(logits), &target, 1.0F, 1, 3);
  EXPECT_EQ(losses[0], 0.0F);
  EXPECT_EQ(logits, (std::vector<float>{0.0F, 0.0F, 0.0F}));
  std::vector<float> scores = {1e30F, 0.0F, -1e30F, 1e30F};
  kernels.causal_softmax_forward(view(scores), 1.0F, 1, 2);
  EXPECT_EQ(scores, (std::vector<float>{1.0F, 0.0F, 0.0F, 1.0F}));
}

// Every kernel with one bad element anywhere in one of its inputs must show something that is not finite.
TEST_P(EveryLayer, NothingThatIsNotFiniteIsHidden) {
  constexpr Index kSize = 37;
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (Index at = 0; at < kSize; ++at) {
      std::vector<float> row = values(kSize, 1), weight = values(kSize, 2), bias = values(kSize, 3), one(1), two(1);
      const std::int32_t target = 20;
      row[z(at)] = bad;

      std::vector<float> logits = row;
      kernels.cross_entropy(view(one), view(logits), &target, 1.0F, 1, kSize);
      EXPECT_FALSE(std::isfinite(one[0])) << bad << " at " << at;
      EXPECT_GE(first_not_finite(view(logits)), 0) << bad << " at " << at;

      std::vector<float> scores(z(kSize * kSize), 0.5F);
      std::copy(row.begin(), row.end(), scores.end() - kSize);
      kernels.causal_softmax_forward(view(scores), 0.5F, 1, kSize);
      EXPECT_GE(first_not_finite(view(scores).part(kSize * (kSize - 1), kSize)), 0) << bad << " at " << at;
      EXPECT_EQ(first_not_finite(view(scores).part(0, kSize * (kSize - 1))), -1) << "other rows are untouched";

      std::vector<float> out(z(kSize));
      kernels.layernorm_forward(view(out), view(one), view(two), view(row), view(weight), view(bias), 1, kSize);
      EXPECT_GE(first_not_finite(view(out)), 0) << bad << " at " << at;

      std::vector<float> pre = row;
      kernels.bias_gelu_forward(view(out), view(pre), view(bias), 1, kSize);
      EXPECT_EQ(first_not_finite(view(out)), at) << bad;
      std::vector<float> back = values(kSize, 4);
      kernels.gelu_backward(view(back), view(row));
      EXPECT_EQ(first_not_finite(view(back)), at) << bad;
    }
  }
}

}  // namespace
}  // namespace zero
