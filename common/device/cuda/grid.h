#pragma once
/// \file
/// How kernels divide their work among threads.
///
/// Element-wise kernels take a thread for each element. Sums along a row have the lanes that the CPU's loops have: 16
/// threads work on a row, a thread is a lane. Sums down a column take a thread for each column.

#include <algorithm>

#include "common/base/types.h"
#include "common/device/array.h"
#include "common/device/cuda/runtime.h"
#include "common/device/scalar_math.h"

namespace zero::cuda {

/// The block's shared memory, as many bytes as the launch said. What it holds at first is not specified.
template <class T>
__device__ inline T* shared_memory() {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return reinterpret_cast<T*>(shared_bytes);
}

// --- a thread for each element ---------------------------------------------------------------------------------------

constexpr Index kElementThreads = 256;
/// More elements than so many blocks have threads for are taken in strides.
constexpr Index kMostBlocks = 1024;

/// Enough for `n` elements, each kernel thread going over first_element(), first_element() + element_stride(), ...
inline Grid element_grid(Index n) {
  return {.blocks = static_cast<unsigned>(std::min(divide_up(n, kElementThreads), kMostBlocks)),
          .threads = kElementThreads};
}

__device__ inline Index first_element() { return Index{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline Index element_stride() { return Index{gridDim.x} * blockDim.x; }

// --- a thread for each column ----------------------------------------------------------------------------------------

/// Few threads in a block, so that the few columns of a layer reach many processors.
constexpr Index kColumnThreads = 32;

inline Grid column_grid(Index columns) {
  return {.blocks = static_cast<unsigned>(divide_up(columns, kColumnThreads)), .threads = kColumnThreads};
}

// --- sixteen threads for each row ------------------------------------------------------------------------------------

constexpr int kLanes = 16;
constexpr int kRowsOfBlock = 8;

inline Grid row_grid(Index rows) {
  return {.blocks = static_cast<unsigned>(divide_up(rows, kRowsOfBlock)),
          .threads = kLanes * kRowsOfBlock,
          .shared_bytes = sizeof(float) * kLanes * kRowsOfBlock};
}

/// The row of a thread of row_grid(), and its place there. All threads of a block reduce together, with those that
/// have no row.
struct RowLane {
  Index row;   ///< 0 for a thread that has none
  bool there;  ///< whether it has one
  int lane;
  float* partial;  ///< the results of the row's lanes, in shared memory
};

__device__ inline RowLane row_lane(Index rows) {
  const auto of_block = static_cast<int>(threadIdx.x) / kLanes;
  const Index row = Index{blockIdx.x} * kRowsOfBlock + of_block;
  const bool there = row < rows;
  return {there ? row : 0, there, static_cast<int>(threadIdx.x) % kLanes, shared_memory<float>() + of_block * kLanes};
}

/// The lanes' values by the tree of the CPU's loops: lane l takes lane l + 8, then l + 4, l + 2, l + 1. Every lane goes
/// through the whole tree: these few operations cost less than a barrier for each of its levels.
template <class Merge>
__device__ inline float tree_over_lanes(const RowLane& at, float mine, Merge merge) {
  __syncthreads();  // what the last reduction left has been read
  at.partial[at.lane] = mine;
  __syncthreads();
  float value[kLanes / 2];
  for (int l = 0; l < kLanes / 2; ++l) value[l] = merge(at.partial[l], at.partial[l + kLanes / 2]);
  for (int width = kLanes / 4; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) value[l] = merge(value[l], value[l + width]);
  }
  return value[0];
}

/// The sum of term(i) for i in [0, n), the same in all lanes of the row: lane_sum() of the CPU's loops. `n` must be 0
/// in threads without a row. Every thread of the block must call this.
template <class Term>
__device__ inline float lane_sum(const RowLane& at, Index n, Term term) {
  float sum = 0;
  for (Index i = at.lane; i < n; i += kLanes) sum = sum + term(i);
  return tree_over_lanes(at, sum, [](float a, float b) { return a + b; });
}

/// The largest term(i), NaNs passed over, as lane_max() of the CPU's loops.
template <class Term>
__device__ inline float lane_max(const RowLane& at, Index n, Term term) {
  float largest = -__builtin_inff();
  for (Index i = at.lane; i < n; i += kLanes) {
    const float x = term(i);
    largest = x > largest ? x : largest;
  }
  return tree_over_lanes(at, largest, [](float a, float b) { return b > a ? b : a; });
}

// --- storage types ---------------------------------------------------------------------------------------------------

/// Calls work(T{}) for the storage type T of `dtype`, which is fp32 or bf16.
template <class Work>
void with_type(Dtype dtype, Work work) {
  if (dtype == Dtype::bf16) {
    work(Bf16{});
  } else {
    work(0.0F);
  }
}

}  // namespace zero::cuda
