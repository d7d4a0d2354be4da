#pragma once
/// \file
/// Everything a device computes besides products. One definition of the scalar arithmetic serves every backend
/// (`scalar_math.h`); a backend supplies loops and launches. An element gets the same bits wherever a view begins and
/// whatever the vector width.
///
/// Storage types: parameters, gradients and activations are all fp32 or all bf16 (called T below); everything else
/// (mean, rstd, losses, master weights, moments, sums) is fp32. A T value is widened when it is read, all arithmetic is
/// fp32, and a result is rounded once, to nearest, ties to even, when it is stored. A NaN stays a NaN.
///
/// Letters: B micro-batch, T context, C width, H heads, V vocabulary, R = B * T rows. Matrices are row-major. Unless a
/// contract says otherwise, outputs must not overlap inputs, except where an output *is* an input (in place).
/// Nothing that is not finite is hidden: a NaN or an infinity (also minus infinity in a softmax) makes NaNs or
/// infinities of what depends on it.

#include <cstdint>
#include <limits>
#include <span>

#include "common/base/digest.h"
#include "common/base/order_free_sum.h"
#include "common/device/array.h"

namespace zero {

/// The scalars of one AdamW update (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), computed once in double and
/// rounded to fp32, the same on all ranks.
struct AdamWStep {
  float learning_rate = 0;
  float beta1 = 0;
  float beta2 = 0;
  float epsilon = 0;
  float weight_decay = 0;      ///< 0 for tensors that do not decay
  float bias_correction1 = 1;  ///< 1 - beta1^t
  float bias_correction2 = 1;  ///< 1 - beta2^t
  float clip_factor = 1;       ///< multiplies the gradient inside the update; never written back
};

/// What a look through a gradient finds.
struct ScanResult {
  static constexpr Index kNone = std::numeric_limits<Index>::max();
  OrderFreeSum squares;
  Index first_not_finite = kNone;  ///< the smallest number of a tensor with an element that is not finite
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // --- moving and filling ------------------------------------------------------------------------------------------
  virtual void copy(Array out, ConstArray in) = 0;  ///< same size; rounds or widens between fp32 and bf16
  virtual void fill(Array out, float value) = 0;
  /// out[i] = standard_deviation * normal(seed, tensor, first + i): the initial weights. `first` is the index in the
  /// unsharded tensor, so a rank makes its slice alone.
  virtual void fill_normal(Array out, std::uint64_t seed, Index tensor, Index first, float standard_deviation) = 0;

  // --- sums of gradients -------------------------------------------------------------------------------------------
  /// out[i] = tree(terms[0][i] ... terms[n-1][i]): split at the largest power of two below n, left + right; in
  /// fp32, rounded once to out's type. Each term is fp32 or bf16. `out` may be one of the terms. n >= 1.
  virtual void tree_sum(Array out, std::span<const ConstArray> terms) = 0;
  /// out[i] = (terms[0][i] + (terms[1][i] + ( ... + terms[n-1][i]))) / divisor, fp32, one true division (none when
  /// divisor is 1): how a binary counter of partial sums is merged, the latest (smallest) partial sum last.
  /// Rounded once to out's type; each term is fp32 or bf16. `out` may be one of the terms. n >= 1.
  virtual void merge_sums(Array out, std::span<const ConstArray> terms, float divisor) = 0;
  /// Begins to look through a gradient; one at a time.
  virtual void begin_scan() = 0;
  /// Looks at elements of a tensor: adds, for each block of 32 of them, the sum of squares of the block in double in
  /// rising order, and notes `tensor` >= 0 if one is not finite. `in` begins at a multiple of 32 of its flat unit; a
  /// last block may be short.
  virtual void scan(ConstArray in, Index tensor) = 0;
  /// What was found since begin_scan().
  virtual ScanResult end_scan() = 0;
  /// The sum of all elements in double, in rising order.
  virtual double sum_in_order(ConstArray in) = 0;
  /// Adds hash(tensor, first + i, bits of in[i] as fp32) for all i to `digest`: equal values have equal digests.
  virtual void digest(Digest& digest, ConstArray in, Index tensor, Index first) = 0;

  // --- optimizer ---------------------------------------------------------------------------------------------------
  /// AdamW with decoupled decay, in place, element by element, in fp32:
  /// \code
  ///   g = gradient * clip_factor
  ///   m = beta1 * m + (1 - beta1) * g        v = beta2 * v + (1 - beta2) * g * g
  ///   p = p - learning_rate * ((m / bias_correction1) / (sqrt(v / bias_correction2) + epsilon) + weight_decay * p)
  /// \endcode
  /// Where fma is used it is written in scalar_math.h. `parameters`, momentum and variance are fp32, gradients of type
  /// T. Where `parameters` are master weights, `rounded` gets them rounded to T; else it is empty (size 0). All other
  /// views have the same size.
  virtual void adamw(Array parameters, Array momentum, Array variance, ConstArray gradients, Array rounded,
                     const AdamWStep& step) = 0;

  // --- layers: forward ---------------------------------------------------------------------------------------------
  /// out(r, c) = token_table(tokens[r], c) + position_table(r mod T, c).                      out (R, C)
  virtual void embedding_forward(Array out, const std::int32_t* tokens, ConstArray token_table,
                                 ConstArray position_table, Index B, Index T, Index C) = 0;
  /// Normalises each row: out = (in - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + 1e-5). Mean and variance
  /// are row reductions with a fixed lane count. Writes mean (R) and rstd (R) for the backward pass.
  virtual void layernorm_forward(Array out, Array mean, Array rstd, ConstArray in, ConstArray weight, ConstArray bias,
                                 Index rows, Index C) = 0;
  /// in place: out(r, c) += bias(c).
  virtual void add_bias(Array out, ConstArray bias, Index rows, Index columns) = 0;
  /// out(r, c) = residual(r, c) + (in(r, c) + bias(c)): the end of a sub-layer. `out` may be `in`.
  virtual void add_bias_residual(Array out, ConstArray in, ConstArray bias, ConstArray residual, Index rows,
                                 Index columns) = 0;
  /// in place: pre(r, c) += bias(c);  out = gelu(pre), the tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  virtual void bias_gelu_forward(Array out, Array pre, ConstArray bias, Index rows, Index columns) = 0;
  /// In place, causal: row t of each (T, T) matrix becomes softmax over s <= t of scale * x, zeros for s > t.
  /// What stands at s > t before is not read. count matrices one after the other.
  virtual void causal_softmax_forward(Array scores, float scale, Index count, Index T) = 0;
  /// For each row r of logits (R, V): losses[r] = logsumexp - logit at targets[r] (fp32; the logits' values are
  /// those stored), then in place
  /// logits(r, v) = (softmax(r, v) - [v == targets[r]]) * gradient_scale.
  virtual void cross_entropy(Array losses, Array logits, const std::int32_t* targets, float gradient_scale, Index rows,
                             Index V) = 0;

  // --- layers: backward --------------------------------------------------------------------------------------------
  /// d_in(r, c) [+]= the gradient through layernorm_forward; `accumulate` adds it to what d_in holds.
  /// d_weight (C) and d_bias (C) are written: sums over rows in rising order, a chain per column.
  virtual void layernorm_backward(Array d_in, bool accumulate, Array d_weight, Array d_bias, ConstArray d_out,
                                  ConstArray in, ConstArray weight, ConstArray mean, ConstArray rstd, Index rows,
                                  Index C) = 0;
  /// d_bias(c) = sum over rows in rising order of d_out(r, c).
  virtual void bias_backward(Array d_bias, ConstArray d_out, Index rows, Index columns) = 0;
  /// in place: d(i) *= gelu'(pre(i)).
  virtual void gelu_backward(Array d, ConstArray pre) = 0;
  /// In place on d (count matrices (T, T)): d(t, s) = scale * p(t, s) * (d(t, s) - sum over s' <= t of p d), zeros for
  /// s > t. What stands at s > t before is not read.
  virtual void causal_softmax_backward(Array d, ConstArray probabilities, float scale, Index count, Index T) = 0;
  /// The embedding's part of some rows of the token table's gradient, added to the head's, which stands there in fp32:
  /// rows(tokens[r] - first_row) += d(r), in rising r, for the tokens in [first_row, first_row + rows.size / C).
  virtual void token_table_backward(Array rows, Index first_row, const std::int32_t* tokens, ConstArray d, Index R,
                                    Index C) = 0;
  /// d_position_table(t) = the sum over b in rising order of d(b, t), in fp32, rounded once.          d (B, T, C)
  virtual void position_table_backward(Array d_position_table, ConstArray d, Index B, Index T, Index C) = 0;

  // --- dropout -----------------------------------------------------------------------------------------------------
  /// out(i) = keep(i) ? in(i) / (1 - rate) : 0, the division one fp32 multiplication by a scale rounded once from
  /// double; keep(i) = the i-th 32-bit random word of the stream is not below rate * 2^32 (counter-based: word i % 4 of
  /// Philox counter (i / 4, stream) under `seed`; i counts from `first`). The same mask in forward, recompute and
  /// backward, where `in` is the gradient. `out` may be `in`.
  virtual void dropout(Array out, ConstArray in, double rate, std::uint64_t seed, std::uint64_t stream,
                       Index first) = 0;
};

}  // namespace zero
