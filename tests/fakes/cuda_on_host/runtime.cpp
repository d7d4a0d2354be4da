#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/device/cuda/runtime.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/fakes/cuda_on_host/grid.h"
#include "tests/fakes/cuda_on_host/memory.h"

struct CUstream_st {
  std::deque<std::function<void()>> queue;
};

namespace cuda_on_host {
namespace {

std::map<std::string, cudaError_t> next_failures;

/// The error that a test wants of this call, once.
cudaError_t planned_failure(const char* call) {
  const auto found = next_failures.find(call);
  if (found == next_failures.end()) return cudaSuccess;
  const cudaError_t error = found->second;
  next_failures.erase(found);
  return error;
}

void drain(CUstream_st& stream) {
  while (!stream.queue.empty()) {
    const std::function<void()> work = std::move(stream.queue.front());
    stream.queue.pop_front();
    work();
  }
}

}  // namespace

void fail_next(const std::string& call, cudaError_t error) { next_failures[call] = error; }

cudaError_t queue_kernel(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  if (const cudaError_t error = planned_failure("cudaLaunchKernelEx"); error != cudaSuccess) return error;
  if (config.stream == nullptr || config.gridDim.x == 0 || config.blockDim.x == 0 || config.blockDim.x > kMostThreads ||
      config.dynamicSmemBytes > kMostSharedBytes) {
    return cudaErrorInvalidConfiguration;
  }
  const Launch launch = {zero::cuda::last_launch(), config.gridDim, config.blockDim, config.dynamicSmemBytes,
                         std::move(thread)};
  config.stream->queue.emplace_back([launch] {
    run(launch);
    check_bounds("kernel " + launch.kernel);
  });
  return cudaSuccess;
}

}  // namespace cuda_on_host

using cuda_on_host::is_device_memory;
using cuda_on_host::planned_failure;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t error = planned_failure("cudaGetDeviceCount"); error != cudaSuccess) return error;
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (const cudaError_t error = planned_failure("cudaMalloc"); error != cudaSuccess) return error;
  *memory = cuda_on_host::allocate(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  return memory == nullptr || cuda_on_host::release(memory) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t error = planned_failure("cudaStreamCreateWithFlags"); error != cudaSuccess) return error;
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = planned_failure("cudaStreamSynchronize"); error != cudaSuccess) return error;
  cuda_on_host::drain(*stream);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = planned_failure("cudaMemcpyAsync"); error != cudaSuccess) return error;
  if (is_device_memory(to, bytes) != (kind != cudaMemcpyDeviceToHost) ||
      is_device_memory(from, bytes) != (kind != cudaMemcpyHostToDevice)) {
    return cudaErrorInvalidValue;
  }
  if (kind == cudaMemcpyHostToDevice) {  // CUDA has taken what is in pageable memory when the call returns
    const auto* const bytes_of = static_cast<const unsigned char*>(from);
    stream->queue.emplace_back([to, taken = std::vector<unsigned char>(bytes_of, bytes_of + bytes)] {
      std::memcpy(to, taken.data(), taken.size());
    });
  } else {
    stream->queue.emplace_back([=] { std::memcpy(to, from, bytes); });
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int byte, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = planned_failure("cudaMemsetAsync"); error != cudaSuccess) return error;
  if (!is_device_memory(memory, bytes)) return cudaErrorInvalidValue;
  stream->queue.emplace_back([=] { std::memset(memory, byte, bytes); });
  return cudaSuccess;
}
