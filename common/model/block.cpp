// The blocks of the model: their four products, whole or in tiles, and the attention between the first two.
#include <array>
#include <cmath>

#include "common/model/gpt2.h"

namespace zero {

/// The steps of every unit, from the number of its tensors.
void Gpt2::find_steps() {
  steps_.resize(units_.size());
  Step step{};
  for (std::size_t u = 1; u < units_.size(); ++u) {
    step.first_tensor = 0;
    while (step.first_tensor < std::ssize(units_[u].tensors())) {
      steps_[u].push_back(step);
      step.first_tensor += (has_norm(step) ? 2 : 0) + 1 + (is_last_tile(step) ? 1 : 0);
      if (++step.tile < options_.tiles) continue;
      step.tile = 0;
      const bool last = step.product == Product::project;
      step.product = last ? Product::qkv : static_cast<Product>(static_cast<int>(step.product) + 1);
      if (last) ++step.block;
    }
  }
}

bool Gpt2::has_norm(const Step& step) const {
  return step.tile == 0 && (step.product == Product::qkv || step.product == Product::expand);
}

Index Gpt2::outputs(Product product) const {
  return product == Product::qkv ? 3 * C_ : product == Product::expand ? 4 * C_ : C_;
}

Index Gpt2::inputs(Product product) const { return product == Product::project ? 4 * C_ : C_; }

template <typename View>
Gpt2::StepTensors<View> Gpt2::tensors_of(const Step& step, const FlatUnit& unit, View flat) const {
  StepTensors<View> of;
  Index next = step.first_tensor;
  const auto take = [&] {
    const View view = flat.part(unit.offset(next), unit.tensors()[next].size);
    ++next;
    return view;
  };
  if (has_norm(step)) of.norm_weight = take(), of.norm_bias = take();
  of.weight = take();
  if (is_last_tile(step)) of.bias = take();
  return of;
}

void Gpt2::forward(Index unit, ConstArray parameters) {
  for (const Step& step : steps_[unit]) step_forward(step, tensors_of(step, units_[unit], parameters));
}

void Gpt2::step_forward(const Step& step, const StepTensors<ConstArray>& w) {
  BlockActivations& a = activations(step.block);
  const Array x = residual_[step.block].array(), middle = a.middle.array();
  if (has_norm(step) && step.product == Product::qkv) {
    kernels_.layernorm_forward(a.norm1.array(), a.mean1.array(), a.rstd1.array(), x, w.norm_weight, w.norm_bias, R_,
                               C_);
  } else if (has_norm(step)) {
    kernels_.layernorm_forward(a.norm2.array(), a.mean2.array(), a.rstd2.array(), middle, w.norm_weight, w.norm_bias,
                               R_, C_);
  }

  const Array out = step.product == Product::qkv          ? a.qkv.array()
                    : step.product == Product::projection ? middle
                    : step.product == Product::expand     ? a.expand.array()
                                                          : residual_[step.block + 1].array();
  const Index columns = outputs(step.product), k = inputs(step.product);
  const Range tile = tile_rows(columns, step.tile, options_.tiles);
  // for r, c in tile:  out(r, c) = sum over i of in(r, i) weight(c, i)
  products_.multiply(out.part(tile.begin, 0), columns, {input(step), k}, {w.weight, k, true}, R_, tile.size, k);
  if (!is_last_tile(step)) return;

  switch (step.product) {
    case Product::qkv:
      kernels_.add_bias(out, w.bias, R_, columns);
      attention_forward(step.block);
      break;
    case Product::projection: finish_sublayer(out, w.bias, x, Site::projection, step.block); break;
    case Product::expand: kernels_.bias_gelu_forward(a.gelu.array(), out, w.bias, R_, columns); break;
    case Product::project: finish_sublayer(out, w.bias, middle, Site::mlp, step.block); break;
  }
}

/// What a product multiplies, (R, inputs).
ConstArray Gpt2::input(const Step& step) {
  const BlockActivations& a = activations(step.block);
  switch (step.product) {
    case Product::qkv: return a.norm1.array();
    case Product::projection: return a.attention.array();
    case Product::expand: return a.norm2.array();
    case Product::project: return a.gelu.array();
  }
  return {};
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

void Gpt2::finish_sublayer(Array out, ConstArray bias, ConstArray residual, Site site, Index block) {
  if (!drops()) {
    kernels_.add_bias_residual(out, out, bias, residual, R_, C_);
    return;
  }
  kernels_.add_bias(out, bias, R_, C_);
  drop(out, out, site, block);
  kernels_.tree_sum(out, std::array<ConstArray, 2>{residual, out});
}

void Gpt2::backward(Index unit, ConstArray parameters, Array gradient) {
  const FlatUnit& flat = units_[unit];
  clear_gaps(kernels_, flat, 0, gradient);
  for (auto step = steps_[unit].rbegin(); step != steps_[unit].rend(); ++step) {
    if (options_.checkpoint_activations && step->product == Product::project) {  // what forward did not keep
      for (const Step& again : steps_[unit]) {
        if (again.block == step->block) step_forward(again, tensors_of(again, flat, parameters));
      }
    }
    step_backward(*step, tensors_of(*step, flat, parameters), tensors_of(*step, flat, gradient));
  }
}

void Gpt2::step_backward(const Step& step, const StepTensors<ConstArray>& w, const StepTensors<Array>& g) {
  const BlockActivations& a = activations(step.block);
  const Array d = d_residual_.array();       // (R, C): of the block's output, then of `middle`, then of its input
  const Array d_narrow = d_narrow_.array();  // (R, C)
  const Array d_wide = d_wide_.array();      // (R, 4C), of queries, keys and values (R, 3C)
  const Index columns = outputs(step.product), k = inputs(step.product);

  // Of the product's output: behind a sub-layer the residual stream's gradient, before its dropout if there is one.
  Array d_out = d_wide;
  if (step.product == Product::project) d_out = drops() ? d_narrow : d;
  if (step.product == Product::projection) d_out = drops() ? d_wide.part(3 * R_ * C_, R_ * C_) : d;
  if (is_last_tile(step)) {
    const bool ends_sublayer = step.product == Product::project || step.product == Product::projection;
    const Site site = step.product == Product::project ? Site::mlp : Site::projection;
    if (ends_sublayer && drops()) drop(d_out, d, site, step.block);
    kernels_.bias_backward(g.bias, d_out.part(0, R_ * columns), R_, columns);
  }

  const Range tile = tile_rows(columns, step.tile, options_.tiles);
  const Array d_tile = d_out.part(tile.begin, 0);
  // for c in tile, i:  d_weight(c, i) = sum over r of d_out(r, c) in(r, i)
  products_.multiply(g.weight, k, {d_tile, columns, true}, {input(step), k}, tile.size, k, R_);
  input_gradient(step, step.product == Product::project ? d_wide : d_narrow, {d_tile, columns}, {w.weight, k},
                 tile.size);
  if (step.tile > 0) return;

  switch (step.product) {
    case Product::project: kernels_.gelu_backward(d_wide, a.expand.array()); break;
    case Product::expand:
      kernels_.layernorm_backward(d, true, g.norm_weight, g.norm_bias, d_narrow, a.middle.array(), w.norm_weight,
                                  a.mean2.array(), a.rstd2.array(), R_, C_);
      break;
    case Product::projection: attention_backward(step.block, d_wide.part(0, R_ * 3 * C_), d_narrow); break;
    case Product::qkv:
      kernels_.layernorm_backward(d, true, g.norm_weight, g.norm_bias, d_narrow, residual_[step.block].array(),
                                  w.norm_weight, a.mean1.array(), a.rstd1.array(), R_, C_);
      break;
  }
}

/// d_in(r, i) = sum over c of d_out(r, c) weight(c, i); with tiles the sums over their c are added in fp32.
void Gpt2::input_gradient(const Step& step, Array d_in, const Matrix& d_out, const Matrix& weight, Index rows) {
  const Index k = inputs(step.product);
  if (options_.tiles == 1) {
    products_.multiply(d_in, k, d_out, weight, R_, k, rows);
    return;
  }
  const Array sum = d_in_sum_.part(0, R_ * k), part = d_in_part_.part(0, R_ * k);
  products_.multiply(is_last_tile(step) ? sum : part, k, d_out, weight, R_, k, rows);
  if (!is_last_tile(step)) kernels_.tree_sum(sum, std::array<ConstArray, 2>{sum, part});
  if (step.tile == 0) kernels_.copy(d_in.part(0, R_ * k), sum);
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

}  // namespace zero
