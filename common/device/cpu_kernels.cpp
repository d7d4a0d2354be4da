#include "common/device/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace zero {
namespace {

std::size_t count(Index n) { return static_cast<std::size_t>(n); }

void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(std::string("a kernel was called with ") + what);
}

/// The elements of a view that must have at least `size` of them.
float* elements(Array array, Index size) {
  require(array.dtype == Dtype::fp32, "a view of the wrong type");
  require(size >= 0 && array.size >= size, "a view that is too short");
  return static_cast<float*>(array.data);
}

const float* elements(ConstArray array, Index size) {
  require(array.dtype == Dtype::fp32, "a view of the wrong type");
  require(size >= 0 && array.size >= size, "a view that is too short");
  return static_cast<const float*>(array.data);
}

/// The elements of terms that all have `size` of them, by address.
std::vector<const float*> addresses(std::span<const ConstArray> terms, Index size) {
  require(!terms.empty(), "no terms");
  std::vector<const float*> result;
  result.reserve(terms.size());
  for (const ConstArray& term : terms) {
    require(term.size == size, "terms of different sizes");
    result.push_back(elements(term, size));
  }
  return result;
}

AdamWScalars adamw_scalars(const AdamWStep& step) {
  return {.learning_rate = step.learning_rate,
          .beta1 = step.beta1,
          .one_minus_beta1 = 1.0F - step.beta1,
          .beta2 = step.beta2,
          .one_minus_beta2 = 1.0F - step.beta2,
          .epsilon = step.epsilon,
          .weight_decay = step.weight_decay,
          .bias_correction1 = step.bias_correction1,
          .bias_correction2 = step.bias_correction2,
          .clip_factor = step.clip_factor};
}

/// Row `row` of a table of `rows` rows of C elements, for an index that came from data.
Index checked(std::int32_t row, Index rows) {
  require(row >= 0 && row < rows, "a token or target outside its table");
  return row;
}

}  // namespace

KernelTable kernel_table(CpuIsa isa) {
  KernelTable table{};
  switch (isa) {
#ifdef ZERO_HAVE_X86_ISAS
    case CpuIsa::avx512:
      add_elementwise_kernels_avx512(table);
      add_row_kernels_avx512(table);
      return table;
    case CpuIsa::avx2:
      add_elementwise_kernels_avx2(table);
      add_row_kernels_avx2(table);
      return table;
#endif
    default:
      add_elementwise_kernels_generic(table);
      add_row_kernels_generic(table);
      return table;
  }
}

// --- moving and filling ----------------------------------------------------------------------------------------------

void CpuKernels::copy(Array out, ConstArray in) {
  require(out.size == in.size && out.dtype == in.dtype, "a copy between views that differ");
  if (out.size > 0 && out.data != in.data) std::memcpy(out.data, in.data, count(in.bytes()));
}

void CpuKernels::fill(Array out, float value) { table_.fill(elements(out, out.size), value, count(out.size)); }

void CpuKernels::fill_normal(Array out, std::uint64_t seed, Index tensor, Index first, float standard_deviation) {
  table_.fill_normal(elements(out, out.size), seed, static_cast<std::uint64_t>(tensor),
                     static_cast<std::uint64_t>(first), standard_deviation, count(out.size));
}

// --- sums of gradients -----------------------------------------------------------------------------------------------

void CpuKernels::tree_sum(Array out, std::span<const ConstArray> terms) {
  const std::vector<const float*> from = addresses(terms, out.size);
  table_.tree_sum(elements(out, out.size), from.data(), from.size(), count(out.size));
}

void CpuKernels::merge_sums(Array out, std::span<const ConstArray> terms, float divisor) {
  const std::vector<const float*> from = addresses(terms, out.size);
  table_.merge_sums(elements(out, out.size), from.data(), from.size(), divisor, count(out.size));
}

void CpuKernels::sum_of_squares(OrderFreeSum& sum, ConstArray in) {
  constexpr Index kBlock = 32;
  constexpr Index kBlocks = 256;
  std::array<double, kBlocks> squares;
  for (Index begin = 0; begin < in.size; begin += kBlock * kBlocks) {
    const Index size = std::min(in.size - begin, kBlock * kBlocks);
    table_.block_squares(squares.data(), elements(in, in.size) + begin, count(size));
    for (Index b = 0; b < divide_up(size, kBlock); ++b) sum.add(squares[count(b)]);
  }
}

double CpuKernels::sum_in_order(ConstArray in) {
  const float* x = elements(in, in.size);
  double sum = 0;
  for (Index i = 0; i < in.size; ++i) sum += static_cast<double>(x[i]);
  return sum;
}

Index CpuKernels::first_non_finite(ConstArray in) {
  const std::size_t at = table_.first_non_finite(elements(in, in.size), count(in.size));
  return at == count(in.size) ? -1 : static_cast<Index>(at);
}

void CpuKernels::digest(Digest& digest, ConstArray in, Index tensor, Index first) {
  table_.digest(&digest.low, &digest.high, elements(in, in.size), static_cast<std::uint64_t>(tensor),
                static_cast<std::uint64_t>(first), count(in.size));
}

// --- optimizer -------------------------------------------------------------------------------------------------------

void CpuKernels::adamw(Array parameters, Array momentum, Array variance, ConstArray gradients, const AdamWStep& step) {
  const Index size = parameters.size;
  require(momentum.size == size && variance.size == size && gradients.size == size, "views of different sizes");
  table_.adamw(elements(parameters, size), elements(momentum, size), elements(variance, size),
               elements(gradients, size), count(size), adamw_scalars(step));
}

// --- layers: forward -------------------------------------------------------------------------------------------------

void CpuKernels::embedding_forward(Array out, const std::int32_t* tokens, ConstArray token_table,
                                   ConstArray position_table, Index B, Index T, Index C) {
  float* o = elements(out, B * T * C);
  const float* token_rows = elements(token_table, 0);
  const float* position_rows = elements(position_table, T * C);
  for (Index r = 0; r < B * T; ++r) {
    const Index token = checked(tokens[r], token_table.size / C);
    table_.add(o + r * C, token_rows + token * C, position_rows + r % T * C, count(C));
  }
}

void CpuKernels::layernorm_forward(Array out, Array mean, Array rstd, ConstArray in, ConstArray weight, ConstArray bias,
                                   Index rows, Index C) {
  table_.layernorm_forward(elements(out, rows * C), elements(mean, rows), elements(rstd, rows), elements(in, rows * C),
                           elements(weight, C), elements(bias, C), count(rows), count(C));
}

void CpuKernels::add_bias(Array out, ConstArray bias, Index rows, Index columns) {
  table_.add_bias(elements(out, rows * columns), elements(bias, columns), count(rows), count(columns));
}

void CpuKernels::add_bias_residual(Array out, ConstArray in, ConstArray bias, ConstArray residual, Index rows,
                                   Index columns) {
  table_.add_bias_residual(elements(out, rows * columns), elements(in, rows * columns), elements(bias, columns),
                           elements(residual, rows * columns), count(rows), count(columns));
}

void CpuKernels::bias_gelu_forward(Array out, Array pre, ConstArray bias, Index rows, Index columns) {
  table_.bias_gelu_forward(elements(out, rows * columns), elements(pre, rows * columns), elements(bias, columns),
                           count(rows), count(columns));
}

void CpuKernels::causal_softmax_forward(Array scores, float scale, Index matrices, Index T) {
  table_.causal_softmax_forward(elements(scores, matrices * T * T), scale, count(matrices), count(T));
}

void CpuKernels::cross_entropy(Array losses, Array logits, const std::int32_t* targets, float gradient_scale,
                               Index rows, Index V) {
  for (Index r = 0; r < rows; ++r) checked(targets[r], V);
  table_.cross_entropy(elements(losses, rows), elements(logits, rows * V), targets, gradient_scale, count(rows),
                       count(V));
}

// --- layers: backward ------------------------------------------------------------------------------------------------

void CpuKernels::layernorm_backward(Array d_in, bool accumulate, Array d_weight, Array d_bias, ConstArray d_out,
                                    ConstArray in, ConstArray weight, ConstArray mean, ConstArray rstd, Index rows,
                                    Index C) {
  table_.layernorm_backward(elements(d_in, rows * C), accumulate, elements(d_weight, C), elements(d_bias, C),
                            elements(d_out, rows * C), elements(in, rows * C), elements(weight, C),
                            elements(mean, rows), elements(rstd, rows), count(rows), count(C));
}

void CpuKernels::bias_backward(Array d_bias, ConstArray d_out, Index rows, Index columns) {
  table_.bias_backward(elements(d_bias, columns), elements(d_out, rows * columns), count(rows), count(columns));
}

void CpuKernels::gelu_backward(Array d, ConstArray pre) {
  require(d.size == pre.size, "views of different sizes");
  table_.gelu_backward(elements(d, d.size), elements(pre, d.size), count(d.size));
}

void CpuKernels::causal_softmax_backward(Array d, ConstArray probabilities, float scale, Index matrices, Index T) {
  table_.causal_softmax_backward(elements(d, matrices * T * T), elements(probabilities, matrices * T * T), scale,
                                 count(matrices), count(T));
}

void CpuKernels::embedding_backward(Array d_token_table, Array d_position_table, const std::int32_t* tokens,
                                    ConstArray d, Index B, Index T, Index C) {
  float* token_rows = elements(d_token_table, 0);
  float* position_rows = elements(d_position_table, T * C);
  const float* rows = elements(d, B * T * C);
  for (Index r = 0; r < B * T; ++r) {
    const Index token = checked(tokens[r], d_token_table.size / C);
    table_.accumulate(token_rows + token * C, rows + r * C, count(C));
  }
  if (B == 0) std::fill_n(position_rows, T * C, 0.0F);
  if (B > 0) std::copy_n(rows, T * C, position_rows);
  for (Index b = 1; b < B; ++b) table_.accumulate(position_rows, rows + b * T * C, count(T * C));
}

}  // namespace zero
