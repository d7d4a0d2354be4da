#include "tests/fakes/cuda_on_host/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "tests/fakes/cuda_on_host/asan.h"
#include "tests/fakes/cuda_on_host/control.h"

namespace cuda_on_host {
namespace {

constexpr std::size_t kGranule = 512;  // the pool's; every allocation begins at a multiple
constexpr std::size_t kMargin = 512;   // of an allocation's own, on each side
constexpr std::size_t kWatched = 128;  // bytes of them that are looked at; AddressSanitizer looks at every access
constexpr unsigned char kMarginByte = 0xA5;
constexpr std::size_t kMostFreed = 64, kMostBytesFreed = std::size_t{32} << 20;  // that are watched

std::size_t rounded(std::size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

enum class State {
  promised,  ///< addresses alone
  there,
};

struct Allocation {
  std::size_t bytes = 0;
  State state = State::there;
  bool owned = true;  ///< the host has not given it up
  bool pool = false;
};

struct Freed {
  unsigned char* begin;
  std::size_t bytes;
  std::size_t looked_at = 0;  ///< in this round
};

/// Whether all bytes are as they were filled. If not, fills them again: a fault is reported once.
bool intact(unsigned char* memory, std::size_t bytes, unsigned char value) {
  if (bytes == 0 || (memory[0] == value && std::memcmp(memory, memory + 1, bytes - 1) == 0)) return true;
  std::memset(memory, value, bytes);
  return false;
}

/// One tier's allocations.
class Memory {
 public:
  explicit Memory(Arena& arena) : arena_(arena) {}

  unsigned char* add(std::size_t bytes, bool pool) {
    const std::size_t block = rounded(bytes);
    std::vector<unsigned char*>& idle = idle_[block];
    unsigned char* begin = nullptr;
    if (idle.empty()) {
      begin = arena_.take(block + 2 * kMargin);
      if (begin == nullptr) return nullptr;
      begin += kMargin;
    } else {
      begin = idle.back();
      idle.pop_back();
    }
    live_[begin] = {.bytes = bytes, .state = State::promised, .owned = true, .pool = pool};
    return begin;
  }

  void deliver(unsigned char* begin) {
    Allocation& allocation = live_.at(begin);
    allocation.state = State::there;
    ASAN_UNPOISON_MEMORY_REGION(begin, allocation.bytes);
    std::memset(begin, kPoison, allocation.bytes);
    if (kAddressSanitizer) return;
    std::memset(begin - kMargin, kMarginByte, kMargin);
    std::memset(begin + allocation.bytes, kMarginByte, rounded(allocation.bytes) - allocation.bytes + kMargin);
  }

  bool disown(unsigned char* begin) {
    const auto found = live_.find(begin);
    if (found == live_.end() || !found->second.owned) return false;
    found->second.owned = false;
    return true;
  }

  void withdraw(unsigned char* begin) {
    const auto found = live_.find(begin);
    if (found->second.state == State::promised) {
      throw Fault("cudaFreeAsync: memory is freed before the cudaMallocAsync that it waits for in another stream");
    }
    const Freed freed = {begin, found->second.bytes};
    live_.erase(found);
    std::memset(begin, kPoison, freed.bytes);
    ASAN_POISON_MEMORY_REGION(begin, freed.bytes);
    freed_.push_back(freed);
    bytes_freed_ += freed.bytes;
    while (freed_.size() > kMostFreed || bytes_freed_ > kMostBytesFreed) let_go();
  }

  /// The allocation that the address is in, or beside.
  std::pair<unsigned char* const, Allocation>* around(const void* address) {
    auto* const at = static_cast<unsigned char*>(const_cast<void*>(address));
    auto after = live_.upper_bound(at + kMargin);
    if (after == live_.begin()) return nullptr;
    --after;
    return at < after->first + rounded(after->second.bytes) + kMargin ? &*after : nullptr;
  }

  void check_bounds(const std::string& who, std::size_t bytes_of_freed) {
    if (kAddressSanitizer) return;
    const auto fault = [&](const std::string& what) { throw Fault(who + ": a write " + what); };
    for (const auto& [begin, allocation] : live_) {
      if (allocation.state == State::promised) continue;
      const auto which = [bytes = allocation.bytes] {
        return " of an allocation of " + std::to_string(bytes) + " bytes";
      };
      if (!intact(begin - kWatched, kWatched, kMarginByte)) fault("before the begin" + which());
      if (!intact(begin + allocation.bytes, kWatched, kMarginByte)) fault("past the end" + which());
    }
    const bool whole_round = bytes_freed_ <= bytes_of_freed;
    for (std::size_t i = 0; i < freed_.size() && bytes_of_freed > 0; ++i) {
      if (next_ >= freed_.size()) next_ = 0;
      Freed& freed = freed_[next_];
      const std::size_t bytes = std::min(bytes_of_freed, freed.bytes - freed.looked_at);
      if (!intact(freed.begin + freed.looked_at, bytes, kPoison)) {
        fault(whole_round ? "to freed memory" : "to freed memory, by this or by work before it");
      }
      bytes_of_freed -= bytes;
      freed.looked_at += bytes;
      if (freed.looked_at == freed.bytes) {
        freed.looked_at = 0;
        ++next_;
      }
    }
  }

  [[nodiscard]] std::size_t owned() const {
    return static_cast<std::size_t>(
        std::count_if(live_.begin(), live_.end(), [](const auto& each) { return each.second.owned; }));
  }
  [[nodiscard]] bool has(const void* address) const { return arena_.has(address); }

 private:
  /// The freed memory that was watched longest may be handed out again.
  void let_go() {
    const Freed freed = freed_.front();
    freed_.pop_front();
    bytes_freed_ -= freed.bytes;
    if (next_ > 0) --next_;
    idle_[rounded(freed.bytes)].push_back(freed.begin);
    if (!kAddressSanitizer && !intact(freed.begin, freed.bytes, kPoison)) {
      throw Fault("a write to freed memory, by earlier work");
    }
  }

  Arena& arena_;
  std::map<unsigned char*, Allocation> live_;
  std::deque<Freed> freed_;
  std::size_t bytes_freed_ = 0, next_ = 0;
  std::map<std::size_t, std::vector<unsigned char*>> idle_;  // by size
};

Memory& memory_of(Tier tier) {
  static Memory& device = *new Memory(device_arena());
  static Memory& pinned = *new Memory(pinned_arena());
  return tier == Tier::device ? device : pinned;
}

bool reaches(const std::pair<unsigned char* const, Allocation>& allocation, const void* memory, std::size_t bytes) {
  const auto* const begin = static_cast<const unsigned char*>(memory);
  return begin >= allocation.first && begin + bytes <= allocation.first + allocation.second.bytes;
}

/// For settle().
struct Change {
  unsigned char* begin;
  bool released;
};
std::vector<Change>& unsettled() {
  static std::vector<Change>& all = *new std::vector<Change>;
  return all;
}

unsigned char* as_bytes(void* memory) { return static_cast<unsigned char*>(memory); }

}  // namespace

void settle() {
  for (const Change& change : std::exchange(unsettled(), {})) {
    if (change.released) {
      memory_of(Tier::device).withdraw(change.begin);
    } else {
      memory_of(Tier::device).deliver(change.begin);
    }
  }
}

void* allocate(Tier tier, std::size_t bytes) {
  unsigned char* const begin = memory_of(tier).add(bytes, false);
  if (begin == nullptr) return nullptr;
  if (tier == Tier::device) {
    unsettled().push_back({begin, false});
  } else {
    memory_of(tier).deliver(begin);
  }
  return begin;
}

void* promise(std::size_t bytes) { return memory_of(Tier::device).add(bytes, true); }

void deliver(void* memory) { memory_of(Tier::device).deliver(as_bytes(memory)); }

bool disown(Tier tier, void* memory) { return memory_of(tier).disown(as_bytes(memory)); }

void withdraw(void* memory) { memory_of(Tier::device).withdraw(as_bytes(memory)); }

void release(Tier tier, void* memory) {
  if (tier == Tier::device) {
    unsettled().push_back({as_bytes(memory), true});
  } else {
    memory_of(tier).withdraw(as_bytes(memory));
  }
}

bool owned(Tier tier, const void* memory, std::size_t bytes) {
  const auto* const allocation = memory_of(tier).around(memory);
  return allocation != nullptr && allocation->second.owned && reaches(*allocation, memory, bytes);
}

bool from_pool(const void* memory) {
  const auto* const allocation = memory_of(Tier::device).around(memory);
  return allocation != nullptr && allocation->second.pool;
}

void require_there(const void* memory, std::size_t bytes, const std::string& who) {
  for (const Tier tier : {Tier::device, Tier::pinned}) {
    if (!memory_of(tier).has(memory)) continue;
    const char* const kind = tier == Tier::device ? " device memory" : " pinned memory";
    const auto* const allocation = memory_of(tier).around(memory);
    if (allocation == nullptr) throw Fault(who + ": it uses" + kind + " that was freed");
    if (allocation->second.state == State::promised) {
      throw Fault(who + ": it uses" + kind + " before the cudaMallocAsync that it waits for in another stream");
    }
    if (bytes > 0 && !reaches(*allocation, memory, bytes)) {
      throw Fault(who + ": it goes beyond an allocation of " + std::to_string(allocation->second.bytes) + " bytes");
    }
  }
}

void check_bounds(const std::string& who, std::size_t bytes_of_freed) {
  memory_of(Tier::device).check_bounds(who, bytes_of_freed);
  memory_of(Tier::pinned).check_bounds(who, bytes_of_freed);
}

std::size_t live_allocations() { return memory_of(Tier::device).owned() + memory_of(Tier::pinned).owned(); }

}  // namespace cuda_on_host
