#pragma once
// Operands of a product in strided storage, and the three loops that a product is compared with.

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/device/products.h"
#include "common/device/scalar_math.h"

namespace zero {

inline constexpr float kUntouched = -12345.0F;

struct Case {
  Case(Index rows, Index columns, Index depth) : m(rows), n(columns), k(depth) {}

  Index m, n, k;
  bool a_transposed = false, b_transposed = false;
  Index gap = 0;  // elements between the rows of all three matrices
  std::vector<float> a, b;

  [[nodiscard]] Index ld_a() const { return (a_transposed ? m : k) + gap; }
  [[nodiscard]] Index ld_b() const { return (b_transposed ? k : n) + gap; }
  [[nodiscard]] Index ld_out() const { return n + gap; }
  [[nodiscard]] float a_at(Index i, Index p) const { return a[at(a_transposed ? p * ld_a() + i : i * ld_a() + p)]; }
  [[nodiscard]] float b_at(Index p, Index j) const { return b[at(b_transposed ? j * ld_b() + p : p * ld_b() + j)]; }

  // Fills the operands with draw(). Their last row ends where the storage ends, so that a read past it is out of it.
  template <typename Draw>
  void fill(Draw draw) {
    a.assign(at(((a_transposed ? k : m) - 1) * ld_a() + (a_transposed ? m : k)), 0);
    b.assign(at(((b_transposed ? n : k) - 1) * ld_b() + (b_transposed ? k : n)), 0);
    for (float& x : a) x = draw();
    for (float& x : b) x = draw();
  }

  // The outputs with the gaps between their rows, which hold kUntouched.
  [[nodiscard]] std::vector<float> multiply(Products& products) const {
    std::vector<float> out(at(m * ld_out()), kUntouched);
    products.multiply({out.data(), m * ld_out()}, ld_out(), {view(a), ld_a(), a_transposed},
                      {view(b), ld_b(), b_transposed}, m, n, k);
    return out;
  }

  // Rounds the operands to bf16 values.
  void round_operands() {
    for (float& x : a) x = to_float(from_float<Bf16>(x));
    for (float& x : b) x = to_float(from_float<Bf16>(x));
  }

  // The same with operands and outputs stored as said; operands in bf16 must have been rounded. Outputs are widened.
  [[nodiscard]] std::vector<float> multiply(Products& products, Dtype operands, Dtype outputs) const {
    const std::vector<Bf16> half_a = halves(a), half_b = halves(b);
    std::vector<float> out(at(m * ld_out()), kUntouched);
    std::vector<Bf16> half_out = halves(out);
    const bool half = operands == Dtype::bf16;
    const Array to = outputs == Dtype::bf16 ? Array{half_out.data(), m * ld_out(), Dtype::bf16}
                                            : Array{out.data(), m * ld_out(), Dtype::fp32};
    products.multiply(to, ld_out(), {half ? view(half_a) : view(a), ld_a(), a_transposed},
                      {half ? view(half_b) : view(b), ld_b(), b_transposed}, m, n, k);
    for (std::size_t i = 0; i < out.size() && outputs == Dtype::bf16; ++i) out[i] = to_float(half_out[i]);
    return out;
  }

  // One chain of fma in rising p for each output: the definition.
  [[nodiscard]] std::vector<float> chains() const {
    std::vector<float> out(at(m * ld_out()), kUntouched);
    for (Index i = 0; i < m; ++i) {
      for (Index j = 0; j < n; ++j) {
        float sum = 0;
        for (Index p = 0; p < k; ++p) sum = std::fma(a_at(i, p), b_at(p, j), sum);
        out[at(i * ld_out() + j)] = sum;
      }
    }
    return out;
  }

  [[nodiscard]] std::string text() const {
    return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + (a_transposed ? " a^T" : "") +
           (b_transposed ? " b^T" : "") + " gap " + std::to_string(gap);
  }

 private:
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  static ConstArray view(const std::vector<float>& v) { return {v.data(), static_cast<Index>(v.size())}; }
  static ConstArray view(const std::vector<Bf16>& v) { return {v.data(), static_cast<Index>(v.size()), Dtype::bf16}; }
  static std::vector<Bf16> halves(const std::vector<float>& v) {
    std::vector<Bf16> result;
    result.reserve(v.size());
    for (const float x : v) result.push_back(from_float<Bf16>(x));
    return result;
  }
};

}  // namespace zero
