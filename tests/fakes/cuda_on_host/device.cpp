#include "tests/fakes/cuda_on_host/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/fakes/cuda_on_host/arena.h"
#include "tests/fakes/cuda_on_host/calls.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/fakes/cuda_on_host/settings.h"

namespace cuda_on_host {
namespace {

constexpr std::size_t kMostMemory = std::size_t{3} << 30;

int devices = static_cast<int>(number_setting("CUDA_ON_HOST_DEVICES", 1));
std::size_t total_memory = std::min(number_setting("CUDA_ON_HOST_MEMORY", kMostMemory), kMostMemory);
int device = 0;
std::size_t plain = 0;  // bytes that are no pool's

bool exists(int ordinal) { return ordinal >= 0 && ordinal < devices; }

std::size_t used() { return plain + used_of_pool().now; }

}  // namespace

void set_device_count(int count) { devices = count; }
void set_device_memory(std::size_t bytes) { total_memory = std::min(bytes, kMostMemory); }

int current_device() { return device; }
bool fits(std::size_t bytes) { return used() <= total_memory && bytes <= total_memory - used(); }
void count_plain(std::ptrdiff_t bytes) { plain += static_cast<std::size_t>(bytes); }

void set_seed(unsigned seed) {
  seed_streams(seed);
  seed_grid(seed);
}

}  // namespace cuda_on_host

using cuda_on_host::answer;

cudaError_t cudaGetDeviceCount(int* count) {
  return answer("cudaGetDeviceCount", [&] {
    *count = cuda_on_host::devices;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaSetDevice(int device) {
  return answer("cudaSetDevice", [&] {
    if (!cuda_on_host::exists(device)) return cudaErrorInvalidDevice;
    cuda_on_host::device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return answer("cudaGetDevice", [&] {
    *device = cuda_on_host::device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  return answer("cudaDeviceGetPCIBusId", [&] {
    if (!cuda_on_host::exists(device)) return cudaErrorInvalidDevice;
    if (size < 13) return cudaErrorInvalidValue;
    std::snprintf(id, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device + 1) & 0xFFU);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return answer("cudaDeviceGetAttribute", [&] {
    if (!cuda_on_host::exists(device)) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount: *value = 1; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return answer("cudaGetDeviceProperties", [&] {
    if (!cuda_on_host::exists(device)) return cudaErrorInvalidDevice;
    *properties = {"CUDA on the host", cuda_on_host::total_memory, 9, 0, 1};
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return answer("cudaRuntimeGetVersion", [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return answer("cudaDriverGetVersion", [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return answer("cudaMemGetInfo", [&] {
    *total = cuda_on_host::total_memory;
    *free = *total - std::min(*total, cuda_on_host::used());
    return cudaSuccess;
  });
}
