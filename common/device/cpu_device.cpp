#include "common/device/cpu_device.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "common/base/error.h"
#include "common/device/cpu_kernels.h"
#include "common/device/products_factory.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZERO_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ZERO_ADDRESS_SANITIZER
#endif

namespace zero {
namespace {

#ifdef ZERO_ADDRESS_SANITIZER
constexpr bool kKeepBlocks = false;
#else
constexpr bool kKeepBlocks = true;
#endif

/// What may be kept beyond the most that ever was in use: a constant and a small part, so that a step whose many small
/// blocks come and go at different times does not fault either.
constexpr Index kKeptAnyway = Index{8} << 20;
constexpr Index kKeptPart = 64;

/// How many times larger than the request a kept block may be that serves it in place of new pages.
constexpr Index kWorthTaking = 8;

/// Where in its page a block begins. AdamW reads and writes four streams at once, or five in bf16; where they begin at
/// the same offset, they compete for the same cache sets and memory banks, and the update takes up to 1.4 times as
/// long. The optimizer's blocks come in pairs, or in threes with the master weights: any three in a row differ.
Index stagger(Category category, int optimizer_blocks) {
  constexpr std::array<Index, 3> kOptimizer = {1792, 2560, 3328};
  switch (category) {
    case Category::gradients:
    case Category::gradient_in_flight: return 1024;
    case Category::optimizer: return kOptimizer[static_cast<std::size_t>(optimizer_blocks)];
    default: return 0;
  }
}

Index page_size() {
  static const Index size = sysconf(_SC_PAGESIZE);
  return size;
}

void* map_pages(Index bytes) {
  if constexpr (!kKeepBlocks) {
    constexpr Index kSanitizersLimit = Index{1} << 40;  // it ends the process where it should return nullptr
    if (bytes >= kSanitizersLimit) return nullptr;
    return std::aligned_alloc(static_cast<std::size_t>(page_size()), static_cast<std::size_t>(bytes));
  }
  void* memory =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void unmap_pages(void* memory, Index bytes) {
  if constexpr (!kKeepBlocks) {
    std::free(memory);
  } else {
    munmap(memory, static_cast<std::size_t>(bytes));
  }
}

/// The pages read as zeros when they are touched again.
void give_back_pages(void* memory, Index bytes) { madvise(memory, static_cast<std::size_t>(bytes), MADV_DONTNEED); }

}  // namespace

PageBlocks::~PageBlocks() { trim(0); }

bool PageBlocks::keeps_freed_blocks() { return kKeepBlocks; }

void* PageBlocks::acquire(Index bytes, Index offset, bool& is_zero) {
  bytes = round_up(offset + bytes, page_size());
  is_zero = false;
  const Index most = std::max(most_in_use_, in_use_ + bytes);
  const Index may_hold = most + kKeptAnyway + most / kKeptPart;
  const bool room = in_use_ + spare_ + kept_ + bytes <= may_hold;
  Block block = take(bytes, room ? bytes : kWorthTaking * bytes);
  if (block.memory == nullptr) {
    block = {map_pages(bytes), bytes, bytes};
    if (block.memory == nullptr && kept_ > 0) {
      trim(0);
      block.memory = map_pages(bytes);
    }
    if (block.memory == nullptr) return nullptr;
    is_zero = kKeepBlocks;
  }
  block.resident = std::max(block.resident, bytes);
  if (block.bytes > bytes) {
    larger_.push_back(block);
    spare_ += block.resident - bytes;
  }
  in_use_ += bytes;
  most_in_use_ = most;
  trim(std::max<Index>(0, may_hold - in_use_ - spare_));
  return static_cast<std::byte*>(block.memory) + offset;
}

PageBlocks::Block PageBlocks::take(Index bytes, Index most) {
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    if (block->bytes < bytes || block->bytes > most) continue;
    if (best == free_.end() || block->bytes <= best->bytes) best = block;
  }
  if (best == free_.end()) return {};
  const Block taken = *best;
  free_.erase(best);
  kept_ -= taken.resident;
  return taken;
}

void PageBlocks::release(void* memory, Index bytes) {
  const Index offset =
      static_cast<Index>(reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(page_size()));
  memory = static_cast<std::byte*>(memory) - offset;
  bytes = round_up(offset + bytes, page_size());
  in_use_ -= bytes;
  if (!kKeepBlocks) return unmap_pages(memory, bytes);
  Block block{memory, bytes, bytes};
  const auto larger = std::find_if(larger_.begin(), larger_.end(), [&](const Block& b) { return b.memory == memory; });
  if (larger != larger_.end()) {
    block = *larger;
    larger_.erase(larger);
    spare_ -= block.resident - bytes;
  }
  free_.push_back(block);
  kept_ += block.resident;
}

void PageBlocks::trim(Index limit) {
  auto block = free_.begin();
  for (; block != free_.end() && kept_ > limit; ++block) {
    const Index excess = round_up(kept_ - limit, page_size());
    if (limit > 0 && excess < block->resident) {
      block->resident -= excess;
      kept_ -= excess;
      give_back_pages(static_cast<std::byte*>(block->memory) + block->resident, excess);
      break;
    }
    unmap_pages(block->memory, block->bytes);
    kept_ -= block->resident;
  }
  free_.erase(free_.begin(), block);
}

CpuDevice::CpuDevice(ProductKind products, int threads, CpuIsa isa) : isa_(isa) {
  kernels_ = std::make_unique<CpuKernels>(isa);
  products_ = products == ProductKind::canonical ? make_canonical_products(threads) : make_library_products(threads);
  if (const Index elements = products_->workspace_elements(); elements > 0) {
    workspace_ = allocate_uninitialized(Category::workspace, elements);
    products_->set_workspace(workspace_.array());
  }
}

CpuDevice::~CpuDevice() { products_.reset(); }  // before the workspace that it was lent

std::string CpuDevice::description() const { return fmt::format("cpu, {} kernels", name(isa_)); }

void* CpuDevice::acquire(Tier tier, Category category, Index bytes) {
  if (tier == Tier::nvme)
    throw UnusableInput("the CPU device has no nvme tier; keep the buffer on the device or the host");
  bool is_zero = false;
  void* memory = blocks_.acquire(bytes, stagger(category, optimizer_blocks_), is_zero);
  if (category == Category::optimizer) optimizer_blocks_ = (optimizer_blocks_ + 1) % 3;
  zeroed_ = is_zero ? memory : nullptr;
  return memory;
}

void CpuDevice::release(Tier /*tier*/, void* memory, Index bytes) { blocks_.release(memory, bytes); }

void CpuDevice::fill_zero(Tier /*tier*/, void* memory, Index bytes) {
  if (memory != zeroed_) std::memset(memory, 0, static_cast<std::size_t>(bytes));
}

void CpuDevice::copy_now(void* out, const void* in, Index bytes) {
  std::memcpy(out, in, static_cast<std::size_t>(bytes));
}

std::unique_ptr<Device> make_cpu_device(ProductKind products, int threads) {
  return std::make_unique<CpuDevice>(products, threads, cpu_isa());
}

}  // namespace zero
