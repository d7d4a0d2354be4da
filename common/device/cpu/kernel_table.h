#pragma once
/// \file
/// The loops of the CPU backend as a table of functions over raw pointers, one table per instruction set. What each
/// does is said in kernels.h. Included by code that is compiled once per instruction set, so: only headers like this
/// one.

#include <cstddef>
#include <cstdint>

#include "common/device/scalar_math.h"

namespace zero {

/// The loops for one instruction set.
struct KernelTable {
  void (*fill)(float* out, float value, std::size_t n);
  void (*fill_normal)(float* out, std::uint64_t seed, std::uint64_t tensor, std::uint64_t first,
                      float standard_deviation, std::size_t n);
  void (*tree_sum)(float* out, const float* const* terms, std::size_t terms_count, std::size_t n);
  void (*merge_sums)(float* out, const float* const* terms, std::size_t terms_count, float divisor, std::size_t n);
  /// sums[b] = the sum of squares, in rising order, of the b-th block of 32 of the n elements; the last may be short.
  void (*block_squares)(double* sums, const float* in, std::size_t n);
  /// n when all are finite.
  std::size_t (*first_non_finite)(const float* in, std::size_t n);
  /// Adds to *low and *high (one number modulo 2^128) the hashes of all elements.
  void (*digest)(std::uint64_t* low, std::uint64_t* high, const float* in, std::uint64_t tensor, std::uint64_t first,
                 std::size_t n);
  void (*adamw)(float* parameters, float* momentum, float* variance, const float* gradients, std::size_t n,
                const AdamWScalars& scalars);
  void (*gelu_backward)(float* d, const float* pre, std::size_t n);

  void (*add)(float* out, const float* a, const float* b, std::size_t n);
  void (*accumulate)(float* out, const float* in, std::size_t n);  ///< out += in
  void (*add_bias)(float* out, const float* bias, std::size_t rows, std::size_t columns);
  void (*add_bias_residual)(float* out, const float* in, const float* bias, const float* residual, std::size_t rows,
                            std::size_t columns);
  void (*bias_gelu_forward)(float* out, float* pre, const float* bias, std::size_t rows, std::size_t columns);
  void (*bias_backward)(float* d_bias, const float* d_out, std::size_t rows, std::size_t columns);

  void (*layernorm_forward)(float* out, float* mean, float* rstd, const float* in, const float* weight,
                            const float* bias, std::size_t rows, std::size_t columns);
  void (*layernorm_backward)(float* d_in, bool accumulate, float* d_weight, float* d_bias, const float* d_out,
                             const float* in, const float* weight, const float* mean, const float* rstd,
                             std::size_t rows, std::size_t columns);
  void (*causal_softmax_forward)(float* scores, float scale, std::size_t count, std::size_t context);
  void (*causal_softmax_backward)(float* d, const float* probabilities, float scale, std::size_t count,
                                  std::size_t context);
  void (*cross_entropy)(float* losses, float* logits, const std::int32_t* targets, float gradient_scale,
                        std::size_t rows, std::size_t vocabulary);
};

// Each file of loops fills in its part of the table, under a name that carries the instruction set.
void add_elementwise_kernels_generic(KernelTable& table);
void add_elementwise_kernels_avx2(KernelTable& table);
void add_elementwise_kernels_avx512(KernelTable& table);
void add_row_kernels_generic(KernelTable& table);
void add_row_kernels_avx2(KernelTable& table);
void add_row_kernels_avx512(KernelTable& table);

}  // namespace zero
