// Loops over rows: sums down the columns, layer norm, softmax, cross entropy. Sums down a column are one chain per
// column in rising rows; sums along a row have the fixed lanes of loops.h.
#include "common/device/cpu/kernel_table.h"
#include "common/device/cpu/loops.h"
#include "common/device/scalar_math.h"

namespace zero {
namespace {

constexpr std::size_t kColumns = 1024;  ///< columns summed at a time, in fp32 on the stack

template <class T>
void column_sums(T* out, const T* in, std::size_t rows, std::size_t columns) {
  float sum[kColumns];
  for (std::size_t begin = 0; begin < columns; begin += kColumns) {
    const std::size_t n = columns - begin < kColumns ? columns - begin : kColumns;
    for (std::size_t c = 0; c < n; ++c) sum[c] = rows > 0 ? to_float(in[begin + c]) : 0.0F;
    for (std::size_t r = 1; r < rows; ++r) {
      const T* row = in + r * columns + begin;
      for (std::size_t c = 0; c < n; ++c) sum[c] += to_float(row[c]);
    }
    for (std::size_t c = 0; c < n; ++c) out[begin + c] = from_float<T>(sum[c]);
  }
}

template <class T>
void layernorm_forward(T* out, float* mean, float* rstd, const T* in, const T* weight, const T* bias, std::size_t rows,
                       std::size_t columns) {
  const float count = static_cast<float>(columns);
  for (std::size_t r = 0; r < rows; ++r) {
    const T* x = in + r * columns;
    T* y = out + r * columns;
    const float m = lane_sum(columns, [&](std::size_t c) { return to_float(x[c]); }) / count;
    const float squares = lane_sum(columns, [&](std::size_t c) {
      const float d = to_float(x[c]) - m;
      return d * d;
    });
    const float s = layernorm_rstd(squares, count);
    ZERO_INDEPENDENT
    for (std::size_t c = 0; c < columns; ++c) {
      y[c] =
          from_float<T>(__builtin_fmaf(layernorm_normal(to_float(x[c]), m, s), to_float(weight[c]), to_float(bias[c])));
    }
    mean[r] = m;
    rstd[r] = s;
  }
}

// The gradient of a row through layer norm: with n = (x - mean) rstd and g = dy weight,
//   d_weight += dy n,  d_bias += dy,  dx = rstd (g - mean(g) - n mean(g n)).

/// d_weight and d_bias: down the columns.
template <class T>
void layernorm_backward_weights(T* d_weight, T* d_bias, const T* d_out, const T* in, const float* mean,
                                const float* rstd, std::size_t rows, std::size_t columns) {
  float weight_sum[kColumns];
  float bias_sum[kColumns];
  for (std::size_t begin = 0; begin < columns; begin += kColumns) {
    const std::size_t n = columns - begin < kColumns ? columns - begin : kColumns;
    for (std::size_t c = 0; c < n; ++c) {
      const float d = rows > 0 ? to_float(d_out[begin + c]) : 0.0F;
      weight_sum[c] = rows > 0 ? d * layernorm_normal(to_float(in[begin + c]), mean[0], rstd[0]) : 0.0F;
      bias_sum[c] = d;
    }
    for (std::size_t r = 1; r < rows; ++r) {
      const T* dy = d_out + r * columns + begin;
      const T* x = in + r * columns + begin;
      const float m = mean[r];
      const float s = rstd[r];
      for (std::size_t c = 0; c < n; ++c) {
        const float d = to_float(dy[c]);
        weight_sum[c] = __builtin_fmaf(d, layernorm_normal(to_float(x[c]), m, s), weight_sum[c]);
        bias_sum[c] += d;
      }
    }
    for (std::size_t c = 0; c < n; ++c) {
      d_weight[begin + c] = from_float<T>(weight_sum[c]);
      d_bias[begin + c] = from_float<T>(bias_sum[c]);
    }
  }
}

/// dx of one row.
template <bool kAccumulate, class T>
inline void layernorm_backward_row(T* dx, const T* dy, const T* x, const T* weight, float mean, float rstd,
                                   std::size_t columns) {
  const float count = static_cast<float>(columns);
  const float mean_g = lane_sum(columns, [&](std::size_t c) { return to_float(dy[c]) * to_float(weight[c]); }) / count;
  const float mean_gn = lane_sum(columns,
                                 [&](std::size_t c) {
                                   const float n = layernorm_normal(to_float(x[c]), mean, rstd);
                                   return to_float(dy[c]) * to_float(weight[c]) * n;
                                 }) /
                        count;
  ZERO_INDEPENDENT
  for (std::size_t c = 0; c < columns; ++c) {
    const float n = layernorm_normal(to_float(x[c]), mean, rstd);
    const float g = to_float(dy[c]) * to_float(weight[c]);
    const float through = layernorm_gradient(g, n, mean_g, mean_gn, rstd);
    dx[c] = from_float<T>(kAccumulate ? to_float(dx[c]) + through : through);
  }
}

template <class T>
void layernorm_backward(T* d_in, bool accumulate, T* d_weight, T* d_bias, const T* d_out, const T* in, const T* weight,
                        const float* mean, const float* rstd, std::size_t rows, std::size_t columns) {
  layernorm_backward_weights(d_weight, d_bias, d_out, in, mean, rstd, rows, columns);  // first: d_in may be d_out
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t row = r * columns;
    if (accumulate) {
      layernorm_backward_row<true>(d_in + row, d_out + row, in + row, weight, mean[r], rstd[r], columns);
    } else {
      layernorm_backward_row<false>(d_in + row, d_out + row, in + row, weight, mean[r], rstd[r], columns);
    }
  }
}

/// x(i) becomes softmax_exp(x(i), scale, largest).
inline void exp_of(float* x, float scale, float largest, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = softmax_exp(x[i], scale, largest);
}

/// The same for a row of any length, the end of it through a full group of lanes: half of a causal row's groups would
/// otherwise be computed one element at a time.
inline void exp_of_row(float* x, float scale, float largest, std::size_t n) {
  const std::size_t whole = n / kLanes * kLanes;
  exp_of(x, scale, largest, whole);
  if (whole == n) return;
  float rest[kLanes] = {};
  for (std::size_t i = whole; i < n; ++i) rest[i - whole] = x[i];
  exp_of(rest, scale, largest, kLanes);
  for (std::size_t i = whole; i < n; ++i) x[i] = rest[i - whole];
}

/// x(i) becomes e(i) / sum of e * factor with e(i) = exp(scale x(i) - largest); returns the sum. An fp32 row holds the
/// exponentials until their sum is known.
inline float softmax_row(float* x, float scale, float largest, float factor, std::size_t n) {
  exp_of_row(x, scale, largest, n);
  const float sum = lane_sum(n, [&](std::size_t i) { return x[i]; });
  const float inverse = 1.0F / sum;
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] * inverse * factor;
  return sum;
}

/// The same for a bf16 row, rounded once: its exponentials stand in fp32 on the stack, and those of a long row are
/// computed piece by piece, twice.
inline float softmax_row(Bf16* x, float scale, float largest, float factor, std::size_t n) {
  constexpr std::size_t kPiece = 4096;  // a multiple of the lanes, so that an element keeps its lane
  float exps[kPiece];
  const auto take_piece = [&](std::size_t begin) {
    const std::size_t piece = n - begin < kPiece ? n - begin : kPiece;
    for (std::size_t i = 0; i < piece; ++i) exps[i] = to_float(x[begin + i]);
    exp_of_row(exps, scale, largest, piece);
    return piece;
  };
  LaneSum lanes;
  for (std::size_t begin = 0; begin < n; begin += kPiece) lanes.add(exps, take_piece(begin));
  const float sum = lanes.total();
  const float inverse = 1.0F / sum;
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t piece = n > kPiece ? take_piece(begin) : n;
    for (std::size_t i = 0; i < piece; ++i) x[begin + i] = from_float<Bf16>(exps[i] * inverse * factor);
  }
  return sum;
}

template <class T>
void causal_softmax_forward(T* scores, float scale, std::size_t count, std::size_t context) {
  for (std::size_t matrix = 0; matrix < count; ++matrix) {
    for (std::size_t t = 0; t < context; ++t) {
      T* row = scores + (matrix * context + t) * context;
      const std::size_t n = t + 1;
      const float largest = lane_max(n, [&](std::size_t s) { return scale * to_float(row[s]); });
      softmax_row(row, scale, largest, 1.0F, n);
      for (std::size_t s = n; s < context; ++s) row[s] = from_float<T>(0.0F);
    }
  }
}

template <class T>
void causal_softmax_backward(T* d, const T* probabilities, float scale, std::size_t count, std::size_t context) {
  for (std::size_t matrix = 0; matrix < count; ++matrix) {
    for (std::size_t t = 0; t < context; ++t) {
      T* row = d + (matrix * context + t) * context;
      const T* p = probabilities + (matrix * context + t) * context;
      const std::size_t n = t + 1;
      const float sum = lane_sum(n, [&](std::size_t s) { return to_float(p[s]) * to_float(row[s]); });
      ZERO_INDEPENDENT
      for (std::size_t s = 0; s < n; ++s)
        row[s] = from_float<T>(softmax_gradient(to_float(p[s]), to_float(row[s]), sum, scale));
      for (std::size_t s = n; s < context; ++s) row[s] = from_float<T>(0.0F);
    }
  }
}

template <class T>
void cross_entropy(float* losses, T* logits, const std::int32_t* targets, float gradient_scale, std::size_t rows,
                   std::size_t vocabulary) {
  for (std::size_t r = 0; r < rows; ++r) {
    T* row = logits + r * vocabulary;
    T& at_target = row[static_cast<std::size_t>(targets[r])];
    const float logit = to_float(at_target);
    const float largest = lane_max(vocabulary, [&](std::size_t v) { return to_float(row[v]); });
    const float sum = softmax_row(row, 1.0F, largest, gradient_scale, vocabulary);
    losses[r] = log_fp32(sum) + (largest - logit);
    at_target = from_float<T>(target_gradient(softmax_exp(logit, 1.0F, largest), 1.0F / sum, gradient_scale));
  }
}

template <class T>
void add_kernels(KernelTable<T>& table) {
  table.column_sums = column_sums<T>;
  table.layernorm_forward = layernorm_forward<T>;
  table.layernorm_backward = layernorm_backward<T>;
  table.causal_softmax_forward = causal_softmax_forward<T>;
  table.causal_softmax_backward = causal_softmax_backward<T>;
  table.cross_entropy = cross_entropy<T>;
}

}  // namespace

void ZERO_FOR_ISA(add_row_kernels)(KernelTables& tables) {
  add_kernels(tables.fp32);
  add_kernels(tables.bf16);
}

}  // namespace zero
