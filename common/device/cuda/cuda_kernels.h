#pragma once
/// \file
/// The kernels of the CUDA backend: checks and launches.

#include "common/base/order_free_digits.h"
#include "common/device/cuda/queues.h"
#include "common/device/kernels.h"
#include "common/device/scalar_math.h"

namespace zero {

/// Kernels on a GPU, with the bits that CpuKernels gives. Views, tokens and targets are in device memory. A call queues
/// its work on the present stream and returns; those that return or add to a number on the host (end_scan(),
/// sum_in_order(), digest()) wait for that stream, and for no other.
///
/// A view that is too short or of the wrong type is a mistake of the caller: std::logic_error. So is a token or target
/// outside its table, which is found on the device: no memory outside a table is touched, what depends on it is NaN
/// (in token_table_backward(): is left out), and the next call that waits, or check_indices(), throws.
class CudaKernels final : public Kernels {
 public:
  /// Bytes of device memory that these kernels bring their results to the host through.
  static Index scratch_bytes() { return sizeof(Results); }
  /// The most terms of tree_sum() and merge_sums(), whose addresses travel with the launch; more are a mistake.
  static constexpr int kMostTerms = 256;

  /// `scratch`: device memory of scratch_bytes() bytes, aligned to 8. It and the streams must outlive these kernels.
  CudaKernels(cuda::PresentStream stream, void* scratch);

  /// Waits for all that was queued on the present stream. Throws std::logic_error when a kernel met a token or target
  /// outside its table.
  void check_indices();

  void copy(Array out, ConstArray in) override;
  void fill(Array out, float value) override;
  void fill_normal(Array out, std::uint64_t seed, Index tensor, Index first, float standard_deviation) override;
  void tree_sum(Array out, std::span<const ConstArray> terms) override;
  void merge_sums(Array out, std::span<const ConstArray> terms, float divisor) override;
  void begin_scan() override;
  void scan(ConstArray in, Index tensor) override;
  ScanResult end_scan() override;
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
  /// What kernels leave for the host.
  struct Results {
    OrderFreeDigits squares;
    HashSum hashes;
    std::uint64_t first_not_finite;  ///< number of a tensor; all bits set: none
    double sum;
    std::uint32_t bad_index;  ///< not 0 once a token or target was outside its table
  };

  /// Queues the filling of a result with equal bytes.
  void set_bytes(void* result, int byte, std::size_t bytes);
  /// The results, when all that was queued is done. Throws std::logic_error as check_indices() does.
  Results results();

  cuda::PresentStream stream_;
  Results* device_;  ///< in device memory
};

}  // namespace zero
