// Kernels in which every element stands for itself.
#include "common/device/cuda/cuda_kernels.h"
#include "common/device/cuda/grid.h"
#include "common/device/kernel_views.h"

namespace zero {
namespace cuda {
namespace {

template <class Out, class In>
__global__ void convert(Out* out, const In* in, Index n) {
  for (Index i = first_element(); i < n; i += element_stride()) out[i] = from_float<Out>(to_float(in[i]));
}

template <class T>
__global__ void fill(T* out, float value, Index n) {
  for (Index i = first_element(); i < n; i += element_stride()) out[i] = from_float<T>(value);
}

template <class T>
__global__ void fill_normal(T* out, std::uint64_t seed, std::uint64_t tensor, std::uint64_t first,
                            float standard_deviation, Index n) {
  for (Index i = first_element(); i < n; i += element_stride()) {
    const std::uint64_t random = philox_bits(seed, tensor, first + static_cast<std::uint64_t>(i));
    out[i] = from_float<T>(standard_deviation * normal_of(random));
  }
}

template <class T>
__global__ void adamw(float* parameters, float* momentum, float* variance, const T* gradients, T* rounded, Index n,
                      AdamWScalars scalars) {
  for (Index i = first_element(); i < n; i += element_stride()) {
    adamw_element(parameters[i], momentum[i], variance[i], to_float(gradients[i]), scalars);
    if (rounded != nullptr) rounded[i] = from_float<T>(parameters[i]);
  }
}

/// A thread for each group of four elements, which share a block of random words. A view may begin within a group.
template <class T>
__global__ void dropout(T* out, const T* in, DropoutScalars scalars, std::uint64_t seed, std::uint64_t stream,
                        Index first, Index groups, Index n) {
  const Index first_group = first / 4;
  for (Index g = first_element(); g < groups; g += element_stride()) {
    const PhiloxBlock words = dropout_words(seed, stream, static_cast<std::uint64_t>(first_group + g));
    for (Index w = 0; w < 4; ++w) {
      const Index i = (first_group + g) * 4 + w - first;
      if (i >= 0 && i < n) out[i] = from_float<T>(dropout_element(to_float(in[i]), words.word[w], scalars));
    }
  }
}

template <class T>
__global__ void add_bias(T* out, const T* bias, Index n, Index columns) {
  for (Index i = first_element(); i < n; i += element_stride()) {
    out[i] = from_float<T>(to_float(out[i]) + to_float(bias[i % columns]));
  }
}

template <class T>
__global__ void add_bias_residual(T* out, const T* in, const T* bias, const T* residual, Index n, Index columns) {
  for (Index i = first_element(); i < n; i += element_stride()) {
    out[i] = from_float<T>(to_float(residual[i]) + (to_float(in[i]) + to_float(bias[i % columns])));
  }
}

template <class T>
__global__ void bias_gelu_forward(T* out, T* pre, const T* bias, Index n, Index columns) {
  for (Index i = first_element(); i < n; i += element_stride()) {
    const T sum = from_float<T>(to_float(pre[i]) + to_float(bias[i % columns]));
    pre[i] = sum;
    out[i] = from_float<T>(gelu(to_float(sum)));  // of what is stored
  }
}

template <class T>
__global__ void gelu_backward(T* d, const T* pre, Index n) {
  for (Index i = first_element(); i < n; i += element_stride()) {
    d[i] = from_float<T>(to_float(d[i]) * gelu_derivative(to_float(pre[i])));
  }
}

}  // namespace
}  // namespace cuda

void CudaKernels::copy(Array out, ConstArray in) {
  require(out.size == in.size, "a copy between views of different sizes");
  const Index n = out.size;
  const cuda::Grid grid = cuda::element_grid(n);
  if (out.dtype == in.dtype) {
    if (n == 0 || out.data == in.data) return;
    cuda::check(cudaMemcpyAsync(out.data, in.data, count(in.bytes()), cudaMemcpyDeviceToDevice, stream_),
                "cudaMemcpyAsync");
  } else if (out.dtype == Dtype::fp32) {
    cuda::launch("widen", cuda::convert<float, Bf16>, grid, stream_, elements<float>(out, n), elements<Bf16>(in, n), n);
  } else {
    cuda::launch("round", cuda::convert<Bf16, float>, grid, stream_, elements<Bf16>(out, n), elements<float>(in, n), n);
  }
}

void CudaKernels::fill(Array out, float value) {
  cuda::with_type(out.dtype, [&]<class T>(T) {
    cuda::launch("fill", cuda::fill<T>, cuda::element_grid(out.size), stream_, elements<T>(out, out.size), value,
                 out.size);
  });
}

void CudaKernels::fill_normal(Array out, std::uint64_t seed, Index tensor, Index first, float standard_deviation) {
  cuda::with_type(out.dtype, [&]<class T>(T) {
    cuda::launch("fill_normal", cuda::fill_normal<T>, cuda::element_grid(out.size), stream_, elements<T>(out, out.size),
                 seed, static_cast<std::uint64_t>(tensor), static_cast<std::uint64_t>(first), standard_deviation,
                 out.size);
  });
}

void CudaKernels::adamw(Array parameters, Array momentum, Array variance, ConstArray gradients, Array rounded,
                        const AdamWStep& step) {
  const Index n = parameters.size;
  require(momentum.size == n && variance.size == n && gradients.size == n, "views of different sizes");
  require(rounded.size == n || rounded.size == 0, "views of different sizes");
  cuda::with_type(gradients.dtype, [&]<class T>(T) {
    cuda::launch("adamw", cuda::adamw<T>, cuda::element_grid(n), stream_, elements<float>(parameters, n),
                 elements<float>(momentum, n), elements<float>(variance, n), elements<T>(gradients, n),
                 rounded.size > 0 ? elements<T>(rounded, n) : nullptr, n, adamw_scalars(step));
  });
}

void CudaKernels::dropout(Array out, ConstArray in, double rate, std::uint64_t seed, std::uint64_t stream,
                          Index first) {
  const Index n = out.size;
  require(n == in.size, "views of different sizes");
  require(rate >= 0 && rate < 1, "a dropout rate outside [0, 1)");
  if (n == 0) return;
  const Index groups = divide_up(first + n, 4) - first / 4;
  cuda::with_type(out.dtype, [&]<class T>(T) {
    cuda::launch("dropout", cuda::dropout<T>, cuda::element_grid(groups), stream_, elements<T>(out, n),
                 elements<T>(in, n), dropout_scalars(rate), seed, stream, first, groups, n);
  });
}

void CudaKernels::add_bias(Array out, ConstArray bias, Index rows, Index columns) {
  const Index n = rows * columns;
  cuda::with_type(out.dtype, [&]<class T>(T) {
    cuda::launch("add_bias", cuda::add_bias<T>, cuda::element_grid(n), stream_, elements<T>(out, n),
                 elements<T>(bias, columns), n, columns);
  });
}

void CudaKernels::add_bias_residual(Array out, ConstArray in, ConstArray bias, ConstArray residual, Index rows,
                                    Index columns) {
  const Index n = rows * columns;
  cuda::with_type(out.dtype, [&]<class T>(T) {
    cuda::launch("add_bias_residual", cuda::add_bias_residual<T>, cuda::element_grid(n), stream_, elements<T>(out, n),
                 elements<T>(in, n), elements<T>(bias, columns), elements<T>(residual, n), n, columns);
  });
}

void CudaKernels::bias_gelu_forward(Array out, Array pre, ConstArray bias, Index rows, Index columns) {
  const Index n = rows * columns;
  cuda::with_type(out.dtype, [&]<class T>(T) {
    cuda::launch("bias_gelu_forward", cuda::bias_gelu_forward<T>, cuda::element_grid(n), stream_, elements<T>(out, n),
                 elements<T>(pre, n), elements<T>(bias, columns), n, columns);
  });
}

void CudaKernels::gelu_backward(Array d, ConstArray pre) {
  const Index n = d.size;
  require(n == pre.size, "views of different sizes");
  cuda::with_type(d.dtype, [&]<class T>(T) {
    cuda::launch("gelu_backward", cuda::gelu_backward<T>, cuda::element_grid(n), stream_, elements<T>(d, n),
                 elements<T>(pre, n), n);
  });
}

}  // namespace zero
