// Sums over terms in a fixed order, and sums over elements that come out the same in any order: integer atomics alone.
#include "common/base/order_free_digits.h"
#include "common/device/cuda/cuda_kernels.h"
#include "common/device/cuda/grid.h"
#include "common/device/kernel_views.h"

namespace zero {
namespace cuda {
namespace {

/// Atomics on 64-bit integers take CUDA's own name for them.
using Atomic = unsigned long long;

__device__ inline void atomic_add(std::uint64_t& sum, std::uint64_t value) {
  static_assert(sizeof(Atomic) == sizeof(std::uint64_t));
  if (value != 0) atomicAdd(reinterpret_cast<Atomic*>(&sum), static_cast<Atomic>(value));
}

__device__ inline void atomic_add(std::uint32_t& sum, std::uint32_t value) {
  if (value != 0) atomicAdd(&sum, value);
}

// --- sums of gradients -----------------------------------------------------------------------------------------------

/// Terms of either storage type.
struct Terms {
  const void* data[CudaKernels::kMostTerms];
  bool bf16[CudaKernels::kMostTerms];
  int count;
};

__device__ inline float term_at(const Terms& terms, int t, Index i) {
  return terms.bf16[t] ? to_float(static_cast<const Bf16*>(terms.data[t])[i])
                       : static_cast<const float*>(terms.data[t])[i];
}

/// The tree over terms without recursion. Complete trees of 2^k terms stand on a stack as the ones of a binary counter
/// do; a term carries as counting does. What is left at the end, the largest tree lowest, is added from the top down:
/// that is a split at the largest power of two, and so on to its right.
__device__ inline float tree_at(const Terms& terms, Index i) {
  float trees[9];  // of up to 256 terms
  int height = 0;
  for (int t = 0; t < terms.count; ++t) {
    float tree = term_at(terms, t, i);
    for (int carry = t; (carry & 1) != 0; carry >>= 1) tree = trees[--height] + tree;
    trees[height++] = tree;
  }
  float sum = trees[--height];
  while (height > 0) sum = trees[--height] + sum;
  return sum;
}

template <class T>
__global__ void tree_sum(T* out, Terms terms, Index n) {
  for (Index i = first_element(); i < n; i += element_stride()) out[i] = from_float<T>(tree_at(terms, i));
}

template <class T>
__global__ void merge_sums(T* out, Terms terms, float divisor, Index n) {
  for (Index i = first_element(); i < n; i += element_stride()) {
    float sum = term_at(terms, terms.count - 1, i);
    for (int t = terms.count - 2; t >= 0; --t) sum = term_at(terms, t, i) + sum;
    out[i] = from_float<T>(sum / divisor);  // division by 1 changes no bit
  }
}

Terms terms_of(std::span<const ConstArray> terms, Index size) {
  require(!terms.empty(), "no terms");
  require(terms.size() <= CudaKernels::kMostTerms, "more terms than the CUDA backend adds at once");
  Terms result = {};
  for (const ConstArray& term : terms) {
    require(term.size == size, "terms of different sizes");
    require(term.dtype != Dtype::int32, "a view of the wrong type");
    result.data[result.count] = term.data;
    result.bf16[result.count++] = term.dtype == Dtype::bf16;
  }
  return result;
}

// --- sums over elements ----------------------------------------------------------------------------------------------

constexpr Index kBlockOfSquares = 32;

/// A thread for each block of 32 elements of a tensor. The digits of a thread block add up in its shared memory before
/// they go to the total, so that few threads meet there.
template <class T>
__global__ void scan(OrderFreeDigits* total, std::uint64_t* first_not_finite, const T* in, std::uint64_t tensor,
                     Index n) {
  OrderFreeDigits& mine = *shared_memory<OrderFreeDigits>();
  if (threadIdx.x < kOrderFreeDigits) mine.digit[threadIdx.x] = 0;
  if (threadIdx.x == 0) mine.infinities = mine.nans = 0;
  __syncthreads();
  for (Index begin = first_element() * kBlockOfSquares; begin < n; begin += element_stride() * kBlockOfSquares) {
    double sum = 0;
    for (Index i = begin; i < n && i < begin + kBlockOfSquares; ++i) {
      const double x = static_cast<double>(to_float(in[i]));
      sum += x * x;
    }
    std::uint64_t bits = 0;
    __builtin_memcpy(&bits, &sum, sizeof bits);
    const OrderFreeTerm term = order_free_term(bits);
    atomic_add(mine.infinities, term.infinity);
    atomic_add(mine.nans, term.nan);
    for (int d = 0; d < 3 && term.digit >= 0; ++d) atomic_add(mine.digit[term.digit + d], term.value[d]);
  }
  __syncthreads();
  if (threadIdx.x < kOrderFreeDigits) atomic_add(total->digit[threadIdx.x], mine.digit[threadIdx.x]);
  if (threadIdx.x == 0) {
    atomic_add(total->infinities, mine.infinities);
    atomic_add(total->nans, mine.nans);
    // A block's sum of squares is as finite as its elements: it has room for the squares of them all.
    if (mine.infinities + mine.nans > 0) {
      atomicMin(reinterpret_cast<Atomic*>(first_not_finite), static_cast<Atomic>(tensor));
    }
  }
}

/// One chain through all elements, in one thread; its block brings them to it.
template <class T>
__global__ void sum_in_order(double* out, const T* in, Index n) {
  float* const piece = shared_memory<float>();
  double sum = 0;
  for (Index begin = 0; begin < n; begin += blockDim.x) {
    const Index size = n - begin < blockDim.x ? n - begin : blockDim.x;
    if (threadIdx.x < size) piece[threadIdx.x] = to_float(in[begin + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
      for (Index i = 0; i < size; ++i) sum += static_cast<double>(piece[i]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = sum;
}

template <class T>
__global__ void digest(HashSum* total, const T* in, std::uint64_t tensor, std::uint64_t first, Index n) {
  HashSum& of_block = *shared_memory<HashSum>();
  if (threadIdx.x == 0) of_block = {0, 0, 0};
  __syncthreads();
  const std::uint64_t key = tensor_key(tensor);
  HashSum mine = {0, 0, 0};
  for (Index i = first_element(); i < n; i += element_stride()) {
    add_hash(mine, element_hash(key, first + static_cast<std::uint64_t>(i), bits_of(to_float(in[i]))));
  }
  atomic_add(of_block.half0, mine.half0);
  atomic_add(of_block.half1, mine.half1);
  atomic_add(of_block.high, mine.high);
  __syncthreads();
  if (threadIdx.x == 0) {
    atomic_add(total->half0, of_block.half0);
    atomic_add(total->half1, of_block.half1);
    atomic_add(total->high, of_block.high);
  }
}

}  // namespace
}  // namespace cuda

CudaKernels::CudaKernels(cuda::PresentStream stream, void* scratch)
    : stream_(stream), device_(static_cast<Results*>(scratch)) {
  set_bytes(device_, 0, sizeof(Results));
}

void CudaKernels::set_bytes(void* result, int byte, std::size_t bytes) {
  cuda::check(cudaMemsetAsync(result, byte, bytes, stream_), "cudaMemsetAsync");
}

CudaKernels::Results CudaKernels::results() {
  Results host;
  stream_.read_back(&host, device_, sizeof host);
  require(host.bad_index == 0, "a token or target outside its table");
  return host;
}

void CudaKernels::check_indices() { results(); }

void CudaKernels::tree_sum(Array out, std::span<const ConstArray> terms) {
  const cuda::Terms from = cuda::terms_of(terms, out.size);
  cuda::with_type(out.dtype, [&]<class T>(T) {
    cuda::launch("tree_sum", cuda::tree_sum<T>, cuda::element_grid(out.size), stream_, elements<T>(out, out.size), from,
                 out.size);
  });
}

void CudaKernels::merge_sums(Array out, std::span<const ConstArray> terms, float divisor) {
  const cuda::Terms from = cuda::terms_of(terms, out.size);
  cuda::with_type(out.dtype, [&]<class T>(T) {
    cuda::launch("merge_sums", cuda::merge_sums<T>, cuda::element_grid(out.size), stream_, elements<T>(out, out.size),
                 from, divisor, out.size);
  });
}

void CudaKernels::begin_scan() {
  set_bytes(&device_->squares, 0, sizeof device_->squares);
  set_bytes(&device_->first_not_finite, 0xFF, sizeof device_->first_not_finite);
}

void CudaKernels::scan(ConstArray in, Index tensor) {
  cuda::Grid grid = cuda::element_grid(divide_up(in.size, cuda::kBlockOfSquares));
  grid.shared_bytes = sizeof(OrderFreeDigits);
  cuda::with_type(in.dtype, [&]<class T>(T) {
    cuda::launch("scan", cuda::scan<T>, grid, stream_, &device_->squares, &device_->first_not_finite,
                 elements<T>(in, in.size), static_cast<std::uint64_t>(tensor), in.size);
  });
}

ScanResult CudaKernels::end_scan() {
  const Results found = results();
  ScanResult result;
  result.squares.add(found.squares);
  if (found.first_not_finite != ~std::uint64_t{0}) result.first_not_finite = static_cast<Index>(found.first_not_finite);
  return result;
}

double CudaKernels::sum_in_order(ConstArray in) {
  cuda::with_type(in.dtype, [&]<class T>(T) {
    const cuda::Grid grid = {.blocks = 1,
                             .threads = static_cast<unsigned>(cuda::kElementThreads),
                             .shared_bytes = sizeof(float) * static_cast<std::size_t>(cuda::kElementThreads)};
    cuda::launch("sum_in_order", cuda::sum_in_order<T>, grid, stream_, &device_->sum, elements<T>(in, in.size),
                 in.size);
  });
  return results().sum;
}

void CudaKernels::digest(Digest& digest, ConstArray in, Index tensor, Index first) {
  constexpr Index kCarryFree = Index{1} << 30;
  for (Index begin = 0; begin < in.size; begin += kCarryFree) {
    const Index size = std::min(in.size - begin, kCarryFree);
    set_bytes(&device_->hashes, 0, sizeof device_->hashes);
    cuda::Grid grid = cuda::element_grid(size);
    grid.shared_bytes = sizeof(HashSum);
    cuda::with_type(in.dtype, [&]<class T>(T) {
      cuda::launch("digest", cuda::digest<T>, grid, stream_, &device_->hashes, elements<T>(in, in.size) + begin,
                   static_cast<std::uint64_t>(tensor), static_cast<std::uint64_t>(first + begin), size);
    });
    const ElementHash added = total_of(results().hashes);
    digest.add({added.low, added.high});
  }
}

}  // namespace zero
