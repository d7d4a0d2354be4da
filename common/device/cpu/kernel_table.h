#pragma once
/// \file
/// The loops of the CPU backend as tables of functions over raw pointers, one for each storage type T (float, Bf16) and
/// instruction set. What each does is said in kernels.h. Included by code that is compiled once per instruction set,
/// so: only headers like this one.

#include <cstddef>
#include <cstdint>

#include "common/device/scalar_math.h"

namespace zero {

/// One term of a sum: elements of either storage type.
struct Term {
  const void* data;
  bool bf16;
};

/// The loops for one storage type and instruction set.
template <class T>
struct KernelTable {
  void (*widen)(float* out, const T* in, std::size_t n);
  void (*round)(T* out, const float* in, std::size_t n);
  void (*fill)(T* out, float value, std::size_t n);
  void (*fill_normal)(T* out, std::uint64_t seed, std::uint64_t tensor, std::uint64_t first, float standard_deviation,
                      std::size_t n);
  /// At least one term. `out` may be one of them.
  void (*tree_sum)(T* out, const Term* terms, std::size_t terms_count, std::size_t n);
  void (*merge_sums)(T* out, const Term* terms, std::size_t terms_count, float divisor, std::size_t n);
  /// sums[b] = the sum of squares, in rising order, of the b-th block of 32 of the n elements; the last may be short.
  void (*block_squares)(double* sums, const T* in, std::size_t n);
  /// Adds to *low and *high (one number modulo 2^128) the hashes of all elements.
  void (*digest)(std::uint64_t* low, std::uint64_t* high, const T* in, std::uint64_t tensor, std::uint64_t first,
                 std::size_t n);
  /// `rounded` may be null.
  void (*adamw)(float* parameters, float* momentum, float* variance, const T* gradients, T* rounded, std::size_t n,
                const AdamWScalars& scalars);
  void (*dropout)(T* out, const T* in, const DropoutScalars& scalars, std::uint64_t seed, std::uint64_t stream,
                  std::uint64_t first, std::size_t n);

  void (*add)(T* out, const T* a, const T* b, std::size_t n);
  void (*accumulate)(float* out, const T* in, std::size_t n);  ///< out += in
  void (*add_bias)(T* out, const T* bias, std::size_t rows, std::size_t columns);
  void (*add_bias_residual)(T* out, const T* in, const T* bias, const T* residual, std::size_t rows,
                            std::size_t columns);
  void (*bias_gelu_forward)(T* out, T* pre, const T* bias, std::size_t rows, std::size_t columns);
  void (*gelu_backward)(T* d, const T* pre, std::size_t n);
  /// out(c) = the sum of in(r, c) over rows in rising order.
  void (*column_sums)(T* out, const T* in, std::size_t rows, std::size_t columns);

  void (*layernorm_forward)(T* out, float* mean, float* rstd, const T* in, const T* weight, const T* bias,
                            std::size_t rows, std::size_t columns);
  void (*layernorm_backward)(T* d_in, bool accumulate, T* d_weight, T* d_bias, const T* d_out, const T* in,
                             const T* weight, const float* mean, const float* rstd, std::size_t rows,
                             std::size_t columns);
  void (*causal_softmax_forward)(T* scores, float scale, std::size_t count, std::size_t context);
  void (*causal_softmax_backward)(T* d, const T* probabilities, float scale, std::size_t count, std::size_t context);
  void (*cross_entropy)(float* losses, T* logits, const std::int32_t* targets, float gradient_scale, std::size_t rows,
                        std::size_t vocabulary);
};

/// The tables of one instruction set.
struct KernelTables {
  KernelTable<float> fp32;
  KernelTable<Bf16> bf16;
};

// Each file of loops fills in its part of both tables, under a name that carries the instruction set.
void add_elementwise_kernels_generic(KernelTables& tables);
void add_elementwise_kernels_avx2(KernelTables& tables);
void add_elementwise_kernels_avx512(KernelTables& tables);
void add_row_kernels_generic(KernelTables& tables);
void add_row_kernels_avx2(KernelTables& tables);
void add_row_kernels_avx512(KernelTables& tables);
void add_sum_kernels_generic(KernelTables& tables);
void add_sum_kernels_avx2(KernelTables& tables);
void add_sum_kernels_avx512(KernelTables& tables);

}  // namespace zero
