#include "tests/fakes/cuda_on_host/memory.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "tests/fakes/cuda_on_host/control.h"

namespace cuda_on_host {
namespace {

constexpr std::size_t kAlignment = 256;  // cudaMalloc's
/// Watched bytes on each side. AddressSanitizer watches its own, right at the ends of the exact size.
constexpr std::size_t kMargin = kAddressSanitizer ? 0 : kAlignment;
constexpr unsigned char kMarginByte = 0xA5;
constexpr std::size_t kMostFreed = 64;  // allocations that are watched after they were freed

struct Allocation {
  unsigned char* block;  // with the margins
  std::size_t bytes;     // without
};

/// Whether all bytes are as they were filled. If not, fills them again: a fault is reported once.
bool intact(unsigned char* memory, std::size_t bytes, unsigned char value) {
  if (bytes == 0 || (memory[0] == value && std::memcmp(memory, memory + 1, bytes - 1) == 0)) return true;
  std::memset(memory, value, bytes);
  return false;
}

struct Memory {
  std::map<const unsigned char*, Allocation> live;  // by where the allocation begins
  std::deque<Allocation> freed;
  ~Memory() {
    for (const Allocation& allocation : freed) std::free(allocation.block);
  }
};
Memory memory_of_device;

}  // namespace

void* allocate(std::size_t bytes) {
  void* block = nullptr;
  if (posix_memalign(&block, kAlignment, bytes + 2 * kMargin) != 0) return nullptr;
  auto* const begin = static_cast<unsigned char*>(block) + kMargin;
  std::memset(begin - kMargin, kMarginByte, kMargin);
  std::memset(begin, kPoison, bytes);
  std::memset(begin + bytes, kMarginByte, kMargin);
  memory_of_device.live[begin] = {static_cast<unsigned char*>(block), bytes};
  return begin;
}

bool release(void* memory) {
  const auto found = memory_of_device.live.find(static_cast<unsigned char*>(memory));
  if (found == memory_of_device.live.end()) return false;
  const Allocation allocation = found->second;
  memory_of_device.live.erase(found);
  if (kAddressSanitizer) {  // keeps freed memory itself
    std::free(allocation.block);
    return true;
  }
  std::memset(allocation.block + kMargin, kPoison, allocation.bytes);
  memory_of_device.freed.push_back(allocation);
  if (memory_of_device.freed.size() > kMostFreed) {
    std::free(memory_of_device.freed.front().block);
    memory_of_device.freed.pop_front();
  }
  return true;
}

bool is_device_memory(const void* memory, std::size_t bytes) {
  const auto* const begin = static_cast<const unsigned char*>(memory);
  auto after = memory_of_device.live.upper_bound(begin);
  if (after == memory_of_device.live.begin()) return false;
  const auto& [first, allocation] = *--after;
  return begin + bytes <= first + allocation.bytes;
}

void check_bounds(const std::string& who) {
  const auto fault = [&](const std::string& what) { throw Fault(who + ": a write " + what); };
  for (const auto& [begin, allocation] : memory_of_device.live) {
    const auto which = [bytes = allocation.bytes] {
      return " of an allocation of " + std::to_string(bytes) + " bytes";
    };
    if (!intact(allocation.block, kMargin, kMarginByte)) fault("before the begin" + which());
    if (!intact(allocation.block + kMargin + allocation.bytes, kMargin, kMarginByte)) fault("past the end" + which());
  }
  for (const Allocation& allocation : memory_of_device.freed) {
    if (!intact(allocation.block + kMargin, allocation.bytes, kPoison)) fault("to freed memory");
  }
}

std::size_t live_allocations() { return memory_of_device.live.size(); }

}  // namespace cuda_on_host
