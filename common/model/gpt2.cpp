#include "common/model/gpt2.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

namespace zero {
namespace {

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

const std::int32_t* numbers(const Buffer& buffer) { return static_cast<const std::int32_t*>(buffer.array().data); }

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
      device_(device),
      kernels_(device.kernels()),
      products_(device.products()),
      host_tokens_(static_cast<std::size_t>(R_)),
      host_targets_(static_cast<std::size_t>(R_)) {
  find_steps();
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
  if (options.tiles > 1) {
    if (options.checkpoint_activations) throw std::logic_error("tiles with checkpointing");
    d_in_sum_ = scratch(R_ * 4 * C_, Dtype::fp32);
    d_in_part_ = scratch(R_ * 4 * C_, Dtype::fp32);
  }
  if (options.dropout > 0) dropped_ = scratch(T_ * T_, options.dtype);
  if (options.dtype != Dtype::fp32) token_rows_ = scratch(std::min(V_, kTokenRows) * C_, Dtype::fp32);
}

void Gpt2::embed_forward(ConstArray unit0) {
  const auto w = tensors(units_[0], unit0, 0, 4);
  device_.upload(tokens_.array(), host_tokens_.data());
  device_.upload(targets_.array(), host_targets_.data());
  kernels_.embedding_forward(residual_[0].array(), numbers(tokens_), w[kTokenTable], w[kPositionTable], B_, T_, C_);
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

double Gpt2::head_forward(ConstArray unit0) {
  const auto w = tensors(units_[0], unit0, 0, 4);
  kernels_.layernorm_forward(final_norm_.array(), final_mean_.array(), final_rstd_.array(), residual_.back().array(),
                             w[kFinalNormWeight], w[kFinalNormBias], R_, C_);
  products_.multiply(logits_.array(), V_, {final_norm_.array(), C_}, {w[kTokenTable], C_, true}, R_, V_, C_);
  kernels_.cross_entropy(losses_.array(), logits_.array(), numbers(targets_), 1.0F / static_cast<float>(R_), R_, V_);
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

void Gpt2::embed_backward(Array gradient0) {
  const auto g = tensors(units_[0], gradient0, 0, 4);
  if (drops()) drop(d_residual_.array(), d_residual_.array(), Site::embedding, 0);
  clear_gaps(kernels_, units_[0], 0, gradient0);
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
    kernels_.token_table_backward(rows, first, numbers(tokens_), d_residual_.array(), R_, C_);
    if (!in_place) kernels_.copy(part, rows);
  }
}

}  // namespace zero
