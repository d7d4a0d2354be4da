#pragma once
/// \file
/// GPT-2 (Radford et al. 2019): pre-norm blocks, learned positions, GELU in its tanh form, biases, head tied to the
/// token table. Forward and backward run one unit at a time, on parameters and into gradients that the caller holds, so
/// that a trainer decides what is in memory when.

#include <vector>

#include "common/device/device.h"
#include "common/model/config.h"
#include "common/shard/flat_unit.h"

namespace zero {

/// The units of the model, each cut into `slices` slices: unit 0 is the embedding unit (token table, position table,
/// final norm; the tied head uses it too), units 1.. hold `wrap` blocks each (the last may hold fewer). With `tiles` >
/// 1 (and a wrap of 1) each of a block's four products has that many units, in the order of the forward pass: rows of
/// its matrix, the norm before it with the first, its bias with the last.
std::vector<FlatUnit> model_units(const ModelConfig& config, Index wrap, Index slices, Index tiles = 1);

/// Part `tile` of `rows` outputs in `tiles` parts whose sizes differ by at most one.
struct Range {
  Index begin = 0;
  Index size = 0;
};
Range tile_rows(Index rows, Index tile, Index tiles);

/// Writes the initial values of the flat range [begin, begin + out.size) of a unit, zeros in gaps and padding:
/// normal(0, 0.02) for matrices, residual projections scaled by 1/sqrt(2 L), ones for norm weights, zeros for biases.
/// A value depends on (seed, tensor, element) alone.
void initialize(Kernels& kernels, const FlatUnit& unit, Index begin, Array out, std::uint64_t seed);

/// How the model computes, beside its sizes.
struct ModelOptions {
  Dtype dtype = Dtype::fp32;            ///< of parameters, gradients and activations
  bool checkpoint_activations = false;  ///< keep each block's input only and compute the rest again in backward
  double dropout = 0;                   ///< after the embedding, on attention probabilities, after both projections
  std::uint64_t seed = 1;               ///< of the dropout masks
  /// In how many parts a block's large products are computed, as model_units() cut them (ZeRO-Infinity, section 5.1.3).
  /// Parts of the outputs; the input's gradient is added over them in fp32, the last part first, and rounded once.
  /// More than 1 excludes checkpointing, which would need all parts of a block at once.
  Index tiles = 1;
};

/// The activations of one micro-batch and the scratch of its passes; it holds no parameters and no gradients. Letters
/// as in ModelConfig; B micro-batch, R = B * T rows. All buffers are allocated at construction.
class Gpt2 {
 public:
  /// `device` and `units` outlive the model.
  Gpt2(const ModelConfig& config, Index micro_batch, const std::vector<FlatUnit>& units, const ModelOptions& options,
       Device& device);

  /// Room for the token numbers (R) of the next micro-batch in the host's memory, to be filled by the caller before
  /// embed_forward(), which takes them to the device.
  [[nodiscard]] std::span<std::int32_t> tokens() { return host_tokens_; }
  [[nodiscard]] std::span<std::int32_t> targets() { return host_targets_; }
  /// Says what the next micro-batch is: leaf number `leaf` of the whole run, which decides its dropout masks, or one to
  /// evaluate, which has none.
  void train_on_leaf(Index leaf) { leaf_ = leaf; }
  void evaluate() { leaf_ = kNoLeaf; }

  /// Every pass takes the whole flat unit. Order: embed_forward, forward(1) ... forward(U), head_forward,
  /// head_backward, backward(U) ... backward(1), embed_backward. U = the number of units less one.
  void embed_forward(ConstArray unit0);
  void forward(Index unit, ConstArray parameters);
  /// The mean loss of the micro-batch: row losses in fp32, their mean in double in row order.
  double head_forward(ConstArray unit0);
  /// The mean loss of each sequence (B) of the micro-batch that went through head_forward.
  [[nodiscard]] std::vector<double> sequence_losses();
  /// Each backward pass writes every element of the unit's gradient, zeros in gaps and padding. The embedding unit's is
  /// written by embed_backward alone: head_backward keeps what the head adds to it as activations, so that the tied
  /// table's gradient is added up in fp32, head first, then the embedding's rows in position order, and rounded once.
  void head_backward(ConstArray unit0);
  void backward(Index unit, ConstArray parameters, Array gradient);
  void embed_backward(Array gradient0);

 private:
  /// What a block's backward pass needs of its forward pass.
  struct BlockActivations {
    Buffer norm1, mean1, rstd1;  // (R, C), (R), (R)
    Buffer qkv;                  // (B, T, 3C): q, k, v, each H heads of C / H
    Buffer probabilities;        // (B, H, T, T)
    Buffer attention;            // (B, T, C)
    Buffer middle;               // (R, C): the residual stream between attention and MLP
    Buffer norm2, mean2, rstd2;  // (R, C), (R), (R)
    Buffer expand;               // (R, 4C), before GELU
    Buffer gelu;                 // (R, 4C)
  };
  enum class Product { qkv, projection, expand, project };
  /// One of a block's four products, or a tile of it, with what is done just before and after it.
  struct Step {
    Index block;
    Product product;
    Index tile;
    Index first_tensor;  ///< its tensors' place in the unit: [norm weight and bias,] matrix [, bias]
  };
  /// The tensors of a step; empty where it has none.
  template <typename View>
  struct StepTensors {
    View norm_weight, norm_bias, weight, bias;
  };
  template <typename View>
  StepTensors<View> tensors_of(const Step& step, const FlatUnit& unit, View flat) const;
  [[nodiscard]] bool has_norm(const Step& step) const;
  [[nodiscard]] bool is_last_tile(const Step& step) const { return step.tile == options_.tiles - 1; }
  [[nodiscard]] Index outputs(Product product) const;  ///< columns of its output: rows of its matrix
  [[nodiscard]] Index inputs(Product product) const;   ///< columns of its input

  void find_steps();
  [[nodiscard]] ConstArray input(const Step& step);
  void step_forward(const Step& step, const StepTensors<ConstArray>& w);
  void step_backward(const Step& step, const StepTensors<ConstArray>& w, const StepTensors<Array>& g);
  void input_gradient(const Step& step, Array d_in, const Matrix& d_out, const Matrix& weight, Index rows);
  void attention_forward(Index block);
  void attention_backward(Index block, Array d_qkv, ConstArray d_attention);
  void token_table_backward(Array gradient);
  [[nodiscard]] BlockActivations& activations(Index block) {
    return blocks_[options_.checkpoint_activations ? 0 : block];
  }

  /// Where dropout is applied in the model.
  enum class Site { embedding, attention, projection, mlp };
  [[nodiscard]] bool drops() const { return options_.dropout > 0 && leaf_ != kNoLeaf; }
  /// out = in with the mask of a site, from element `first` of it; the same mask for the gradient.
  void drop(Array out, ConstArray in, Site site, Index block, Index first = 0);
  /// The end of a sub-layer, in place: out = residual + drop(out + bias).
  void finish_sublayer(Array out, ConstArray bias, ConstArray residual, Site site, Index block);

  static constexpr Index kNoLeaf = -1;
  /// Rows of the token table whose gradient is added up at a time where gradients are not fp32.
  static constexpr Index kTokenRows = 1024;

  ModelConfig config_;
  ModelOptions options_;
  Index leaf_ = 0;
  Index B_, T_, C_, H_, V_, R_;
  const std::vector<FlatUnit>& units_;
  Device& device_;
  Kernels& kernels_;
  Products& products_;
  std::vector<std::vector<Step>> steps_;  // [unit], of the forward pass

  std::vector<std::int32_t> host_tokens_, host_targets_;  // (R)

  Buffer tokens_, targets_;                      // (R) int32
  std::vector<Buffer> residual_;                 // L + 1 of (R, C): the input of each block and of the final norm
  std::vector<BlockActivations> blocks_;         // L, or 1 with checkpointing
  Buffer final_norm_, final_mean_, final_rstd_;  // (R, C), (R), (R)
  Buffer logits_;                                // (R, V); after head_forward the gradient of the logits
  Buffer losses_;                                // (R)

  Buffer d_residual_;  // (R, C): the gradient that flows down the residual stream
  Buffer d_narrow_;    // (R, C)
  Buffer d_wide_;      // (R, 4C)
  Buffer d_scores_;    // (T, T)
  Buffer dropped_;     // (T, T): probabilities of a head after dropout
  Buffer d_final_;     // (2, C): of the final norm's weight and bias, until embed_backward
  Buffer d_in_sum_;    // (R, 4C) fp32, with tiles: the input's gradient so far
  Buffer d_in_part_;   // (R, 4C) fp32, with tiles: what the next tile adds to it
  Buffer token_rows_;  // (kTokenRows, C) fp32, where gradients are not fp32
};

}  // namespace zero
