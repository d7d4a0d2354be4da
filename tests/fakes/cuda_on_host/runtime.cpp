// The runtime API: memory, copies, launches. Devices are in device.cpp, streams and events in streams.cpp.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/device/cuda/runtime.h"
#include "tests/fakes/cuda_on_host/calls.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/fakes/cuda_on_host/device.h"
#include "tests/fakes/cuda_on_host/grid.h"
#include "tests/fakes/cuda_on_host/memory.h"
#include "tests/fakes/cuda_on_host/streams.h"

struct CUmemPoolHandle_st {
  std::uint64_t release_threshold = 0;
  int reuse[4] = {0, 1, 1, 1};  // by attribute; CUDA's defaults
};

namespace cuda_on_host {
namespace {

constexpr std::size_t kFreedAfterKernel = std::size_t{64} << 10;  // bytes looked at after each kernel

CUmemPoolHandle_st pool;
Used pool_use, pinned_use;
auto& sizes = *new std::map<const void*, std::size_t>;  // of what the host owns; never destroyed

void use(Used& used, std::size_t bytes) {
  used.now += bytes;
  used.most = std::max(used.most, used.now);
}

std::size_t rounded_by_pool(std::size_t bytes) { return (bytes + 511) / 512 * 512; }

/// Forgets the size of what the host gives up, and counts it as free.
void give_back(Tier tier, const void* memory, bool pooled) {
  const std::size_t bytes = sizes.at(memory);
  sizes.erase(memory);
  if (tier == Tier::pinned) {
    pinned_use.now -= bytes;
  } else if (pooled) {
    pool_use.now -= rounded_by_pool(bytes);
  } else {
    count_plain(-static_cast<std::ptrdiff_t>(rounded_by_pool(bytes)));
  }
}

cudaError_t release_at_once(Tier tier, void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const bool pooled = from_pool(memory);
  if (!disown(tier, memory)) return cudaErrorInvalidValue;
  give_back(tier, memory, pooled);
  release(tier, memory);
  return cudaSuccess;
}

/// Where an operand of a copy lies.
enum class Place { device, pinned, pageable };

Place place_of(const void* memory, std::size_t bytes) {
  if (owned(Tier::device, memory, bytes)) return Place::device;
  return owned(Tier::pinned, memory, bytes) ? Place::pinned : Place::pageable;
}

/// What looks like host memory because it was freed, or because it ends too soon.
bool stray(const void* memory, Place place) {
  return place == Place::pageable && (device_arena().has(memory) || pinned_arena().has(memory));
}

bool agrees(cudaMemcpyKind kind, bool to_device, bool from_device) {
  switch (kind) {
    case cudaMemcpyHostToHost: return !to_device && !from_device;
    case cudaMemcpyHostToDevice: return to_device && !from_device;
    case cudaMemcpyDeviceToHost: return !to_device && from_device;
    case cudaMemcpyDeviceToDevice: return to_device && from_device;
    case cudaMemcpyDefault: return true;
  }
  return false;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Place place_to = place_of(to, bytes), place_from = place_of(from, bytes);
  if (stray(to, place_to) || stray(from, place_from) ||
      !agrees(kind, place_to == Place::device, place_from == Place::device)) {
    return cudaErrorInvalidValue;
  }
  if (!usable(stream)) return cudaErrorInvalidResourceHandle;
  if (place_from == Place::pageable && place_to != Place::pageable) {
    const auto* const begin = static_cast<const unsigned char*>(from);
    queue(stream, {"cudaMemcpyAsync", [to, taken = std::vector<unsigned char>(begin, begin + bytes)] {
                     require_there(to, taken.size(), "cudaMemcpyAsync");
                     std::memcpy(to, taken.data(), taken.size());
                   }});
  } else {
    queue(stream, {"cudaMemcpyAsync", [=] {
                     require_there(to, bytes, "cudaMemcpyAsync");
                     require_there(from, bytes, "cudaMemcpyAsync");
                     std::memcpy(to, from, bytes);
                   }});
  }
  if (place_to == Place::pageable) run_all(stream);
  return cudaSuccess;
}

}  // namespace

Used used_of_pool() { return pool_use; }
Used used_of_pinned() { return pinned_use; }

Counts counts() {
  Counts all = counts_of_grid();
  all.work = work_that_ran();
  return all;
}

void collect_pointers(Pointers& to, const void* argument, std::size_t bytes) {
  const auto* const begin = static_cast<const unsigned char*>(argument);
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, begin + at, sizeof word);
    if (device_arena().has(word) || pinned_arena().has(word)) to.push_back(word);
  }
}

cudaError_t queue_kernel(const cudaLaunchConfig_t& config, std::function<void()> thread, Pointers pointers) {
  return answer("cudaLaunchKernelEx", [&] {
    if (config.gridDim.x == 0 || config.blockDim.x == 0 || config.blockDim.x > kMostThreads ||
        config.dynamicSmemBytes > kMostSharedBytes) {
      return cudaErrorInvalidConfiguration;
    }
    if (!usable(config.stream)) return cudaErrorInvalidResourceHandle;
    std::string name = std::string("kernel ") + zero::cuda::last_launch();
    queue(config.stream,
          {name, [launch = Launch{name, config.gridDim, config.blockDim, config.dynamicSmemBytes, std::move(thread)},
                  pointers = std::move(pointers)] {
             for (const void* pointer : pointers) require_there(pointer, 0, launch.name);
             run(launch);
             check_bounds(launch.name, kFreedAfterKernel);
           }});
    return cudaSuccess;
  });
}

}  // namespace cuda_on_host

using cuda_on_host::answer;
using cuda_on_host::Tier;

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return answer("cudaMalloc", [&] {
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (!cuda_on_host::fits(bytes)) return cudaErrorMemoryAllocation;
    *memory = cuda_on_host::allocate(Tier::device, bytes);
    if (*memory == nullptr) return cudaErrorMemoryAllocation;
    cuda_on_host::sizes[*memory] = bytes;
    cuda_on_host::count_plain(static_cast<std::ptrdiff_t>(cuda_on_host::rounded_by_pool(bytes)));
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* memory) {
  return answer("cudaFree", [&] { return cuda_on_host::release_at_once(Tier::device, memory); });
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return answer("cudaHostAlloc", [&] {
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    *memory = cuda_on_host::allocate(Tier::pinned, bytes);
    if (*memory == nullptr) return cudaErrorMemoryAllocation;
    cuda_on_host::sizes[*memory] = bytes;
    cuda_on_host::use(cuda_on_host::pinned_use, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  return answer("cudaFreeHost", [&] { return cuda_on_host::release_at_once(Tier::pinned, memory); });
}

cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream) {
  return answer("cudaMallocAsync", [&] {
    *memory = nullptr;
    if (!cuda_on_host::usable(stream)) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    const std::size_t rounded = cuda_on_host::rounded_by_pool(bytes);
    void* const promised = cuda_on_host::fits(rounded) ? cuda_on_host::promise(bytes) : nullptr;
    if (promised == nullptr) return cudaErrorMemoryAllocation;
    cuda_on_host::sizes[promised] = bytes;
    cuda_on_host::use(cuda_on_host::pool_use, rounded);
    cuda_on_host::queue(stream, {"cudaMallocAsync", [promised] { cuda_on_host::deliver(promised); }});
    *memory = promised;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return answer("cudaFreeAsync", [&] {
    if (!cuda_on_host::usable(stream)) return cudaErrorInvalidResourceHandle;
    if (memory == nullptr) return cudaSuccess;
    const bool pooled = cuda_on_host::from_pool(memory);
    if (!cuda_on_host::disown(Tier::device, memory)) return cudaErrorInvalidValue;
    cuda_on_host::give_back(Tier::device, memory, pooled);
    cuda_on_host::queue(stream, {"cudaFreeAsync", [memory] { cuda_on_host::withdraw(memory); }});
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  return answer("cudaDeviceGetDefaultMemPool", [&] {
    *pool = &cuda_on_host::pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return answer("cudaMemPoolSetAttribute", [&] {
    if (attribute < cudaMemPoolAttrReleaseThreshold) {
      pool->reuse[attribute] = *static_cast<int*>(value);
      return cudaSuccess;
    }
    const std::uint64_t number = *static_cast<std::uint64_t*>(value);
    if (attribute == cudaMemPoolAttrReleaseThreshold) {
      pool->release_threshold = number;
      return cudaSuccess;
    }
    if ((attribute != cudaMemPoolAttrUsedMemHigh && attribute != cudaMemPoolAttrReservedMemHigh) || number != 0) {
      return cudaErrorInvalidValue;
    }
    cuda_on_host::pool_use.most = cuda_on_host::pool_use.now;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return answer("cudaMemPoolGetAttribute", [&] {
    if (attribute < cudaMemPoolAttrReleaseThreshold) {
      *static_cast<int*>(value) = pool->reuse[attribute];
      return cudaSuccess;
    }
    auto& number = *static_cast<std::uint64_t*>(value);
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold: number = pool->release_threshold; break;
      case cudaMemPoolAttrReservedMemCurrent:
      case cudaMemPoolAttrUsedMemCurrent: number = cuda_on_host::pool_use.now; break;
      case cudaMemPoolAttrReservedMemHigh:
      case cudaMemPoolAttrUsedMemHigh: number = cuda_on_host::pool_use.most; break;
      default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  return answer("cudaMemPoolTrimTo", [] { return cudaSuccess; });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return answer("cudaMemcpyAsync", [&] { return cuda_on_host::copy(to, from, bytes, kind, stream); });
}

cudaError_t cudaMemsetAsync(void* memory, int byte, std::size_t bytes, cudaStream_t stream) {
  return answer("cudaMemsetAsync", [&] {
    if (!cuda_on_host::owned(Tier::device, memory, bytes)) return cudaErrorInvalidValue;
    if (!cuda_on_host::usable(stream)) return cudaErrorInvalidResourceHandle;
    cuda_on_host::queue(stream, {"cudaMemsetAsync", [=] {
                                   cuda_on_host::require_there(memory, bytes, "cudaMemsetAsync");
                                   std::memset(memory, byte, bytes);
                                 }});
    return cudaSuccess;
  });
}
