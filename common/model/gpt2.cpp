#include "common/model/gpt2.h"

#include <cmath>

namespace zero {
namespace {

/// The tensors of a block, in the order of its unit.
enum BlockTensor {
  kNorm1Weight,
  kNorm1Bias,
  kQkvWeight,
  kQkvBias,
  kProjectionWeight,
  kProjectionBias,
  kNorm2Weight,
  kNorm2Bias,
  kExpandWeight,
  kExpandBias,
  kProjectWeight,
  kProjectBias,
  kBlockTensors,
};
/// The tensors of the embedding unit.
enum EmbeddingTensor { kTokenTable, kPositionTable, kFinalNormWeight, kFinalNormBias };

/// Views of `count` tensors of a flat unit, from tensor number `first`.
template <typename View>
std::vector<View> tensors(const FlatUnit& unit, View flat, Index first, Index count) {
  std::vector<View> views;
  for (Index i = first; i < first + count; ++i) {
    views.push_back(flat.part(unit.offset(i), unit.tensors()[i].size));
  }
  return views;
}

/// Zeros between tensors and behind the last one.
void clear_gaps(Kernels& kernels, const FlatUnit& unit, Array flat) {
  Index end = 0;
  for (const TensorPart& part : unit.parts(0, unit.size())) {
    kernels.fill(flat.part(end, part.flat_begin - end), 0);
    end = part.flat_begin + part.size;
  }
  kernels.fill(flat.part(end, unit.size() - end), 0);
}

std::span<std::int32_t> numbers(const Buffer& buffer) {
  return {static_cast<std::int32_t*>(buffer.array().data), static_cast<std::size_t>(buffer.size())};
}

}  // namespace

Gpt2::Gpt2(const ModelConfig& config, Index micro_batch, const std::vector<FlatUnit>& units, Device& device)
    : config_(config),
      B_(micro_batch),
      T_(config.context),
      C_(config.width),
      H_(config.heads),
      V_(config.vocab),
      R_(micro_batch * config.context),
      units_(units),
      device_(device),
      kernels_(device.kernels()),
      products_(device.products()) {
  const auto activation = [&](Index size) { return device.allocate_uninitialized(Category::activations, size); };
  const auto scratch = [&](Index size) { return device.allocate_uninitialized(Category::workspace, size); };
  tokens_ = device.allocate(Category::activations, R_, Dtype::int32);
  targets_ = device.allocate(Category::activations, R_, Dtype::int32);
  for (Index l = 0; l <= config.layers; ++l) residual_.push_back(activation(R_ * C_));
  for (Index l = 0; l < config.layers; ++l) {
    BlockActivations& block = blocks_.emplace_back();
    block.norm1 = activation(R_ * C_);
    block.mean1 = activation(R_);
    block.rstd1 = activation(R_);
    block.qkv = activation(R_ * 3 * C_);
    block.probabilities = activation(B_ * H_ * T_ * T_);
    block.attention = activation(R_ * C_);
    block.middle = activation(R_ * C_);
    block.norm2 = activation(R_ * C_);
    block.mean2 = activation(R_);
    block.rstd2 = activation(R_);
    block.expand = activation(R_ * 4 * C_);
    block.gelu = activation(R_ * 4 * C_);
  }
  final_norm_ = activation(R_ * C_);
  final_mean_ = activation(R_);
  final_rstd_ = activation(R_);
  logits_ = activation(R_ * V_);
  losses_ = activation(R_);
  d_residual_ = scratch(R_ * C_);
  d_narrow_ = scratch(R_ * C_);
  d_wide_ = scratch(R_ * 4 * C_);
  d_scores_ = scratch(T_ * T_);
}

std::span<std::int32_t> Gpt2::tokens() { return numbers(tokens_); }
std::span<std::int32_t> Gpt2::targets() { return numbers(targets_); }

void Gpt2::embed_forward(ConstArray unit0) {
  const auto w = tensors(units_[0], unit0, 0, 4);
  kernels_.embedding_forward(residual_[0].array(), tokens().data(), w[kTokenTable], w[kPositionTable], B_, T_, C_);
}

void Gpt2::forward(Index unit, ConstArray parameters) {
  const FlatUnit& flat = units_[unit];
  const Index first = (unit - 1) * (static_cast<Index>(units_[1].tensors().size()) / kBlockTensors);
  const Index count = static_cast<Index>(flat.tensors().size()) / kBlockTensors;
  for (Index i = 0; i < count; ++i)
    block_forward(first + i, tensors(flat, parameters, i * kBlockTensors, kBlockTensors));
}

void Gpt2::block_forward(Index block, const std::vector<ConstArray>& w) {
  BlockActivations& a = blocks_[block];
  const Array x = residual_[block].array();
  const Array out = residual_[block + 1].array();
  const Array middle = a.middle.array();

  kernels_.layernorm_forward(a.norm1.array(), a.mean1.array(), a.rstd1.array(), x, w[kNorm1Weight], w[kNorm1Bias], R_,
                             C_);
  products_.multiply(a.qkv.array(), 3 * C_, {a.norm1.array(), C_}, {w[kQkvWeight], C_, true}, R_, 3 * C_, C_);
  kernels_.add_bias(a.qkv.array(), w[kQkvBias], R_, 3 * C_);
  attention_forward(a);
  products_.multiply(middle, C_, {a.attention.array(), C_}, {w[kProjectionWeight], C_, true}, R_, C_, C_);
  kernels_.add_bias_residual(middle, middle, w[kProjectionBias], x, R_, C_);

  kernels_.layernorm_forward(a.norm2.array(), a.mean2.array(), a.rstd2.array(), middle, w[kNorm2Weight], w[kNorm2Bias],
                             R_, C_);
  products_.multiply(a.expand.array(), 4 * C_, {a.norm2.array(), C_}, {w[kExpandWeight], C_, true}, R_, 4 * C_, C_);
  kernels_.bias_gelu_forward(a.gelu.array(), a.expand.array(), w[kExpandBias], R_, 4 * C_);
  products_.multiply(out, C_, {a.gelu.array(), 4 * C_}, {w[kProjectWeight], 4 * C_, true}, R_, C_, 4 * C_);
  kernels_.add_bias_residual(out, out, w[kProjectBias], middle, R_, C_);
}

void Gpt2::attention_forward(BlockActivations& a) {
  const Index size = C_ / H_;  // of a head
  const float scale = 1.0F / std::sqrt(static_cast<float>(size));
  const Array qkv = a.qkv.array();
  const auto head = [&](Index b, Index h, Index part) { return qkv.part(b * T_ * 3 * C_ + part * C_ + h * size, 0); };
  const auto scores = [&](Index b, Index h) { return a.probabilities.part((b * H_ + h) * T_ * T_, T_ * T_); };
  for (Index b = 0; b < B_; ++b) {
    for (Index h = 0; h < H_; ++h) {  // scores(t, s) = q(t) . k(s)
      products_.multiply(scores(b, h), T_, {head(b, h, 0), 3 * C_}, {head(b, h, 1), 3 * C_, true}, T_, T_, size);
    }
  }
  kernels_.causal_softmax_forward(a.probabilities.array(), scale, B_ * H_, T_);
  for (Index b = 0; b < B_; ++b) {
    for (Index h = 0; h < H_; ++h) {  // attention(t) = sum over s of p(t, s) v(s)
      products_.multiply(a.attention.part(b * T_ * C_ + h * size, 0), C_, {scores(b, h), T_}, {head(b, h, 2), 3 * C_},
                         T_, size, T_);
    }
  }
}

double Gpt2::head_forward(ConstArray unit0) {
  const auto w = tensors(units_[0], unit0, 0, 4);
  kernels_.layernorm_forward(final_norm_.array(), final_mean_.array(), final_rstd_.array(), residual_.back().array(),
                             w[kFinalNormWeight], w[kFinalNormBias], R_, C_);
  products_.multiply(logits_.array(), V_, {final_norm_.array(), C_}, {w[kTokenTable], C_, true}, R_, V_, C_);
  kernels_.cross_entropy(losses_.array(), logits_.array(), targets().data(), 1.0F / static_cast<float>(R_), R_, V_);
  return kernels_.sum_in_order(losses_.array()) / static_cast<double>(R_);
}

void Gpt2::head_backward(ConstArray unit0, Array gradient0) {
  const auto w = tensors(units_[0], unit0, 0, 4);
  const auto g = tensors(units_[0], gradient0, 0, 4);
  clear_gaps(kernels_, units_[0], gradient0);
  const Array d_norm = d_narrow_.array();
  products_.multiply(g[kTokenTable], C_, {logits_.array(), V_, true}, {final_norm_.array(), C_}, V_, C_, R_);
  products_.multiply(d_norm, C_, {logits_.array(), V_}, {w[kTokenTable], C_}, R_, C_, V_);
  kernels_.layernorm_backward(d_residual_.array(), false, g[kFinalNormWeight], g[kFinalNormBias], d_norm,
                              residual_.back().array(), w[kFinalNormWeight], final_mean_.array(), final_rstd_.array(),
                              R_, C_);
}

void Gpt2::backward(Index unit, ConstArray parameters, Array gradient) {
  const FlatUnit& flat = units_[unit];
  const Index first = (unit - 1) * (static_cast<Index>(units_[1].tensors().size()) / kBlockTensors);
  const Index count = static_cast<Index>(flat.tensors().size()) / kBlockTensors;
  clear_gaps(kernels_, flat, gradient);
  for (Index i = count - 1; i >= 0; --i) {
    block_backward(first + i, tensors(flat, parameters, i * kBlockTensors, kBlockTensors),
                   tensors(flat, gradient, i * kBlockTensors, kBlockTensors));
  }
}

void Gpt2::block_backward(Index block, const std::vector<ConstArray>& w, const std::vector<Array>& g) {
  const BlockActivations& a = blocks_[block];
  const Array x = residual_[block].array();
  const Array d = d_residual_.array();       // (R, C): of the block's output, then of `middle`, then of its input
  const Array d_narrow = d_narrow_.array();  // (R, C)
  const Array d_expand = d_wide_.array();    // (R, 4C)
  const Array d_qkv = d_wide_.part(0, R_ * 3 * C_);  // (R, 3C)

  kernels_.bias_backward(g[kProjectBias], d, R_, C_);
  products_.multiply(g[kProjectWeight], 4 * C_, {d, C_, true}, {a.gelu.array(), 4 * C_}, C_, 4 * C_, R_);
  products_.multiply(d_expand, 4 * C_, {d, C_}, {w[kProjectWeight], 4 * C_}, R_, 4 * C_, C_);
  kernels_.gelu_backward(d_expand, a.expand.array());
  kernels_.bias_backward(g[kExpandBias], d_expand, R_, 4 * C_);
  products_.multiply(g[kExpandWeight], C_, {d_expand, 4 * C_, true}, {a.norm2.array(), C_}, 4 * C_, C_, R_);
  products_.multiply(d_narrow, C_, {d_expand, 4 * C_}, {w[kExpandWeight], C_}, R_, C_, 4 * C_);
  kernels_.layernorm_backward(d, true, g[kNorm2Weight], g[kNorm2Bias], d_narrow, a.middle.array(), w[kNorm2Weight],
                              a.mean2.array(), a.rstd2.array(), R_, C_);

  kernels_.bias_backward(g[kProjectionBias], d, R_, C_);
  products_.multiply(g[kProjectionWeight], C_, {d, C_, true}, {a.attention.array(), C_}, C_, C_, R_);
  products_.multiply(d_narrow, C_, {d, C_}, {w[kProjectionWeight], C_}, R_, C_, C_);
  attention_backward(a, d_qkv, d_narrow);
  kernels_.bias_backward(g[kQkvBias], d_qkv, R_, 3 * C_);
  products_.multiply(g[kQkvWeight], C_, {d_qkv, 3 * C_, true}, {a.norm1.array(), C_}, 3 * C_, C_, R_);
  products_.multiply(d_narrow, C_, {d_qkv, 3 * C_}, {w[kQkvWeight], C_}, R_, C_, 3 * C_);
  kernels_.layernorm_backward(d, true, g[kNorm1Weight], g[kNorm1Bias], d_narrow, x, w[kNorm1Weight], a.mean1.array(),
                              a.rstd1.array(), R_, C_);
}

void Gpt2::attention_backward(const BlockActivations& a, Array d_qkv, ConstArray d_attention) {
  const Index size = C_ / H_;
  const float scale = 1.0F / std::sqrt(static_cast<float>(size));
  const Array d_scores = d_scores_.array();
  for (Index b = 0; b < B_; ++b) {
    for (Index h = 0; h < H_; ++h) {
      const auto head = [&](Index part) { return b * T_ * 3 * C_ + part * C_ + h * size; };
      const Matrix q{a.qkv.part(head(0), 0), 3 * C_};
      const Matrix k{a.qkv.part(head(1), 0), 3 * C_};
      const Matrix v_transposed{a.qkv.part(head(2), 0), 3 * C_, true};
      const Array p = a.probabilities.part((b * H_ + h) * T_ * T_, T_ * T_);
      const ConstArray d_out = d_attention.part(b * T_ * C_ + h * size, 0);
      products_.multiply(d_scores, T_, {d_out, C_}, v_transposed, T_, T_, size);                     // d_p = d_out v^T
      products_.multiply(d_qkv.part(head(2), 0), 3 * C_, {p, T_, true}, {d_out, C_}, T_, size, T_);  // d_v = p^T d_out
      kernels_.causal_softmax_backward(d_scores, p, scale, 1, T_);
      products_.multiply(d_qkv.part(head(0), 0), 3 * C_, {d_scores, T_}, k, T_, size, T_);        // d_q = d_s k
      products_.multiply(d_qkv.part(head(1), 0), 3 * C_, {d_scores, T_, true}, q, T_, size, T_);  // d_k = d_s^T q
    }
  }
}

void Gpt2::embed_backward(Array gradient0) {
  const auto g = tensors(units_[0], gradient0, 0, 4);
  kernels_.embedding_backward(g[kTokenTable], g[kPositionTable], tokens().data(), d_residual_.array(), B_, T_, C_);
}

}  // namespace zero
