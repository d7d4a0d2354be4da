// Loops in which every element stands for itself, and the sums over bits and blocks.
#include "common/device/cpu/kernel_table.h"
#include "common/device/cpu/loops.h"
#include "common/device/scalar_math.h"

namespace zero {
namespace {

template <class T>
void fill(T* out, float value, std::size_t n) {
  const T stored = from_float<T>(value);
  for (std::size_t i = 0; i < n; ++i) out[i] = stored;
}

template <class T>
void fill_normal(T* out, std::uint64_t seed, std::uint64_t tensor, std::uint64_t first, float standard_deviation,
                 std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = from_float<T>(standard_deviation * normal_of(philox_bits(seed, tensor, first + i)));
  }
}

/// The tree over a number of terms known to the compiler.
template <std::size_t kTerms, class T>
inline float tree_of(const T* const* terms, std::size_t i) {
  if constexpr (kTerms == 1) {
    return to_float(terms[0][i]);
  } else {
    constexpr std::size_t kSplit = kTerms > 4 ? 4 : kTerms > 2 ? 2 : 1;
    return tree_of<kSplit>(terms, i) + tree_of<kTerms - kSplit>(terms + kSplit, i);
  }
}

template <std::size_t kTerms, class T, class Out>
inline void tree_loop(Out* out, const T* const* terms, std::size_t n) {
  const T* local[kTerms];
  for (std::size_t t = 0; t < kTerms; ++t) local[t] = terms[t];
  ZERO_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] = from_float<Out>(tree_of<kTerms>(local, i));
}

template <class T, class Out>
void small_tree(Out* out, const T* const* terms, std::size_t count, std::size_t n) {
  switch (count) {
    case 1: return tree_loop<1>(out, terms, n);
    case 2: return tree_loop<2>(out, terms, n);
    case 3: return tree_loop<3>(out, terms, n);
    case 4: return tree_loop<4>(out, terms, n);
    case 5: return tree_loop<5>(out, terms, n);
    case 6: return tree_loop<6>(out, terms, n);
    case 7: return tree_loop<7>(out, terms, n);
    default: return tree_loop<8>(out, terms, n);
  }
}

constexpr std::size_t kPiece = 512;  ///< elements handled at a time where a loop needs room for partial results

/// The tree over any number of terms, for n <= kPiece elements of each from `begin` on, in fp32.
template <class T>
void piece_of_tree(float* out, const T* const* terms, std::size_t count, std::size_t begin, std::size_t n) {
  if (count <= 8) {
    const T* moved[8];
    for (std::size_t t = 0; t < count; ++t) moved[t] = terms[t] + begin;
    small_tree(out, moved, count, n);
    return;
  }
  const std::size_t split = tree_split(count);
  float right[kPiece];
  piece_of_tree(out, terms, split, begin, n);
  piece_of_tree(right, terms + split, count - split, begin, n);
  ZERO_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] += right[i];
}

template <class T>
void tree_sum(T* out, const T* const* terms, std::size_t count, std::size_t n) {
  if (count <= 8) return small_tree(out, terms, count, n);
  float sum[kPiece];  // `out` may be a term: it is written when the piece has been read from all of them
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t piece = n - begin < kPiece ? n - begin : kPiece;
    piece_of_tree(sum, terms, count, begin, piece);
    for (std::size_t i = 0; i < piece; ++i) out[begin + i] = from_float<T>(sum[i]);
  }
}

template <class T>
void merge_sums(T* out, const T* const* terms, std::size_t count, float divisor, std::size_t n) {
  float sum[kPiece];
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t piece = n - begin < kPiece ? n - begin : kPiece;
    const T* last = terms[count - 1] + begin;
    for (std::size_t i = 0; i < piece; ++i) sum[i] = to_float(last[i]);
    for (std::size_t t = count - 1; t-- > 0;) {
      const T* term = terms[t] + begin;
      for (std::size_t i = 0; i < piece; ++i) sum[i] = to_float(term[i]) + sum[i];
    }
    // Division by 1 changes no bit.
    for (std::size_t i = 0; i < piece; ++i) out[begin + i] = from_float<T>(sum[i] / divisor);
  }
}

template <class T>
void block_squares(double* sums, const T* in, std::size_t n) {
  constexpr std::size_t kBlock = 32;
  constexpr std::size_t kTogether = 8;  // independent chains, so that they overlap
  std::size_t begin = 0;
  for (; begin + kTogether * kBlock <= n; begin += kTogether * kBlock) {
    double chain[kTogether] = {};
    for (std::size_t i = 0; i < kBlock; ++i) {
      for (std::size_t b = 0; b < kTogether; ++b) {
        const double x = static_cast<double>(to_float(in[begin + b * kBlock + i]));
        chain[b] += x * x;
      }
    }
    for (std::size_t b = 0; b < kTogether; ++b) sums[begin / kBlock + b] = chain[b];
  }
  for (; begin < n; begin += kBlock) {
    double chain = 0;
    for (std::size_t i = begin; i < n && i < begin + kBlock; ++i) {
      const double x = static_cast<double>(to_float(in[i]));
      chain += x * x;
    }
    sums[begin / kBlock] = chain;
  }
}

template <class T>
inline bool not_finite(T x) {
  return (bits_of(to_float(x)) & 0x7F800000U) == 0x7F800000U;
}

template <class T>
std::size_t first_non_finite(const T* in, std::size_t n) {
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t end = n - begin < kPiece ? n : begin + kPiece;
    std::uint32_t any = 0;
    for (std::size_t i = begin; i < end; ++i) any |= not_finite(in[i]) ? 1U : 0U;
    if (any == 0) continue;
    for (std::size_t i = begin; i < end; ++i) {
      if (not_finite(in[i])) return i;
    }
  }
  return n;
}

template <class T>
void digest(std::uint64_t* low, std::uint64_t* high, const T* in, std::uint64_t tensor, std::uint64_t first,
            std::size_t n) {
  const std::uint64_t key = tensor_key(tensor);
  constexpr std::size_t kCarryFree = std::size_t{1} << 30;  // so many sums of 32-bit halves fit in 64 bits
  for (std::size_t begin = 0; begin < n; begin += kCarryFree) {
    const std::size_t end = n - begin < kCarryFree ? n : begin + kCarryFree;
    std::uint64_t half0 = 0;
    std::uint64_t half1 = 0;
    std::uint64_t top = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const ElementHash hash = element_hash(key, first + i, bits_of(to_float(in[i])));
      half0 += hash.low & 0xFFFFFFFFU;
      half1 += hash.low >> 32;
      top += hash.high;
    }
    const std::uint64_t added = half0 + (half1 << 32);
    top += (half1 >> 32) + (added < half0 ? 1U : 0U);
    *low += added;
    *high += top + (*low < added ? 1U : 0U);
  }
}

void adamw(float* parameters, float* momentum, float* variance, const float* gradients, std::size_t n,
           const AdamWScalars& scalars) {
  const AdamWScalars s = scalars;  // a copy: nothing that the loop writes can be one of them
  ZERO_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) adamw_element(parameters[i], momentum[i], variance[i], gradients[i], s);
}

template <class T>
void gelu_backward(T* d, const T* pre, std::size_t n) {
  ZERO_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) d[i] = from_float<T>(to_float(d[i]) * gelu_derivative(to_float(pre[i])));
}

template <class T>
void add(T* out, const T* a, const T* b, std::size_t n) {
  ZERO_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
}

template <class T>
void accumulate(T* out, const T* in, std::size_t n) {
  add(out, out, in, n);
}

template <class T>
void add_bias(T* out, const T* bias, std::size_t rows, std::size_t columns) {
  for (std::size_t r = 0; r < rows; ++r) add(out + r * columns, out + r * columns, bias, columns);
}

template <class T>
void add_bias_residual(T* out, const T* in, const T* bias, const T* residual, std::size_t rows, std::size_t columns) {
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t row = r * columns;
    ZERO_INDEPENDENT
    for (std::size_t c = 0; c < columns; ++c) {
      out[row + c] = from_float<T>(to_float(residual[row + c]) + (to_float(in[row + c]) + to_float(bias[c])));
    }
  }
}

template <class T>
void bias_gelu_forward(T* out, T* pre, const T* bias, std::size_t rows, std::size_t columns) {
  for (std::size_t r = 0; r < rows; ++r) {
    T* out_row = out + r * columns;
    T* pre_row = pre + r * columns;
    ZERO_INDEPENDENT
    for (std::size_t c = 0; c < columns; ++c) {
      const T x = from_float<T>(to_float(pre_row[c]) + to_float(bias[c]));
      pre_row[c] = x;
      out_row[c] = from_float<T>(gelu(to_float(x)));
    }
  }
}

}  // namespace

void ZERO_FOR_ISA(add_elementwise_kernels)(KernelTable& table) {
  table.fill = fill<float>;
  table.fill_normal = fill_normal<float>;
  table.tree_sum = tree_sum<float>;
  table.merge_sums = merge_sums<float>;
  table.block_squares = block_squares<float>;
  table.first_non_finite = first_non_finite<float>;
  table.digest = digest<float>;
  table.adamw = adamw;
  table.gelu_backward = gelu_backward<float>;
  table.add = add<float>;
  table.accumulate = accumulate<float>;
  table.add_bias = add_bias<float>;
  table.add_bias_residual = add_bias_residual<float>;
  table.bias_gelu_forward = bias_gelu_forward<float>;
}

}  // namespace zero
