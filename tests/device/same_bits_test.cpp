// An element has the same bits whatever the vector code and wherever a view begins or ends.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "common/device/cpu_kernels.h"
#include "tests/device/views.h"

namespace zero {
namespace {

using test::bits;
using test::values;
using test::view;

using Outputs = std::vector<std::vector<float>>;

/// Values of all magnitudes, with infinities, NaNs, zeros and subnormals among them.
std::vector<float> wild(Index n, std::uint64_t stream) {
  std::vector<float> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = float_of(static_cast<std::uint32_t>(random_bits(1, stream, i)));
  return v;
}

/// Runs every kernel on rows of `n` elements and returns all that they wrote.
Outputs run_all(CpuIsa isa, Index n) {
  CpuKernels kernels(isa);
  constexpr Index kRows = 3;
  Outputs out;
  for (const bool ordinary : {true, false}) {
    const auto input = [&](Index size, std::uint64_t stream) {
      return ordinary ? values(size, stream, 4.0F) : wild(size, stream);
    };
    std::vector<float> a = input(kRows * n, 1), b = input(kRows * n, 2), c = input(kRows * n, 3);
    const std::vector<float> g = input(kRows * n, 4), w = input(n, 5), bias = input(n, 6);
    const std::vector<ConstArray> terms = {view(a), view(b), view(c), view(g), view(a),
                                           view(b), view(c), view(g), view(b)};

    std::vector<float> t(a.size());
    kernels.tree_sum(view(t), terms);
    out.push_back(t);
    kernels.tree_sum(view(t), std::span(terms).first(3));
    out.push_back(t);
    kernels.merge_sums(view(t), std::span(terms).first(3), 7.0F);
    out.push_back(t);
    kernels.fill_normal(view(t), 5, 6, 7, 0.5F);
    out.push_back(t);

    OrderFreeSum squares;
    kernels.sum_of_squares(squares, view(a));
    out.push_back({static_cast<float>(squares.value()), static_cast<float>(kernels.first_non_finite(view(a)))});
    Digest digest;
    kernels.digest(digest, view(a), 3, 1);
    out.emplace_back();
    for (const std::uint64_t half : {digest.low, digest.high}) {
      for (int part = 0; part < 4; ++part) out.back().push_back(static_cast<float>(half >> (16 * part) & 0xFFFFU));
    }

    std::vector<float> p = a, m = b, v = c;
    if (ordinary) {
      for (float& x : v) x = std::abs(x);
    }
    kernels.adamw(view(p), view(m), view(v), view(g),
                  {.learning_rate = 1e-2F,
                   .beta1 = 0.9F,
                   .beta2 = 0.95F,
                   .epsilon = 1e-8F,
                   .weight_decay = 0.1F,
                   .bias_correction1 = 0.19F,
                   .bias_correction2 = 0.0975F,
                   .clip_factor = 0.3F});
    out.insert(out.end(), {p, m, v});

    std::vector<float> pre = a;
    kernels.bias_gelu_forward(view(t), view(pre), view(bias), kRows, n);
    out.insert(out.end(), {t, pre});
    std::vector<float> d = g;
    kernels.gelu_backward(view(d), view(pre));
    out.push_back(d);
    kernels.add_bias(view(d), view(bias), kRows, n);
    out.push_back(d);
    kernels.add_bias_residual(view(t), view(a), view(bias), view(b), kRows, n);
    out.push_back(t);

    std::vector<float> mean(kRows), rstd(kRows), dw(w.size()), db(w.size());
    kernels.layernorm_forward(view(t), view(mean), view(rstd), view(a), view(w), view(bias), kRows, n);
    out.insert(out.end(), {t, mean, rstd});
    d = c;
    kernels.layernorm_backward(view(d), true, view(dw), view(db), view(g), view(a), view(w), view(mean), view(rstd),
                               kRows, n);
    out.insert(out.end(), {d, dw, db});
    kernels.bias_backward(view(db), view(g), kRows, n);
    out.push_back(db);

    std::vector<float> losses(kRows), logits = a;
    const std::vector<std::int32_t> targets(kRows, static_cast<std::int32_t>(n / 2));
    kernels.cross_entropy(view(losses), view(logits), targets.data(), 0.01F, kRows, n);
    out.insert(out.end(), {losses, logits});

    std::vector<float> scores = input(2 * n * n, 7), d_scores = input(2 * n * n, 8);
    kernels.causal_softmax_forward(view(scores), 0.3F, 2, n);
    kernels.causal_softmax_backward(view(d_scores), view(scores), 0.3F, 2, n);
    out.insert(out.end(), {scores, d_scores});

    const std::vector<std::int32_t> tokens = {2, 0, 2};
    std::vector<float> d_table = a, d_positions(w.size());
    kernels.embedding_forward(view(t), tokens.data(), view(a), view(b), 1, kRows, n);
    out.push_back(t);
    kernels.embedding_backward(view(d_table), view(d_positions), tokens.data(), view(g), kRows, 1, n);
    out.insert(out.end(), {d_table, d_positions});
  }
  return out;
}

TEST(SameBits, WithEveryInstructionSet) {
  for (const Index n : {1, 2, 7, 15, 16, 17, 31, 33, 61, 64, 130, 257}) {
    const Outputs expected = run_all(CpuIsa::generic, n);
    for (const CpuIsa isa : test::isas()) {
      const Outputs got = run_all(isa, n);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(bits(got[i]), bits(expected[i])) << name(isa) << ", rows of " << n << ", output " << i;
      }
    }
  }
}

/// What a kernel does to the range [begin, begin + n) of three arrays in place.
using InPlace = std::function<void(CpuKernels&, Array, Array, Array, Index begin)>;

TEST(SameBits, WhereverAViewBeginsOrEnds) {
  const std::vector<std::pair<std::string, InPlace>> kernels_by_name = {
      {"adamw",
       [](CpuKernels& k, Array p, Array m, Array v, Index) {
         k.adamw(p, m, v, p,
                 {.learning_rate = 0.1F, .beta1 = 0.9F, .beta2 = 0.9F, .epsilon = 1e-8F, .weight_decay = 0.1F});
       }},
      {"tree_sum",
       [](CpuKernels& k, Array a, Array b, Array c, Index) {
         const std::vector<ConstArray> terms = {a, b, c, a, b};
         k.tree_sum(a, terms);
       }},
      {"merge_sums",
       [](CpuKernels& k, Array a, Array b, Array c, Index) {
         const std::vector<ConstArray> terms = {a, b, c};
         k.merge_sums(b, terms, 3.0F);
       }},
      {"gelu_backward", [](CpuKernels& k, Array a, Array b, Array, Index) { k.gelu_backward(a, b); }},
      {"bias_gelu_forward",
       [](CpuKernels& k, Array a, Array b, Array c, Index) { k.bias_gelu_forward(a, b, c, 1, a.size); }},
      {"add_bias_residual",
       [](CpuKernels& k, Array a, Array b, Array c, Index) { k.add_bias_residual(a, b, c, b, 1, a.size); }},
      {"fill_normal", [](CpuKernels& k, Array a, Array, Array, Index begin) { k.fill_normal(a, 1, 2, begin, 0.02F); }},
  };
  constexpr Index kSize = 150;
  for (const CpuIsa isa : test::isas()) {
    CpuKernels kernels(isa);
    for (const auto& [kernel_name, kernel] : kernels_by_name) {
      Outputs whole = {values(kSize, 1, 3.0F), values(kSize, 2, 3.0F), values(kSize, 3, 3.0F)};
      for (float& x : whole[2]) x = std::abs(x);
      const Outputs before = whole;
      kernel(kernels, view(whole[0]), view(whole[1]), view(whole[2]), 0);
      for (Index cut = 0; cut <= kSize; ++cut) {
        Outputs parts = before;
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

// The bits themselves, so that another compiler, optimisation level or processor cannot agree with itself only.
TEST(SameBits, AsEveryOtherBuildOfThisSource) {
  CpuKernels kernels(CpuIsa::generic);
  Digest digest;
  Index tensor = 0;
  for (const std::vector<float>& output : run_all(cpu_isa(), 257)) {
    std::vector<float> canonical = output;
    for (float& x : canonical) x = float_of(bits(x));
    kernels.digest(digest, view(canonical), tensor++, 0);
  }
  EXPECT_EQ(to_hex(digest), "155646c59149259c6a318fdf7d5bcd4f");
}

}  // namespace
}  // namespace zero
