// The two tables of the embedding. Gradients are added without atomics, each in its own order.
#include "common/device/cuda/cuda_kernels.h"
#include "common/device/cuda/grid.h"
#include "common/device/kernel_views.h"

namespace zero {
namespace cuda {
namespace {

template <class T>
__global__ void embedding_forward(T* out, const std::int32_t* tokens, const T* token_table, Index token_rows,
                                  const T* position_table, Index context, Index columns, Index n,
                                  std::uint32_t* bad_index) {
  for (Index i = first_element(); i < n; i += element_stride()) {
    const Index r = i / columns;
    const Index c = i % columns;
    const Index token = tokens[r];
    if (token < 0 || token >= token_rows) {
      atomicOr(bad_index, 1U);
      out[i] = from_float<T>(__builtin_nanf(""));
      continue;
    }
    out[i] =
        from_float<T>(to_float(token_table[token * columns + c]) + to_float(position_table[r % context * columns + c]));
  }
}

/// A block for each r. The first block that has a token adds all of the token's gradients, in rising order; the others
/// find an equal one before theirs, and end. So a row of the table has one writer, and its sum one order.
template <class T>
__global__ void token_table_backward(float* rows, Index first_row, Index rows_count, const std::int32_t* tokens,
                                     const T* d, Index n, Index columns, std::uint32_t* bad_index) {
  const Index mine = blockIdx.x;
  const std::int32_t token = tokens[mine];
  if (token < 0) {
    atomicOr(bad_index, 1U);
    return;
  }
  const Index row = token - first_row;
  if (row < 0 || row >= rows_count) return;
  for (Index r = 0; r < mine; ++r) {
    if (tokens[r] == token) return;
  }
  float* const to = rows + row * columns;
  for (Index r = mine; r < n; ++r) {
    if (tokens[r] != token) continue;
    for (Index c = threadIdx.x; c < columns; c += blockDim.x) to[c] = to[c] + to_float(d[r * columns + c]);
  }
}

constexpr unsigned kTokenThreads = 128;

}  // namespace
}  // namespace cuda

void CudaKernels::embedding_forward(Array out, const std::int32_t* tokens, ConstArray token_table,
                                    ConstArray position_table, Index B, Index T, Index C) {
  const Index n = B * T * C;
  cuda::with_type(out.dtype, [&]<class S>(S) {
    cuda::launch("embedding_forward", cuda::embedding_forward<S>, cuda::element_grid(n), stream_, elements<S>(out, n),
                 tokens, elements<S>(token_table, 0), token_table.size / C, elements<S>(position_table, T * C), T, C, n,
                 &device_->bad_index);
  });
}

void CudaKernels::token_table_backward(Array rows, Index first_row, const std::int32_t* tokens, ConstArray d, Index R,
                                       Index C) {
  const cuda::Grid grid = {.blocks = static_cast<unsigned>(R), .threads = cuda::kTokenThreads};
  cuda::with_type(d.dtype, [&]<class T>(T) {
    cuda::launch("token_table_backward", cuda::token_table_backward<T>, grid, stream_, elements<float>(rows, 0),
                 first_row, rows.size / C, tokens, elements<T>(d, R * C), R, C, &device_->bad_index);
  });
}

void CudaKernels::position_table_backward(Array d_position_table, ConstArray d, Index B, Index T, Index C) {
  bias_backward(d_position_table, d, B, T * C);  // the same sum: over B rows of T * C columns
}

}  // namespace zero
