// Loops over rows: sums down the columns, layer norm, softmax, cross entropy. Sums down a column are one chain per
// column in rising rows; sums along a row have the fixed lanes of loops.h.
#include "common/device/cpu/kernel_table.h"
#include "common/device/cpu/loops.h"
#include "common/device/scalar_math.h"

namespace zero {
namespace {

constexpr float kLayernormEpsilon = 1e-5F;

template <class T>
void bias_backward(float* d_bias, const T* d_out, std::size_t rows, std::size_t columns) {
  for (std::size_t c = 0; c < columns; ++c) d_bias[c] = rows > 0 ? to_float(d_out[c]) : 0.0F;
  for (std::size_t r = 1; r < rows; ++r) {
    const T* row = d_out + r * columns;
    ZERO_INDEPENDENT
    for (std::size_t c = 0; c < columns; ++c) d_bias[c] += to_float(row[c]);
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
    const float s = 1.0F / __builtin_sqrtf(squares / count + kLayernormEpsilon);
    ZERO_INDEPENDENT
    for (std::size_t c = 0; c < columns; ++c) {
      y[c] = from_float<T>(__builtin_fmaf((to_float(x[c]) - m) * s, to_float(weight[c]), to_float(bias[c])));
    }
    mean[r] = m;
    rstd[r] = s;
  }
}

/// One row of layernorm_backward: with n = (x - mean) rstd and g = dy weight, d_weight += dy n, d_bias += dy,
/// dx = rstd (g - mean(g) - n mean(g n)).
template <bool kFirst, bool kAccumulate, class T>
inline void layernorm_backward_row(T* dx, float* d_weight, float* d_bias, const T* dy, const T* x, const T* weight,
                                   float mean, float rstd, std::size_t columns) {
  const float count = static_cast<float>(columns);
  const float mean_g = lane_sum(columns, [&](std::size_t c) { return to_float(dy[c]) * to_float(weight[c]); }) / count;
  const float mean_gn = lane_sum(columns,
                                 [&](std::size_t c) {
                                   const float n = (to_float(x[c]) - mean) * rstd;
                                   return to_float(dy[c]) * to_float(weight[c]) * n;
                                 }) /
                        count;
  ZERO_INDEPENDENT
  for (std::size_t c = 0; c < columns; ++c) {
    const float n = (to_float(x[c]) - mean) * rstd;
    const float d = to_float(dy[c]);
    d_weight[c] = kFirst ? d * n : __builtin_fmaf(d, n, d_weight[c]);
    d_bias[c] = kFirst ? d : d_bias[c] + d;
    const float g = d * to_float(weight[c]);
    const float through = __builtin_fmaf(-n, mean_gn, g - mean_g) * rstd;
    dx[c] = from_float<T>(kAccumulate ? to_float(dx[c]) + through : through);
  }
}

template <bool kAccumulate, class T>
void layernorm_backward_rows(T* d_in, float* d_weight, float* d_bias, const T* d_out, const T* in, const T* weight,
                             const float* mean, const float* rstd, std::size_t rows, std::size_t columns) {
  if (rows == 0) {
    for (std::size_t c = 0; c < columns; ++c) d_weight[c] = d_bias[c] = 0;
    return;
  }
  layernorm_backward_row<true, kAccumulate>(d_in, d_weight, d_bias, d_out, in, weight, mean[0], rstd[0], columns);
  for (std::size_t r = 1; r < rows; ++r) {
    const std::size_t row = r * columns;
    layernorm_backward_row<false, kAccumulate>(d_in + row, d_weight, d_bias, d_out + row, in + row, weight, mean[r],
                                               rstd[r], columns);
  }
}

template <class T>
void layernorm_backward(T* d_in, bool accumulate, float* d_weight, float* d_bias, const T* d_out, const T* in,
                        const T* weight, const float* mean, const float* rstd, std::size_t rows, std::size_t columns) {
  if (accumulate) {
    layernorm_backward_rows<true>(d_in, d_weight, d_bias, d_out, in, weight, mean, rstd, rows, columns);
  } else {
    layernorm_backward_rows<false>(d_in, d_weight, d_bias, d_out, in, weight, mean, rstd, rows, columns);
  }
}

/// x(i) becomes exp(scale x(i) - largest) for n elements, NaN where scale x(i) is not finite: an infinite score must
/// not end as a probability of zero.
inline void exp_of(float* x, float scale, float largest, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float y = scale * x[i];
    x[i] = exp_fp32(y - largest) + (y - y);
  }
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

void causal_softmax_forward(float* scores, float scale, std::size_t count, std::size_t context) {
  for (std::size_t matrix = 0; matrix < count; ++matrix) {
    for (std::size_t t = 0; t < context; ++t) {
      float* row = scores + (matrix * context + t) * context;
      const std::size_t n = t + 1;
      const float largest = lane_max(n, [&](std::size_t s) { return scale * row[s]; });
      exp_of_row(row, scale, largest, n);
      const float inverse = 1.0F / lane_sum(n, [&](std::size_t s) { return row[s]; });
      for (std::size_t s = 0; s < n; ++s) row[s] *= inverse;
      for (std::size_t s = n; s < context; ++s) row[s] = 0;
    }
  }
}

void causal_softmax_backward(float* d, const float* probabilities, float scale, std::size_t count,
                             std::size_t context) {
  for (std::size_t matrix = 0; matrix < count; ++matrix) {
    for (std::size_t t = 0; t < context; ++t) {
      float* row = d + (matrix * context + t) * context;
      const float* p = probabilities + (matrix * context + t) * context;
      const std::size_t n = t + 1;
      const float sum = lane_sum(n, [&](std::size_t s) { return p[s] * row[s]; });
      ZERO_INDEPENDENT
      for (std::size_t s = 0; s < n; ++s) row[s] = scale * p[s] * (row[s] - sum);
      for (std::size_t s = n; s < context; ++s) row[s] = 0;
    }
  }
}

void cross_entropy(float* losses, float* logits, const std::int32_t* targets, float gradient_scale, std::size_t rows,
                   std::size_t vocabulary) {
  for (std::size_t r = 0; r < rows; ++r) {
    float* row = logits + r * vocabulary;
    const auto target = static_cast<std::size_t>(targets[r]);
    const float largest = lane_max(vocabulary, [&](std::size_t v) { return row[v]; });
    const float to_target = largest - row[target];
    exp_of_row(row, 1.0F, largest, vocabulary);
    const float sum = lane_sum(vocabulary, [&](std::size_t v) { return row[v]; });
    losses[r] = log_fp32(sum) + to_target;
    const float inverse = 1.0F / sum;
    const float at_target = (row[target] * inverse - 1.0F) * gradient_scale;
    for (std::size_t v = 0; v < vocabulary; ++v) row[v] = row[v] * inverse * gradient_scale;
    row[target] = at_target;
  }
}

}  // namespace

void ZERO_FOR_ISA(add_row_kernels)(KernelTable& table) {
  table.bias_backward = bias_backward<float>;
  table.layernorm_forward = layernorm_forward<float>;
  table.layernorm_backward = layernorm_backward<float>;
  table.causal_softmax_forward = causal_softmax_forward;
  table.causal_softmax_backward = causal_softmax_backward;
  table.cross_entropy = cross_entropy;
}

}  // namespace zero
