#include "common/model/gpt2.h"

#include <algorithm>
#include <array>
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

Gpt2::Gpt2(const ModelConfig& config, Index micro_batch, const std::vector<FlatUnit>& units,
           const ModelOptions& options, Device& device)
    : config_(config),
      options_(options),
      B_(micro_batch),
      T_(config.context),
      C_(config.width),
      H_(config.heads),
      V_(config.vocab),
      R_(micro_batch * config.context),
      units_(units),
      kernels_(device.kernels()),
      products_(device.products()) {
  const auto activation = [&](Index size) {
    return device.allocate_uninitialized(Category::activations, size, options.dtype);
  };
  const auto statistic = [&](Index size) { return device.allocate_uninitialized(Category::activations, size); };
  const auto scratch = [&](Index size, Dtype dtype) {
    return device.allocate_uninitialized(Category::workspace, size, dtype);
  };
  tokens_ = device.allocate(Category::activations, R_, Dtype::int32);
  targets_ = device.allocate(Category::activations, R_, Dtype::int32);
  for (Index l = 0; l <= config.layers; ++l) residual_.push_back(activation(R_ * C_));
  const Index kept = options.checkpoint_activations ? std::min<Index>(1, config.layers) : config.layers;
  for (Index l = 0; l < kept; ++l) {
    BlockActivations& block = blocks_.emplace_back();
    block.norm1 = activation(R_ * C_);
    block.mean1 = statistic(R_);
    block.rstd1 = statistic(R_);
    block.qkv = activation(R_ * 3 * C_);
    block.probabilities = activation(B_ * H_ * T_ * T_);
    block.attention = activation(R_ * C_);
    block.middle = activation(R_ * C_);
    block.norm2 = activation(R_ * C_);
    block.mean2 = statistic(R_);
    block.rstd2 = statistic(R_);
    block.expand = activation(R_ * 4 * C_);
    block.gelu = activation(R_ * 4 * C_);
  }
  final_norm_ = activation(R_ * C_);
  final_mean_ = statistic(R_);
  final_rstd_ = statistic(R_);
  logits_ = activation(R_ * V_);
  losses_ = statistic(R_);
  d_residual_ = scratch(R_ * C_, options.dtype);
  d_narrow_ = scratch(R_ * C_, options.dtype);
  d_wide_ = scratch(R_ * 4 * C_, options.dtype);
  d_scores_ = scratch(T_ * T_, options.dtype);
  d_final_ = scratch(2 * C_, options.dtype);
  if (options.dropout > 0) dropped_ = scratch(T_ * T_, options.dtype);
  if (options.dtype != Dtype::fp32) token_rows_ = scratch(std::min(V_, kTokenRows) * C_, Dtype::fp32);
}

std::span<std::int32_t> Gpt2::tokens() { return numbers(tokens_); }
std::span<std::int32_t> Gpt2::targets() { return numbers(targets_); }

void Gpt2::embed_forward(ConstArray unit0) {
  const auto w = tensors(units_[0], unit0, 0, 4);
  kernels_.embedding_forward(residual_[0].array(), tokens().data(), w[kTokenTable], w[kPositionTable], B_, T_, C_);
  if (drops()) drop(residual_[0].array(), residual_[0].array(), Site::embedding, 0);
}

void Gpt2::drop(Array out, ConstArray in, Site site, Index block, Index first) {
  // A stream of random words for each place in the model and each leaf of the run; the seed sets them apart from those
  // of initial weights and data order.
  constexpr std::uint64_t kDropoutKey = 0xd1b54a32d192ed03;
  const Index place = site == Site::embedding ? 0 : 3 * block + static_cast<Index>(site);
  const Index stream = leaf_ * (1 + 3 * config_.layers) + place;
  kernels_.dropout(out, in, options_.dropout, options_.seed ^ kDropoutKey, static_cast<std::uint64_t>(stream), first);
}

void Gpt2::finish_sublayer(Array out, ConstArray bias, ConstArray residual, Site site, Index block) {
  if (!drops()) {
    kernels_.add_bias_residual(out, out, bias, residual, R_, C_);
    return;
  }
  kernels_.add_bias(out, bias, R_, C_);
  drop(out, out, site, block);
  kernels_.tree_sum(out, std::array<ConstArray, 2>{residual, out});
}

void Gpt2::forward(Index unit, ConstArray parameters) {
  const FlatUnit& flat = units_[unit];
  const Index first = (unit - 1) * (static_cast<Index>(units_[1].tensors().size()) / kBlockTensors);
  const Index count = static_cast<Index>(flat.tensors().size()) / kBlockTensors;
  for (Index i = 0; i < count; ++i)
    block_forward(first + i, tensors(flat, parameters, i * kBlockTensors, kBlockTensors));
}

void Gpt2::block_forward(Index block, const std::vector<ConstArray>& w) {
  BlockActivations& a = activations(block);
  const Array x = residual_[block].array();
  const Array out = residual_[block + 1].array();
  const Array middle = a.middle.array();

  kernels_.layernorm_forward(a.norm1.array(), a.mean1.array(), a.rstd1.array(), x, w[kNorm1Weight], w[kNorm1Bias], R_,
                             C_);
  products_.multiply(a.qkv.array(), 3 * C_, {a.norm1.array(), C_}, {w[kQkvWeight], C_, true}, R_, 3 * C_, C_);
  kernels_.add_bias(a.qkv.array(), w[kQkvBias], R_, 3 * C_);
  attention_forward(block);
  products_.multiply(middle, C_, {a.attention.array(), C_}, {w[kProjectionWeight], C_, true}, R_, C_, C_);
  finish_sublayer(middle, w[kProjectionBias], x, Site::projection, block);

  kernels_.layernorm_forward(a.norm2.array(), a.mean2.array(), a.rstd2.array(), middle, w[kNorm2Weight], w[kNorm2Bias],
                             R_, C_);
  products_.multiply(a.expand.array(), 4 * C_, {a.norm2.array(), C_}, {w[kExpandWeight], C_, true}, R_, 4 * C_, C_);
  kernels_.bias_gelu_forward(a.gelu.array(), a.expand.array(), w[kExpandBias], R_, 4 * C_);
  products_.multiply(out, C_, {a.gelu.array(), 4 * C_}, {w[kProjectWeight], 4 * C_, true}, R_, C_, 4 * C_);
  finish_sublayer(out, w[kProjectBias], middle, Site::mlp, block);
}

void Gpt2::attention_forward(Index block) {
  BlockActivations& a = activations(block);
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
      Array p = scores(b, h);
      if (drops()) {
        drop(dropped_.array(), p, Site::attention, block, (b * H_ + h) * T_ * T_);
        p = dropped_.array();
      }
      products_.multiply(a.attention.part(b * T_ * C_ + h * size, 0), C_, {p, T_}, {head(b, h, 2), 3 * C_}, T_, size,
                         T_);
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

std::vector<double> Gpt2::sequence_losses() {
  std::vector<double> means;
  for (Index b = 0; b < B_; ++b) {
    means.push_back(kernels_.sum_in_order(losses_.part(b * T_, T_)) / static_cast<double>(T_));
  }
  return means;
}

void Gpt2::head_backward(ConstArray unit0) {
  const auto w = tensors(units_[0], unit0, 0, 4);
  const Array d_norm = d_narrow_.array();
  products_.multiply(d_norm, C_, {logits_.array(), V_}, {w[kTokenTable], C_}, R_, C_, V_);
  kernels_.layernorm_backward(d_residual_.array(), false, d_final_.part(0, C_), d_final_.part(C_, C_), d_norm,
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
  if (options_.checkpoint_activations) block_forward(block, w);  // the activations that forward did not keep
  const BlockActivations& a = activations(block);
  const Array x = residual_[block].array();
  const Array d = d_residual_.array();       // (R, C): of the block's output, then of `middle`, then of its input
  const Array d_narrow = d_narrow_.array();  // (R, C)
  const Array d_expand = d_wide_.array();    // (R, 4C)
  const Array d_qkv = d_wide_.part(0, R_ * 3 * C_);  // (R, 3C)

  // Of the sub-layer's output before dropout: the residual stream's gradient itself where nothing is dropped.
  Array d_out = d;
  if (drops()) drop(d_out = d_narrow, d, Site::mlp, block);
  kernels_.bias_backward(g[kProjectBias], d_out, R_, C_);
  products_.multiply(g[kProjectWeight], 4 * C_, {d_out, C_, true}, {a.gelu.array(), 4 * C_}, C_, 4 * C_, R_);
  products_.multiply(d_expand, 4 * C_, {d_out, C_}, {w[kProjectWeight], 4 * C_}, R_, 4 * C_, C_);
  kernels_.gelu_backward(d_expand, a.expand.array());
  kernels_.bias_backward(g[kExpandBias], d_expand, R_, 4 * C_);
  products_.multiply(g[kExpandWeight], C_, {d_expand, 4 * C_, true}, {a.norm2.array(), C_}, 4 * C_, C_, R_);
  products_.multiply(d_narrow, C_, {d_expand, 4 * C_}, {w[kExpandWeight], C_}, R_, C_, 4 * C_);
  kernels_.layernorm_backward(d, true, g[kNorm2Weight], g[kNorm2Bias], d_narrow, a.middle.array(), w[kNorm2Weight],
                              a.mean2.array(), a.rstd2.array(), R_, C_);

  d_out = d;
  if (drops()) drop(d_out = d_wide_.part(3 * R_ * C_, R_ * C_), d, Site::projection, block);
  kernels_.bias_backward(g[kProjectionBias], d_out, R_, C_);
  products_.multiply(g[kProjectionWeight], C_, {d_out, C_, true}, {a.attention.array(), C_}, C_, C_, R_);
  products_.multiply(d_narrow, C_, {d_out, C_}, {w[kProjectionWeight], C_}, R_, C_, C_);
  attention_backward(block, d_qkv, d_narrow);
  kernels_.bias_backward(g[kQkvBias], d_qkv, R_, 3 * C_);
  products_.multiply(g[kQkvWeight], C_, {d_qkv, 3 * C_, true}, {a.norm1.array(), C_}, 3 * C_, C_, R_);
  products_.multiply(d_narrow, C_, {d_qkv, 3 * C_}, {w[kQkvWeight], C_}, R_, C_, 3 * C_);
  kernels_.layernorm_backward(d, true, g[kNorm1Weight], g[kNorm1Bias], d_narrow, x, w[kNorm1Weight], a.mean1.array(),
                              a.rstd1.array(), R_, C_);
}

void Gpt2::attention_backward(Index block, Array d_qkv, ConstArray d_attention) {
  const BlockActivations& a = activations(block);
  const Index size = C_ / H_;
  const float scale = 1.0F / std::sqrt(static_cast<float>(size));
  const Array d_p = d_scores_.array();  // (T, T): of the probabilities, then of the scores
  for (Index b = 0; b < B_; ++b) {
    for (Index h = 0; h < H_; ++h) {
      const auto head = [&](Index part) { return b * T_ * 3 * C_ + part * C_ + h * size; };
      const Matrix q{a.qkv.part(head(0), 0), 3 * C_};
      const Matrix k{a.qkv.part(head(1), 0), 3 * C_};
      const Matrix v_transposed{a.qkv.part(head(2), 0), 3 * C_, true};
      const Array p = a.probabilities.part((b * H_ + h) * T_ * T_, T_ * T_);
      const ConstArray d_out = d_attention.part(b * T_ * C_ + h * size, 0);
      products_.multiply(d_p, T_, {d_out, C_}, v_transposed, T_, T_, size);  // d_p = d_out v^T
      Array p_used = p;
      if (drops()) {
        drop(p_used = dropped_.array(), p, Site::attention, block, (b * H_ + h) * T_ * T_);
        drop(d_p, d_p, Site::attention, block, (b * H_ + h) * T_ * T_);
      }
      products_.multiply(d_qkv.part(head(2), 0), 3 * C_, {p_used, T_, true}, {d_out, C_}, T_, size,
                         T_);  // d_v = p^T d_out
      kernels_.causal_softmax_backward(d_p, p, scale, 1, T_);
      products_.multiply(d_qkv.part(head(0), 0), 3 * C_, {d_p, T_}, k, T_, size, T_);        // d_q = d_s k
      products_.multiply(d_qkv.part(head(1), 0), 3 * C_, {d_p, T_, true}, q, T_, size, T_);  // d_k = d_s^T q
    }
  }
}

void Gpt2::embed_backward(Array gradient0) {
  const auto g = tensors(units_[0], gradient0, 0, 4);
  if (drops()) drop(d_residual_.array(), d_residual_.array(), Site::embedding, 0);
  clear_gaps(kernels_, units_[0], gradient0);
  token_table_backward(g[kTokenTable]);
  kernels_.position_table_backward(g[kPositionTable], d_residual_.array(), B_, T_, C_);
  kernels_.copy(g[kFinalNormWeight], d_final_.part(0, C_));
  kernels_.copy(g[kFinalNormBias], d_final_.part(C_, C_));
}

/// The table is used twice: as the head's matrix and as the embedding. Both parts are added in fp32 and rounded as one.
void Gpt2::token_table_backward(Array gradient) {
  const bool in_place = gradient.dtype == Dtype::fp32;
  const Index step = in_place ? V_ : kTokenRows;
  for (Index first = 0; first < V_; first += step) {
    const Index count = std::min(step, V_ - first);
    const Array part = gradient.part(first * C_, count * C_);
    const Array rows = in_place ? part : token_rows_.part(0, count * C_);
    products_.multiply(rows, C_, {logits_.part(first, 0), V_, true}, {final_norm_.array(), C_}, count, C_, R_);
    kernels_.token_table_backward(rows, first, tokens().data(), d_residual_.array(), R_, C_);
    if (!in_place) kernels_.copy(part, rows);
  }
}

}  // namespace zero
