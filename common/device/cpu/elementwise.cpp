// Loops in which every element stands for itself.
#include "common/device/cpu/kernel_table.h"
#include "common/device/cpu/loops.h"
#include "common/device/scalar_math.h"

namespace zero {
namespace {

template <class T>
void widen(float* out, const T* in, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = to_float(in[i]);
}

template <class T>
void round(T* out, const float* in, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = from_float<T>(in[i]);
}

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

/// Asks for memory that a loop comes to next.
inline void prefetch(const float* from, std::size_t n) {
  constexpr std::size_t kLine = 64 / sizeof(float);
  for (std::size_t i = 0; i < n; i += kLine) __builtin_prefetch(from + i);
}

template <class T>
void adamw(float* parameters, float* momentum, float* variance, const T* gradients, T* rounded, std::size_t n,
           const AdamWScalars& scalars) {
  const AdamWScalars s = scalars;  // a copy: nothing that the loop writes can be one of them
  if (rounded == nullptr) {
    ZERO_INDEPENDENT
    for (std::size_t i = 0; i < n; ++i) {
      adamw_element(parameters[i], momentum[i], variance[i], to_float(gradients[i]), s);
    }
    return;
  }
  // With the rounding, this loop's divisions leave the processor no room to run ahead to the memory that comes next.
  constexpr std::size_t kPiece = 128;
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t end = n - begin < kPiece ? n : begin + kPiece;
    if (n - end >= kPiece) {
      prefetch(parameters + end, kPiece);
      prefetch(momentum + end, kPiece);
      prefetch(variance + end, kPiece);
    }
    ZERO_INDEPENDENT
    for (std::size_t i = begin; i < end; ++i) {
      adamw_element(parameters[i], momentum[i], variance[i], to_float(gradients[i]), s);
      rounded[i] = from_float<T>(parameters[i]);
    }
  }
}

/// The random words of whole groups of four elements, one after the other.
inline void random_words(std::uint32_t* words, std::uint64_t seed, std::uint64_t stream, std::uint64_t group,
                         std::size_t groups) {
  for (std::size_t g = 0; g < groups; ++g) {
    const PhiloxBlock block = dropout_words(seed, stream, group + g);
    for (std::size_t w = 0; w < 4; ++w) words[4 * g + w] = block.word[w];
  }
}

template <class T>
void dropout(T* out, const T* in, const DropoutScalars& scalars, std::uint64_t seed, std::uint64_t stream,
             std::uint64_t first, std::size_t n) {
  const DropoutScalars s = scalars;
  constexpr std::size_t kPiece = 512;
  std::uint32_t words[kPiece + 4];
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t piece = n - begin < kPiece ? n - begin : kPiece;
    const std::size_t into = (first + begin) % 4;  // a view may begin within a group
    random_words(words, seed, stream, (first + begin) / 4, (into + piece + 3) / 4);
    ZERO_INDEPENDENT
    for (std::size_t i = 0; i < piece; ++i) {
      out[begin + i] = from_float<T>(dropout_element(to_float(in[begin + i]), words[into + i], s));
    }
  }
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
void accumulate(float* out, const T* in, std::size_t n) {
  ZERO_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] += to_float(in[i]);
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
      const float sum = to_float(pre_row[c]) + to_float(bias[c]);
      pre_row[c] = from_float<T>(sum);
      out_row[c] = from_float<T>(gelu(to_float(from_float<T>(sum))));  // of what is stored
    }
  }
}

template <class T>
void add_kernels(KernelTable<T>& table) {
  table.widen = widen<T>;
  table.round = round<T>;
  table.fill = fill<T>;
  table.fill_normal = fill_normal<T>;
  table.adamw = adamw<T>;
  table.dropout = dropout<T>;
  table.gelu_backward = gelu_backward<T>;
  table.add = add<T>;
  table.accumulate = accumulate<T>;
  table.add_bias = add_bias<T>;
  table.add_bias_residual = add_bias_residual<T>;
  table.bias_gelu_forward = bias_gelu_forward<T>;
}

}  // namespace

void ZERO_FOR_ISA(add_elementwise_kernels)(KernelTables& tables) {
  add_kernels(tables.fp32);
  add_kernels(tables.bf16);
}

}  // namespace zero
