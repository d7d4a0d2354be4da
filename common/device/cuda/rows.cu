// Kernels over rows: sums down the columns, layer norm, softmax, cross entropy. Sums down a column are one chain per
// column in rising rows; sums along a row have the fixed lanes of grid.h.
#include "common/device/cuda/cuda_kernels.h"
#include "common/device/cuda/grid.h"
#include "common/device/kernel_views.h"

namespace zero {
namespace cuda {
namespace {

template <class T>
__global__ void column_sums(T* out, const T* in, Index rows, Index columns) {
  const Index c = first_element();
  if (c >= columns) return;
  float sum = rows > 0 ? to_float(in[c]) : 0.0F;
  for (Index r = 1; r < rows; ++r) sum += to_float(in[r * columns + c]);
  out[c] = from_float<T>(sum);
}

// --- layer norm ------------------------------------------------------------------------------------------------------

template <class T>
__global__ void layernorm_forward(T* out, float* mean, float* rstd, const T* in, const T* weight, const T* bias,
                                  Index rows, Index columns) {
  const RowLane at = row_lane(rows);
  const Index n = at.there ? columns : 0;
  const T* const x = in + at.row * columns;
  T* const y = out + at.row * columns;
  const float count = static_cast<float>(columns);
  const float m = lane_sum(at, n, [&](Index c) { return to_float(x[c]); }) / count;
  const float squares = lane_sum(at, n, [&](Index c) {
    const float d = to_float(x[c]) - m;
    return d * d;
  });
  const float s = layernorm_rstd(squares, count);
  for (Index c = at.lane; c < n; c += kLanes) {
    y[c] =
        from_float<T>(__builtin_fmaf(layernorm_normal(to_float(x[c]), m, s), to_float(weight[c]), to_float(bias[c])));
  }
  if (at.there && at.lane == 0) {
    mean[at.row] = m;
    rstd[at.row] = s;
  }
}

/// d_weight and d_bias: down the columns.
template <class T>
__global__ void layernorm_backward_weights(T* d_weight, T* d_bias, const T* d_out, const T* in, const float* mean,
                                           const float* rstd, Index rows, Index columns) {
  const Index c = first_element();
  if (c >= columns) return;
  float bias_sum = rows > 0 ? to_float(d_out[c]) : 0.0F;
  float weight_sum = rows > 0 ? bias_sum * layernorm_normal(to_float(in[c]), mean[0], rstd[0]) : 0.0F;
  for (Index r = 1; r < rows; ++r) {
    const float d = to_float(d_out[r * columns + c]);
    weight_sum = __builtin_fmaf(d, layernorm_normal(to_float(in[r * columns + c]), mean[r], rstd[r]), weight_sum);
    bias_sum += d;
  }
  d_weight[c] = from_float<T>(weight_sum);
  d_bias[c] = from_float<T>(bias_sum);
}

template <class T>
__global__ void layernorm_backward(T* d_in, bool accumulate, const T* d_out, const T* in, const T* weight,
                                   const float* mean, const float* rstd, Index rows, Index columns) {
  const RowLane at = row_lane(rows);
  const Index n = at.there ? columns : 0;
  const T* const x = in + at.row * columns;
  const T* const dy = d_out + at.row * columns;
  T* const dx = d_in + at.row * columns;
  const float m = at.there ? mean[at.row] : 0.0F;
  const float s = at.there ? rstd[at.row] : 0.0F;
  const float count = static_cast<float>(columns);
  const float mean_g = lane_sum(at, n, [&](Index c) { return to_float(dy[c]) * to_float(weight[c]); }) / count;
  const float mean_gn =
      lane_sum(
          at, n,
          [&](Index c) { return to_float(dy[c]) * to_float(weight[c]) * layernorm_normal(to_float(x[c]), m, s); }) /
      count;
  for (Index c = at.lane; c < n; c += kLanes) {
    const float g = to_float(dy[c]) * to_float(weight[c]);
    const float through = layernorm_gradient(g, layernorm_normal(to_float(x[c]), m, s), mean_g, mean_gn, s);
    dx[c] = from_float<T>(accumulate ? to_float(dx[c]) + through : through);
  }
}

// --- softmax ---------------------------------------------------------------------------------------------------------
// Exponentials are computed twice, for the sum and for the result, so that a row needs no memory beside it.

template <class T>
__global__ void causal_softmax_forward(T* scores, float scale, Index rows, Index context) {
  const RowLane at = row_lane(rows);
  T* const row = scores + at.row * context;
  const Index n = at.there ? at.row % context + 1 : 0;
  const float largest = lane_max(at, n, [&](Index s) { return scale * to_float(row[s]); });
  const float sum = lane_sum(at, n, [&](Index s) { return softmax_exp(to_float(row[s]), scale, largest); });
  const float inverse = 1.0F / sum;
  for (Index s = at.lane; s < n; s += kLanes) {
    row[s] = from_float<T>(softmax_exp(to_float(row[s]), scale, largest) * inverse);
  }
  for (Index s = n + at.lane; at.there && s < context; s += kLanes) row[s] = from_float<T>(0.0F);
}

template <class T>
__global__ void causal_softmax_backward(T* d, const T* probabilities, float scale, Index rows, Index context) {
  const RowLane at = row_lane(rows);
  T* const row = d + at.row * context;
  const T* const p = probabilities + at.row * context;
  const Index n = at.there ? at.row % context + 1 : 0;
  const float sum = lane_sum(at, n, [&](Index s) { return to_float(p[s]) * to_float(row[s]); });
  for (Index s = at.lane; s < n; s += kLanes) {
    row[s] = from_float<T>(softmax_gradient(to_float(p[s]), to_float(row[s]), sum, scale));
  }
  for (Index s = n + at.lane; at.there && s < context; s += kLanes) row[s] = from_float<T>(0.0F);
}

template <class T>
__global__ void cross_entropy(float* losses, T* logits, const std::int32_t* targets, float gradient_scale, Index rows,
                              Index vocabulary, std::uint32_t* bad_index) {
  const RowLane at = row_lane(rows);
  T* const row = logits + at.row * vocabulary;
  const Index n = at.there ? vocabulary : 0;
  const Index target = at.there ? targets[at.row] : 0;
  const bool known = target >= 0 && target < n;
  const float logit = known ? to_float(row[target]) : __builtin_nanf("");
  const float largest = lane_max(at, n, [&](Index v) { return to_float(row[v]); });
  const float sum = lane_sum(at, n, [&](Index v) { return softmax_exp(to_float(row[v]), 1.0F, largest); });
  const float inverse = 1.0F / sum;
  for (Index v = at.lane; v < n; v += kLanes) {
    const float e = softmax_exp(to_float(row[v]), 1.0F, largest);
    const float gradient = v == target ? target_gradient(e, inverse, gradient_scale) : e * inverse * gradient_scale;
    row[v] = from_float<T>(known ? gradient : logit);
  }
  if (at.there && at.lane == 0) {
    losses[at.row] = log_fp32(sum) + (largest - logit);
    if (!known) atomicOr(bad_index, 1U);
  }
}

}  // namespace
}  // namespace cuda

void CudaKernels::layernorm_forward(Array out, Array mean, Array rstd, ConstArray in, ConstArray weight,
                                    ConstArray bias, Index rows, Index C) {
  cuda::with_type(out.dtype, [&]<class T>(T) {
    cuda::launch("layernorm_forward", cuda::layernorm_forward<T>, cuda::row_grid(rows), stream_,
                 elements<T>(out, rows * C), elements<float>(mean, rows), elements<float>(rstd, rows),
                 elements<T>(in, rows * C), elements<T>(weight, C), elements<T>(bias, C), rows, C);
  });
}

void CudaKernels::layernorm_backward(Array d_in, bool accumulate, Array d_weight, Array d_bias, ConstArray d_out,
                                     ConstArray in, ConstArray weight, ConstArray mean, ConstArray rstd, Index rows,
                                     Index C) {
  cuda::with_type(d_in.dtype, [&]<class T>(T) {
    const T* const dy = elements<T>(d_out, rows * C);
    const T* const x = elements<T>(in, rows * C);
    const float* const m = elements<float>(mean, rows);
    const float* const s = elements<float>(rstd, rows);
    // First: d_in may be d_out.
    cuda::launch("layernorm_backward_weights", cuda::layernorm_backward_weights<T>, cuda::column_grid(C), stream_,
                 elements<T>(d_weight, C), elements<T>(d_bias, C), dy, x, m, s, rows, C);
    cuda::launch("layernorm_backward", cuda::layernorm_backward<T>, cuda::row_grid(rows), stream_,
                 elements<T>(d_in, rows * C), accumulate, dy, x, elements<T>(weight, C), m, s, rows, C);
  });
}

void CudaKernels::bias_backward(Array d_bias, ConstArray d_out, Index rows, Index columns) {
  cuda::with_type(d_bias.dtype, [&]<class T>(T) {
    cuda::launch("column_sums", cuda::column_sums<T>, cuda::column_grid(columns), stream_, elements<T>(d_bias, columns),
                 elements<T>(d_out, rows * columns), rows, columns);
  });
}

void CudaKernels::causal_softmax_forward(Array scores, float scale, Index matrices, Index T) {
  cuda::with_type(scores.dtype, [&]<class S>(S) {
    cuda::launch("causal_softmax_forward", cuda::causal_softmax_forward<S>, cuda::row_grid(matrices * T), stream_,
                 elements<S>(scores, matrices * T * T), scale, matrices * T, T);
  });
}

void CudaKernels::causal_softmax_backward(Array d, ConstArray probabilities, float scale, Index matrices, Index T) {
  cuda::with_type(d.dtype, [&]<class S>(S) {
    cuda::launch("causal_softmax_backward", cuda::causal_softmax_backward<S>, cuda::row_grid(matrices * T), stream_,
                 elements<S>(d, matrices * T * T), elements<S>(probabilities, matrices * T * T), scale, matrices * T,
                 T);
  });
}

void CudaKernels::cross_entropy(Array losses, Array logits, const std::int32_t* targets, float gradient_scale,
                                Index rows, Index V) {
  cuda::with_type(logits.dtype, [&]<class T>(T) {
    cuda::launch("cross_entropy", cuda::cross_entropy<T>, cuda::row_grid(rows), stream_, elements<float>(losses, rows),
                 elements<T>(logits, rows * V), targets, gradient_scale, rows, V, &device_->bad_index);
  });
}

}  // namespace zero
