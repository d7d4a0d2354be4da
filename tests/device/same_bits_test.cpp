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
using test::stored;
using test::values;
using test::view;
using test::widened;

using Outputs = std::vector<std::vector<float>>;

/// Values of all magnitudes, with infinities, NaNs, zeros and subnormals among them.
std::vector<float> wild(Index n, std::uint64_t stream) {
  std::vector<float> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = float_of(static_cast<std::uint32_t>(random_bits(1, stream, i)));
  return v;
}

template <class T>
constexpr bool kBf16 = false;
template <>
constexpr bool kBf16<Bf16> = true;

/// Runs every kernel on rows of `n` elements stored as T and returns all that they wrote, widened.
template <class T>
Outputs run_all(CpuIsa isa, Index n) {
  CpuKernels kernels(isa);
  constexpr Index kRows = 3;
  Outputs out;
  for (const bool ordinary : {true, false}) {
    const auto input = [&](Index size, std::uint64_t stream) {
      return stored<T>(ordinary ? values(size, stream, 4.0F) : wild(size, stream));
    };
    const auto keep = [&](const auto&... written) { (out.push_back(widened(written)), ...); };
    std::vector<T> a = input(kRows * n, 1), b = input(kRows * n, 2), c = input(kRows * n, 3);
    const std::vector<T> g = input(kRows * n, 4), w = input(n, 5), bias = input(n, 6);
    const std::vector<ConstArray> terms = {view(a), view(b), view(c), view(g), view(a),
                                           view(b), view(c), view(g), view(b)};

    std::vector<T> t(a.size());
    kernels.tree_sum(view(t), terms);
    keep(t);
    kernels.tree_sum(view(t), std::span(terms).first(3));
    keep(t);
    kernels.merge_sums(view(t), std::span(terms).first(3), 7.0F);
    keep(t);
    kernels.fill_normal(view(t), 5, 6, 7, 0.5F);
    keep(t);

    OrderFreeSum squares;
    kernels.sum_of_squares(squares, view(a));
    out.push_back({static_cast<float>(squares.value()), static_cast<float>(kernels.first_non_finite(view(a)))});
    Digest digest;
    kernels.digest(digest, view(a), 3, 1);
    out.emplace_back();
    for (const std::uint64_t half : {digest.low, digest.high}) {
      for (int part = 0; part < 4; ++part) out.back().push_back(static_cast<float>(half >> (16 * part) & 0xFFFFU));
    }

    std::vector<float> p = widened(a), m = widened(b), v = widened(c);
    std::vector<Bf16> rounded(kBf16<T> ? p.size() : 0);
    if (ordinary) {
      for (float& x : v) x = std::abs(x);
    }
    kernels.adamw(view(p), view(m), view(v), view(g), view(rounded),
                  {.learning_rate = 1e-2F,
                   .beta1 = 0.9F,
                   .beta2 = 0.95F,
                   .epsilon = 1e-8F,
                   .weight_decay = 0.1F,
                   .bias_correction1 = 0.19F,
                   .bias_correction2 = 0.0975F,
                   .clip_factor = 0.3F});
    keep(p, m, v);
    if (kBf16<T>) {
      keep(rounded);
      kernels.dropout(view(t), view(a), 0.3, 1, 2, 3);
      keep(t);
      std::vector<float> sum(a.size());
      const std::vector<ConstArray> mixed = {view(p), view(b), view(m), view(g), view(p)};
      kernels.tree_sum(view(sum), mixed);
      keep(sum);
      kernels.merge_sums(view(t), mixed, 3.0F);
      keep(t);
      kernels.copy(view(sum), view(a));
      kernels.copy(view(t), view(p));
      keep(sum, t);
    }

    std::vector<T> pre = a;
    kernels.bias_gelu_forward(view(t), view(pre), view(bias), kRows, n);
    keep(t, pre);
    std::vector<T> d = g;
    kernels.gelu_backward(view(d), view(pre));
    keep(d);
    kernels.add_bias(view(d), view(bias), kRows, n);
    keep(d);
    kernels.add_bias_residual(view(t), view(a), view(bias), view(b), kRows, n);
    keep(t);

    std::vector<float> mean(kRows), rstd(kRows);
    std::vector<T> dw(w.size()), db(w.size());
    kernels.layernorm_forward(view(t), view(mean), view(rstd), view(a), view(w), view(bias), kRows, n);
    keep(t, mean, rstd);
    d = c;
    kernels.layernorm_backward(view(d), true, view(dw), view(db), view(g), view(a), view(w), view(mean), view(rstd),
                               kRows, n);
    keep(d, dw, db);
    kernels.bias_backward(view(db), view(g), kRows, n);
    keep(db);

    std::vector<float> losses(kRows);
    std::vector<T> logits = a;
    const std::vector<std::int32_t> targets(kRows, static_cast<std::int32_t>(n / 2));
    kernels.cross_entropy(view(losses), view(logits), targets.data(), 0.01F, kRows, n);
    keep(losses, logits);

    std::vector<T> scores = input(2 * n * n, 7), d_scores = input(2 * n * n, 8);
    kernels.causal_softmax_forward(view(scores), 0.3F, 2, n);
    kernels.causal_softmax_backward(view(d_scores), view(scores), 0.3F, 2, n);
    keep(scores, d_scores);

    const std::vector<std::int32_t> tokens = {2, 0, 2};
    std::vector<float> d_table = widened(a);
    std::vector<T> d_positions(w.size());
    kernels.embedding_forward(view(t), tokens.data(), view(a), view(b), 1, kRows, n);
    keep(t);
    kernels.token_table_backward(view(d_table), 0, tokens.data(), view(g), kRows, n);
    kernels.position_table_backward(view(d_positions), view(g), kRows, 1, n);
    keep(d_table, d_positions);
  }
  return out;
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

/// What a kernel does to the range [begin, begin + n) of three arrays in place.
using InPlace = std::function<void(CpuKernels&, Array, Array, Array, Index begin)>;

template <class T>
void expect_same_bits_wherever_a_view_begins() {
  const std::vector<std::pair<std::string, InPlace>> kernels_by_name = {
      {"adamw",
       [](CpuKernels& k, Array p, Array m, Array v, Index) {
         if (kBf16<T>) return;
         k.adamw(p, m, v, p, {},
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
      {"dropout", [](CpuKernels& k, Array a, Array b, Array, Index begin) { k.dropout(a, b, 0.4, 8, 9, begin); }},
      {"fill_normal", [](CpuKernels& k, Array a, Array, Array, Index begin) { k.fill_normal(a, 1, 2, begin, 0.02F); }},
  };
  constexpr Index kSize = 150;
  for (const CpuIsa isa : test::isas()) {
    CpuKernels kernels(isa);
    for (const auto& [kernel_name, kernel] : kernels_by_name) {
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

std::string digest_of(const Outputs& outputs) {
  CpuKernels kernels(CpuIsa::generic);
  Digest digest;
  Index tensor = 0;
  for (const std::vector<float>& output : outputs) {
    std::vector<float> canonical = output;
    for (float& x : canonical) x = float_of(bits(x));
    kernels.digest(digest, view(canonical), tensor++, 0);
  }
  return to_hex(digest);
}

// The bits themselves, so that another compiler, optimisation level or processor cannot agree with itself only.
TEST(SameBits, AsEveryOtherBuildOfThisSource) {
  EXPECT_EQ(digest_of(run_all<float>(cpu_isa(), 257)), "155646c59149259c6a318fdf7d5bcd4f");
  EXPECT_EQ(digest_of(run_all<Bf16>(cpu_isa(), 257)), "fd15a41da077a0987d08ef277d81e250");
}

}  // namespace
}  // namespace zero
