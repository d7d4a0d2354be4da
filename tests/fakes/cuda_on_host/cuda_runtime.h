#pragma once
/// \file
/// The part of the CUDA runtime API that this project uses, on the host: the C++ compiler finds this header in place of
/// the toolkit's and compiles the same .cu files. What can be seen of it from a test is in control.h.
///
/// Work on a stream waits in a queue until someone waits for the stream, so a result that is read too early is poison.
/// A kernel's threads run one after the other up to its first barrier, then on to the next, in an order that a test
/// chooses. Names that are not here are not used, or have to be added.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

// --- the language ----------------------------------------------------------------------------------------------------

#define __global__
#define __device__
#define __host__
#define __align__(n) __attribute__((aligned(n)))
/// Only `extern __shared__` arrays, which a launch gives their size: on any other variable the attribute is an error.
#define __shared__ __attribute__((weak))

// NOLINTBEGIN: names and types are CUDA's
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned of_x) : x(of_x) {}
};

/// Of the thread that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/// The place of the call tells one barrier from another.
void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Threads run one at a time, so these are atomic.
inline unsigned atomicAdd(unsigned* to, unsigned value) { return std::exchange(*to, *to + value); }
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  return std::exchange(*to, *to + value);
}
inline unsigned atomicOr(unsigned* to, unsigned value) { return std::exchange(*to, *to | value); }
inline unsigned long long atomicMin(unsigned long long* to, unsigned long long value) {
  return std::exchange(*to, value < *to ? value : *to);
}

// --- the runtime -----------------------------------------------------------------------------------------------------

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorIllegalAddress = 700,
};
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);

cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);

struct CUstream_st;
using cudaStream_t = CUstream_st*;
constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int byte, std::size_t bytes, cudaStream_t stream);

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace cuda_on_host {
cudaError_t queue_kernel(const cudaLaunchConfig_t& config, std::function<void()> thread);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return cuda_on_host::queue_kernel(
      *config, [kernel, values = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
        std::apply(kernel, values);
      });
}
// NOLINTEND
