#pragma once
/// \file
/// The part of the CUDA runtime API that this project uses, on the host: the C++ compiler finds this header in place of
/// the toolkit's and compiles the same .cu files. What can be seen of it from a test is in control.h.
///
/// Work waits in the queue of its stream until someone waits for it, so a result that is read too early is poison. It
/// then runs in an order that a test chooses and that honours nothing but the order of each stream and its events. A
/// kernel's threads run one after the other up to its first barrier, then on to the next, in an order that a test
/// chooses. Host code that touches device memory ends the program. All calls must come from one thread.
/// Names that are not here are not used, or have to be added.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define CUDART_VERSION 13000

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

// --- errors ----------------------------------------------------------------------------------------------------------

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorUnknown = 999,
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
/// The last call that did not succeed (cudaErrorNotReady counts, as in CUDA), which is then forgotten.
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

// --- devices ---------------------------------------------------------------------------------------------------------

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);

// --- streams and events ----------------------------------------------------------------------------------------------

struct CUstream_st;
using cudaStream_t = CUstream_st*;
constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
/// Priorities change nothing here.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
/// What is queued runs later, as in CUDA.
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
/// cudaErrorNotReady the first time that the stream has work; that work has then run, unless it waits for something
/// that has not come.
cudaError_t cudaStreamQuery(cudaStream_t stream);

struct CUevent_st;
using cudaEvent_t = CUevent_st*;
constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
/// As cudaStreamQuery(); an event that was never recorded is done.
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

// --- memory ----------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

/// What is allocated is there for what follows in the stream, what is freed until the stream comes to it. Memory is
/// handed out again only long after it was freed.
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);

struct CUmemPoolHandle_st;
using cudaMemPool_t = CUmemPoolHandle_st*;
enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1,
  cudaMemPoolReuseAllowOpportunistic = 2,
  cudaMemPoolReuseAllowInternalDependencies = 3,
  cudaMemPoolAttrReleaseThreshold = 4,
  cudaMemPoolAttrReservedMemCurrent = 5,
  cudaMemPoolAttrReservedMemHigh = 6,
  cudaMemPoolAttrUsedMemCurrent = 7,
  cudaMemPoolAttrUsedMemHigh = 8,
};
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
/// The reuse attributes are int, the others std::uint64_t. What was used most may be set to 0: counted from now on.
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t bytes_to_keep);

constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1;
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
/// Bytes from pageable memory have been taken when the call returns; a copy to pageable memory is done then. With
/// pinned memory (cudaHostAlloc), bytes are read and written when the stream comes to it.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int byte, std::size_t bytes, cudaStream_t stream);

// --- launches --------------------------------------------------------------------------------------------------------

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace cuda_on_host {

/// Pointers to device memory among a kernel's arguments: what it may touch.
using Pointers = std::vector<const void*>;
/// Those in the words of an argument: a pointer, or a struct that has some.
void collect_pointers(Pointers& to, const void* argument, std::size_t bytes);

cudaError_t queue_kernel(const cudaLaunchConfig_t& config, std::function<void()> thread, Pointers pointers);

}  // namespace cuda_on_host

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  cuda_on_host::Pointers pointers;
  const auto collect = [&pointers](const auto& value) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_pointer_v<Value> || (std::is_class_v<Value> && alignof(Value) >= alignof(void*))) {
      cuda_on_host::collect_pointers(pointers, &value, sizeof value);
    }
  };
  std::apply([&](const auto&... all) { (collect(all), ...); }, values);
  return cuda_on_host::queue_kernel(
      *config, [kernel, values = std::move(values)] { std::apply(kernel, values); }, std::move(pointers));
}
// NOLINTEND
