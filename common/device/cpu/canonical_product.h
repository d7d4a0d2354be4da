#pragma once
/// \file
/// The loops of canonical products, compiled once for each instruction set (see cmake/cpu_kernels.cmake).

#include <cstdint>

namespace zero {

/// out[i * ld_out + j] = the chain of fma over p of a(i, p) * b(p, j), as Products::multiply() says, in fp32.
/// a(i, p) is a[i * ld_a + p], or a[p * ld_a + i] when transposed; b likewise.
struct CanonicalProduct {
  void* out;
  bool out_is_bf16;
  std::int64_t ld_out;
  const void* a;
  std::int64_t ld_a;
  bool a_transposed;
  const void* b;
  std::int64_t ld_b;
  bool b_transposed;
  bool operands_are_bf16;
  std::int64_t m, n, k;  ///< k > 0
  float* workspace;      ///< kCanonicalWorkspace elements, aligned to 64 bytes, of the calling thread alone
};

/// The panels that a product packs: of b kCanonicalDepth x kCanonicalColumns, and of an a that is transposed or bf16
/// kCanonicalRows x kCanonicalDepth. Columns are a multiple of every instruction set's block of outputs; the sizes
/// decide only speed.
constexpr std::int64_t kCanonicalDepth = 384, kCanonicalColumns = 384, kCanonicalRows = 32;

/// Rows of outputs, kCanonicalColumns wide, whose chains stand in fp32 until they are complete, when `out` is bf16.
constexpr std::int64_t kCanonicalChainRows = 512;

/// Elements of workspace of one thread: 356,352 (1392 KiB).
constexpr std::int64_t kCanonicalWorkspace =
    (kCanonicalColumns + kCanonicalRows) * kCanonicalDepth + kCanonicalChainRows * kCanonicalColumns;

void canonical_product_generic(const CanonicalProduct& product);
void canonical_product_avx2(const CanonicalProduct& product);
void canonical_product_avx512(const CanonicalProduct& product);

}  // namespace zero
