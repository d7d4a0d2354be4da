#pragma once
/// \file
/// The kernels of the CPU backend: checks, and loops chosen for the processor.

#include "common/device/cpu/kernel_table.h"
#include "common/device/cpu_isa.h"
#include "common/device/kernels.h"

namespace zero {

/// The loops compiled for `isa`, which must be available().
KernelTables kernel_tables(CpuIsa isa);

/// Kernels on one thread of the CPU. A view that is too short or of the wrong type, and a token or target outside its
/// table, are mistakes of the caller: std::logic_error.
class CpuKernels final : public Kernels {
 public:
  explicit CpuKernels(CpuIsa isa) : tables_(kernel_tables(isa)) {}

  void copy(Array out, ConstArray in) override;
  void fill(Array out, float value) override;
  void fill_normal(Array out, std::uint64_t seed, Index tensor, Index first, float standard_deviation) override;
  void tree_sum(Array out, std::span<const ConstArray> terms) override;
  void merge_sums(Array out, std::span<const ConstArray> terms, float divisor) override;
  void begin_scan() override { found_ = {}; }
  void scan(ConstArray in, Index tensor) override;
  ScanResult end_scan() override { return found_; }
  double sum_in_order(ConstArray in) override;
  void digest(Digest& digest, ConstArray in, Index tensor, Index first) override;
  void adamw(Array parameters, Array momentum, Array variance, ConstArray gradients, Array rounded,
             const AdamWStep& step) override;
  void embedding_forward(Array out, const std::int32_t* tokens, ConstArray token_table, ConstArray position_table,
                         Index B, Index T, Index C) override;
  void layernorm_forward(Array out, Array mean, Array rstd, ConstArray in, ConstArray weight, ConstArray bias,
                         Index rows, Index C) override;
  void add_bias(Array out, ConstArray bias, Index rows, Index columns) override;
  void add_bias_residual(Array out, ConstArray in, ConstArray bias, ConstArray residual, Index rows,
                         Index columns) override;
  void bias_gelu_forward(Array out, Array pre, ConstArray bias, Index rows, Index columns) override;
  void causal_softmax_forward(Array scores, float scale, Index count, Index T) override;
  void cross_entropy(Array losses, Array logits, const std::int32_t* targets, float gradient_scale, Index rows,
                     Index V) override;
  void layernorm_backward(Array d_in, bool accumulate, Array d_weight, Array d_bias, ConstArray d_out, ConstArray in,
                          ConstArray weight, ConstArray mean, ConstArray rstd, Index rows, Index C) override;
  void bias_backward(Array d_bias, ConstArray d_out, Index rows, Index columns) override;
  void gelu_backward(Array d, ConstArray pre) override;
  void causal_softmax_backward(Array d, ConstArray probabilities, float scale, Index count, Index T) override;
  void token_table_backward(Array rows, Index first_row, const std::int32_t* tokens, ConstArray d, Index R,
                            Index C) override;
  void position_table_backward(Array d_position_table, ConstArray d, Index B, Index T, Index C) override;
  void dropout(Array out, ConstArray in, double rate, std::uint64_t seed, std::uint64_t stream, Index first) override;

 private:
  /// Calls work(table) with the loops for the storage type `dtype`.
  template <class Work>
  void with(Dtype dtype, Work work) const;

  KernelTables tables_;
  ScanResult found_;
};

}  // namespace zero
