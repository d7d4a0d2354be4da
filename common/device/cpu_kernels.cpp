#include "common/device/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/device/kernel_views.h"

namespace zero {
namespace {

/// Terms that all have `size` elements, as the loops take them.
std::vector<Term> terms_of(std::span<const ConstArray> terms, Index size) {
  require(!terms.empty(), "no terms");
  std::vector<Term> result;
  result.reserve(terms.size());
  for (const ConstArray& term : terms) {
    require(term.size == size, "terms of different sizes");
    require(term.dtype != Dtype::int32, "a view of the wrong type");
    result.push_back({term.data, term.dtype == Dtype::bf16});
  }
  return result;
}

/// Row `row` of a table of `rows` rows of C elements, for an index that came from data.
Index checked(std::int32_t row, Index rows) {
  require(row >= 0 && row < rows, "a token or target outside its table");
  return row;
}

}  // namespace

KernelTables kernel_tables(CpuIsa isa) {
  KernelTables tables{};
  switch (isa) {
#ifdef ZERO_HAVE_X86_ISAS
    case CpuIsa::avx512:
      add_elementwise_kernels_avx512(tables);
      add_sum_kernels_avx512(tables);
      add_row_kernels_avx512(tables);
      return tables;
    case CpuIsa::avx2:
      add_elementwise_kernels_avx2(tables);
      add_sum_kernels_avx2(tables);
      add_row_kernels_avx2(tables);
      return tables;
#endif
    default:
      add_elementwise_kernels_generic(tables);
      add_sum_kernels_generic(tables);
      add_row_kernels_generic(tables);
      return tables;
  }
}

template <class Work>
void CpuKernels::with(Dtype dtype, Work work) const {
  require(dtype != Dtype::int32, "a view of the wrong type");
  if (dtype == Dtype::bf16) {
    work(tables_.bf16);
  } else {
    work(tables_.fp32);
  }
}

// --- moving and filling ----------------------------------------------------------------------------------------------

void CpuKernels::copy(Array out, ConstArray in) {
  require(out.size == in.size, "a copy between views of different sizes");
  if (out.dtype == in.dtype) {
    if (out.size > 0 && out.data != in.data) std::memcpy(out.data, in.data, count(in.bytes()));
  } else if (out.dtype == Dtype::fp32) {
    tables_.bf16.widen(elements<float>(out, out.size), elements<Bf16>(in, out.size), count(out.size));
  } else {
    tables_.bf16.round(elements<Bf16>(out, out.size), elements<float>(in, out.size), count(out.size));
  }
}

void CpuKernels::fill(Array out, float value) {
  with(out.dtype,
       [&]<class T>(const KernelTable<T>& loops) { loops.fill(elements<T>(out, out.size), value, count(out.size)); });
}

void CpuKernels::fill_normal(Array out, std::uint64_t seed, Index tensor, Index first, float standard_deviation) {
  with(out.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.fill_normal(elements<T>(out, out.size), seed, static_cast<std::uint64_t>(tensor),
                      static_cast<std::uint64_t>(first), standard_deviation, count(out.size));
  });
}

// --- sums of gradients -----------------------------------------------------------------------------------------------

void CpuKernels::tree_sum(Array out, std::span<const ConstArray> terms) {
  const std::vector<Term> from = terms_of(terms, out.size);
  with(out.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.tree_sum(elements<T>(out, out.size), from.data(), from.size(), count(out.size));
  });
}

void CpuKernels::merge_sums(Array out, std::span<const ConstArray> terms, float divisor) {
  const std::vector<Term> from = terms_of(terms, out.size);
  with(out.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.merge_sums(elements<T>(out, out.size), from.data(), from.size(), divisor, count(out.size));
  });
}

void CpuKernels::scan(ConstArray in, Index tensor) {
  constexpr Index kBlock = 32;
  constexpr Index kBlocks = 256;
  std::array<double, kBlocks> squares;
  with(in.dtype, [&]<class T>(const KernelTable<T>& loops) {
    for (Index begin = 0; begin < in.size; begin += kBlock * kBlocks) {
      const Index size = std::min(in.size - begin, kBlock * kBlocks);
      loops.block_squares(squares.data(), elements<T>(in, in.size) + begin, count(size));
      for (Index b = 0; b < divide_up(size, kBlock); ++b) {
        found_.squares.add(squares[count(b)]);
        if (!std::isfinite(squares[count(b)])) found_.first_not_finite = std::min(found_.first_not_finite, tensor);
      }
    }
  });
}

double CpuKernels::sum_in_order(ConstArray in) {
  double sum = 0;
  with(in.dtype, [&]<class T>(const KernelTable<T>&) {
    const T* x = elements<T>(in, in.size);
    for (Index i = 0; i < in.size; ++i) sum += static_cast<double>(to_float(x[i]));
  });
  return sum;
}

void CpuKernels::digest(Digest& digest, ConstArray in, Index tensor, Index first) {
  with(in.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.digest(&digest.low, &digest.high, elements<T>(in, in.size), static_cast<std::uint64_t>(tensor),
                 static_cast<std::uint64_t>(first), count(in.size));
  });
}

// --- optimizer -------------------------------------------------------------------------------------------------------

void CpuKernels::adamw(Array parameters, Array momentum, Array variance, ConstArray gradients, Array rounded,
                       const AdamWStep& step) {
  const Index size = parameters.size;
  require(momentum.size == size && variance.size == size && gradients.size == size, "views of different sizes");
  require(rounded.size == size || rounded.size == 0, "views of different sizes");
  with(gradients.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.adamw(elements<float>(parameters, size), elements<float>(momentum, size), elements<float>(variance, size),
                elements<T>(gradients, size), rounded.size > 0 ? elements<T>(rounded, size) : nullptr, count(size),
                adamw_scalars(step));
  });
}

// --- layers: forward -------------------------------------------------------------------------------------------------

void CpuKernels::embedding_forward(Array out, const std::int32_t* tokens, ConstArray token_table,
                                   ConstArray position_table, Index B, Index T, Index C) {
  with(out.dtype, [&]<class S>(const KernelTable<S>& loops) {
    S* o = elements<S>(out, B * T * C);
    const S* token_rows = elements<S>(token_table, 0);
    const S* position_rows = elements<S>(position_table, T * C);
    for (Index r = 0; r < B * T; ++r) {
      const Index token = checked(tokens[r], token_table.size / C);
      loops.add(o + r * C, token_rows + token * C, position_rows + r % T * C, count(C));
    }
  });
}

void CpuKernels::layernorm_forward(Array out, Array mean, Array rstd, ConstArray in, ConstArray weight, ConstArray bias,
                                   Index rows, Index C) {
  with(out.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.layernorm_forward(elements<T>(out, rows * C), elements<float>(mean, rows), elements<float>(rstd, rows),
                            elements<T>(in, rows * C), elements<T>(weight, C), elements<T>(bias, C), count(rows),
                            count(C));
  });
}

void CpuKernels::add_bias(Array out, ConstArray bias, Index rows, Index columns) {
  with(out.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.add_bias(elements<T>(out, rows * columns), elements<T>(bias, columns), count(rows), count(columns));
  });
}

void CpuKernels::add_bias_residual(Array out, ConstArray in, ConstArray bias, ConstArray residual, Index rows,
                                   Index columns) {
  with(out.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.add_bias_residual(elements<T>(out, rows * columns), elements<T>(in, rows * columns),
                            elements<T>(bias, columns), elements<T>(residual, rows * columns), count(rows),
                            count(columns));
  });
}

void CpuKernels::bias_gelu_forward(Array out, Array pre, ConstArray bias, Index rows, Index columns) {
  with(out.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.bias_gelu_forward(elements<T>(out, rows * columns), elements<T>(pre, rows * columns),
                            elements<T>(bias, columns), count(rows), count(columns));
  });
}

void CpuKernels::causal_softmax_forward(Array scores, float scale, Index matrices, Index T) {
  with(scores.dtype, [&]<class S>(const KernelTable<S>& loops) {
    loops.causal_softmax_forward(elements<S>(scores, matrices * T * T), scale, count(matrices), count(T));
  });
}

void CpuKernels::cross_entropy(Array losses, Array logits, const std::int32_t* targets, float gradient_scale,
                               Index rows, Index V) {
  for (Index r = 0; r < rows; ++r) checked(targets[r], V);
  with(logits.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.cross_entropy(elements<float>(losses, rows), elements<T>(logits, rows * V), targets, gradient_scale,
                        count(rows), count(V));
  });
}

// --- layers: backward ------------------------------------------------------------------------------------------------

void CpuKernels::layernorm_backward(Array d_in, bool accumulate, Array d_weight, Array d_bias, ConstArray d_out,
                                    ConstArray in, ConstArray weight, ConstArray mean, ConstArray rstd, Index rows,
                                    Index C) {
  with(d_in.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.layernorm_backward(elements<T>(d_in, rows * C), accumulate, elements<T>(d_weight, C), elements<T>(d_bias, C),
                             elements<T>(d_out, rows * C), elements<T>(in, rows * C), elements<T>(weight, C),
                             elements<float>(mean, rows), elements<float>(rstd, rows), count(rows), count(C));
  });
}

void CpuKernels::bias_backward(Array d_bias, ConstArray d_out, Index rows, Index columns) {
  with(d_bias.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.column_sums(elements<T>(d_bias, columns), elements<T>(d_out, rows * columns), count(rows), count(columns));
  });
}

void CpuKernels::gelu_backward(Array d, ConstArray pre) {
  require(d.size == pre.size, "views of different sizes");
  with(d.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.gelu_backward(elements<T>(d, d.size), elements<T>(pre, d.size), count(d.size));
  });
}

void CpuKernels::causal_softmax_backward(Array d, ConstArray probabilities, float scale, Index matrices, Index T) {
  with(d.dtype, [&]<class S>(const KernelTable<S>& loops) {
    loops.causal_softmax_backward(elements<S>(d, matrices * T * T), elements<S>(probabilities, matrices * T * T), scale,
                                  count(matrices), count(T));
  });
}

void CpuKernels::token_table_backward(Array rows, Index first_row, const std::int32_t* tokens, ConstArray d, Index R,
                                      Index C) {
  with(d.dtype, [&]<class T>(const KernelTable<T>& loops) {
    float* to = elements<float>(rows, 0);
    const T* from = elements<T>(d, R * C);
    const Index rows_count = rows.size / C;
    for (Index r = 0; r < R; ++r) {
      require(tokens[r] >= 0, "a token outside its table");
      const Index row = tokens[r] - first_row;
      if (row >= 0 && row < rows_count) loops.accumulate(to + row * C, from + r * C, count(C));
    }
  });
}

void CpuKernels::position_table_backward(Array d_position_table, ConstArray d, Index B, Index T, Index C) {
  bias_backward(d_position_table, d, B, T * C);  // the same sum: over B rows of T * C columns
}

// --- dropout ---------------------------------------------------------------------------------------------------------

void CpuKernels::dropout(Array out, ConstArray in, double rate, std::uint64_t seed, std::uint64_t stream, Index first) {
  require(out.size == in.size, "views of different sizes");
  require(rate >= 0 && rate < 1, "a dropout rate outside [0, 1)");
  with(out.dtype, [&]<class T>(const KernelTable<T>& loops) {
    loops.dropout(elements<T>(out, out.size), elements<T>(in, out.size), dropout_scalars(rate), seed, stream,
                  static_cast<std::uint64_t>(first), count(out.size));
  });
}

}  // namespace zero
