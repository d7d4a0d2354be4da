#pragma once
/// \file
/// The loops of canonical products, compiled once for each instruction set (see cmake/cpu_kernels.cmake).

#include <cstdint>

namespace zero {

/// out[i * ld_out + j] = the chain of fma over p of a(i, p) * b(p, j), as Products::multiply() says, in fp32.
/// a(i, p) is a[i * ld_a + p], or a[p * ld_a + i] when transposed; b likewise.
struct CanonicalProduct {
  float* out;
  std::int64_t ld_out;
  const float* a;
  std::int64_t ld_a;
  bool a_transposed;
  const float* b;
  std::int64_t ld_b;
  bool b_transposed;
  std::int64_t m, n, k;  ///< k > 0
  float* workspace;      ///< kCanonicalWorkspace elements, aligned to 64 bytes, of the calling thread alone
};

/// The panels that a product packs: of b kCanonicalDepth x kCanonicalColumns, and of a transposed a kCanonicalRows x
/// kCanonicalDepth. Columns are a multiple of every instruction set's block of outputs; the sizes decide only speed.
constexpr std::int64_t kCanonicalDepth = 384, kCanonicalColumns = 384, kCanonicalRows = 32;

/// Elements of workspace of one thread: 159,744 (624 KiB).
constexpr std::int64_t kCanonicalWorkspace = (kCanonicalColumns + kCanonicalRows) * kCanonicalDepth;

void canonical_product_generic(const CanonicalProduct& product);
void canonical_product_avx2(const CanonicalProduct& product);
void canonical_product_avx512(const CanonicalProduct& product);

}  // namespace zero
