#pragma once
/// \file
/// Every kernel on the same data, for comparing what different implementations of Kernels write.

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/device/kernels.h"
#include "tests/device/views.h"

namespace zero::test {

using Outputs = std::vector<std::vector<float>>;

/// Values of all magnitudes, with infinities, NaNs, zeros and subnormals among them.
inline std::vector<float> wild(Index n, std::uint64_t stream) {
  std::vector<float> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = float_of(static_cast<std::uint32_t>(random_bits(1, stream, i)));
  return v;
}

template <class T>
inline constexpr bool kBf16 = false;
template <>
inline constexpr bool kBf16<Bf16> = true;

/// Runs every kernel on rows of `n` elements stored as T and returns all that they wrote, widened. `place(vector)` is
/// the vector's view where the kernels work, and place.finish() brings what they wrote back to the vectors.
template <class T, class Place>
Outputs run_every_kernel(Kernels& kernels, Place& place, Index n) {
  constexpr Index kRows = 3;
  Outputs out;
  for (const bool ordinary : {true, false}) {
    const auto input = [&](Index size, std::uint64_t stream) {
      return stored<T>(ordinary ? values(size, stream, 4.0F) : wild(size, stream));
    };
    const auto keep = [&](const auto&... written) {
      place.finish();
      (out.push_back(widened(written)), ...);
    };
    std::vector<T> a = input(kRows * n, 1), b = input(kRows * n, 2), c = input(kRows * n, 3);
    const std::vector<T> g = input(kRows * n, 4), w = input(n, 5), bias = input(n, 6);
    const std::vector<ConstArray> terms = {place(a), place(b), place(c), place(g), place(a),
                                           place(b), place(c), place(g), place(b)};

    std::vector<T> t(a.size());
    kernels.tree_sum(place(t), terms);
    keep(t);
    kernels.tree_sum(place(t), std::span(terms).first(3));
    keep(t);
    kernels.merge_sums(place(t), std::span(terms).first(3), 7.0F);
    keep(t);
    kernels.fill_normal(place(t), 5, 6, 7, 0.5F);
    keep(t);

    const ScanResult found = scanned(kernels, place(a));
    out.push_back(
        {static_cast<float>(found.squares.value()), found.first_not_finite == ScanResult::kNone ? -1.0F : 0.0F});
    Digest digest;
    kernels.digest(digest, place(a), 3, 1);
    out.emplace_back();
    for (const std::uint64_t half : {digest.low, digest.high}) {
      for (int part = 0; part < 4; ++part) out.back().push_back(static_cast<float>(half >> (16 * part) & 0xFFFFU));
    }

    std::vector<float> p = widened(a), m = widened(b), v = widened(c);
    std::vector<Bf16> rounded(kBf16<T> ? p.size() : 0);
    if (ordinary) {
      for (float& x : v) x = std::abs(x);
    }
    kernels.adamw(place(p), place(m), place(v), place(g), place(rounded),
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
      kernels.dropout(place(t), place(a), 0.3, 1, 2, 3);
      keep(t);
      std::vector<float> sum(a.size());
      const std::vector<ConstArray> mixed = {place(p), place(b), place(m), place(g), place(p)};
      kernels.tree_sum(place(sum), mixed);
      keep(sum);
      kernels.merge_sums(place(t), mixed, 3.0F);
      keep(t);
      kernels.copy(place(sum), place(a));
      kernels.copy(place(t), place(p));
      keep(sum, t);
    }

    std::vector<T> pre = a;
    kernels.bias_gelu_forward(place(t), place(pre), place(bias), kRows, n);
    keep(t, pre);
    std::vector<T> d = g;
    kernels.gelu_backward(place(d), place(pre));
    keep(d);
    kernels.add_bias(place(d), place(bias), kRows, n);
    keep(d);
    kernels.add_bias_residual(place(t), place(a), place(bias), place(b), kRows, n);
    keep(t);

    std::vector<float> mean(kRows), rstd(kRows);
    std::vector<T> dw(w.size()), db(w.size());
    kernels.layernorm_forward(place(t), place(mean), place(rstd), place(a), place(w), place(bias), kRows, n);
    keep(t, mean, rstd);
    d = c;
    kernels.layernorm_backward(place(d), true, place(dw), place(db), place(g), place(a), place(w), place(mean),
                               place(rstd), kRows, n);
    keep(d, dw, db);
    kernels.bias_backward(place(db), place(g), kRows, n);
    keep(db);

    std::vector<float> losses(kRows);
    std::vector<T> logits = a;
    const std::vector<std::int32_t> targets(kRows, static_cast<std::int32_t>(n / 2));
    kernels.cross_entropy(place(losses), place(logits), place.indices(targets), 0.01F, kRows, n);
    keep(losses, logits);

    std::vector<T> scores = input(2 * n * n, 7), d_scores = input(2 * n * n, 8);
    kernels.causal_softmax_forward(place(scores), 0.3F, 2, n);
    kernels.causal_softmax_backward(place(d_scores), place(scores), 0.3F, 2, n);
    keep(scores, d_scores);

    const std::vector<std::int32_t> tokens = {2, 0, 2};
    std::vector<float> d_table = widened(a);
    std::vector<T> d_positions(w.size());
    kernels.embedding_forward(place(t), place.indices(tokens), place(a), place(b), 1, kRows, n);
    keep(t);
    kernels.token_table_backward(place(d_table), 0, place.indices(tokens), place(g), kRows, n);
    kernels.position_table_backward(place(d_positions), place(g), kRows, 1, n);
    keep(d_table, d_positions);
  }
  return out;
}

/// What a kernel does to the range [begin, begin + n) of three arrays in place.
using InPlace = std::function<void(Kernels&, Array, Array, Array, Index begin)>;

template <class T>
std::vector<std::pair<std::string, InPlace>> in_place_kernels() {
  return {
      {"adamw",
       [](Kernels& k, Array p, Array m, Array v, Index) {
         if (kBf16<T>) return;
         k.adamw(p, m, v, p, {},
                 {.learning_rate = 0.1F, .beta1 = 0.9F, .beta2 = 0.9F, .epsilon = 1e-8F, .weight_decay = 0.1F});
       }},
      {"tree_sum",
       [](Kernels& k, Array a, Array b, Array c, Index) {
         const std::vector<ConstArray> terms = {a, b, c, a, b};
         k.tree_sum(a, terms);
       }},
      {"merge_sums",
       [](Kernels& k, Array a, Array b, Array c, Index) {
         const std::vector<ConstArray> terms = {a, b, c};
         k.merge_sums(b, terms, 3.0F);
       }},
      {"gelu_backward", [](Kernels& k, Array a, Array b, Array, Index) { k.gelu_backward(a, b); }},
      {"bias_gelu_forward",
       [](Kernels& k, Array a, Array b, Array c, Index) { k.bias_gelu_forward(a, b, c, 1, a.size); }},
      {"add_bias_residual",
       [](Kernels& k, Array a, Array b, Array c, Index) { k.add_bias_residual(a, b, c, b, 1, a.size); }},
      {"dropout", [](Kernels& k, Array a, Array b, Array, Index begin) { k.dropout(a, b, 0.4, 8, 9, begin); }},
      {"fill_normal", [](Kernels& k, Array a, Array, Array, Index begin) { k.fill_normal(a, 1, 2, begin, 0.02F); }},
  };
}

/// Views of vectors where they are.
struct OnHost {
  template <class Vector>
  auto operator()(Vector& v) {
    return view(v);
  }
  static const std::int32_t* indices(const std::vector<std::int32_t>& v) { return v.data(); }
  void finish() {}
};

/// A digest of the bits of all outputs.
inline std::string digest_of(Kernels& kernels, const Outputs& outputs) {
  Digest digest;
  Index tensor = 0;
  for (const std::vector<float>& output : outputs) {
    std::vector<float> canonical = output;
    for (float& x : canonical) x = float_of(bits(x));
    kernels.digest(digest, view(canonical), tensor++, 0);
  }
  return to_hex(digest);
}

/// What digest_of() gives for rows of kDigestedRow elements with every correct implementation: the bits themselves, so
/// that an implementation, compiler, optimisation level or processor cannot agree with itself only.
constexpr Index kDigestedRow = 257;
template <class T>
inline constexpr const char* kDigest = "9292fbde01c586432f7cd16eeca727bc";
template <>
inline constexpr const char* kDigest<Bf16> = "0f6351b713bf8a2a6cac477f7b83ddb3";

}  // namespace zero::test
