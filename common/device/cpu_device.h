#pragma once
/// \file
/// The CPU backend: memory of the process.

#include <string>
#include <vector>

#include "common/device/cpu_isa.h"
#include "common/device/device.h"

namespace zero {

/// Blocks of whole pages from the operating system. A freed block is kept for the next request of its size, as long as
/// what is in use and what is kept together stay below the most that ever was in use (and a little more): so a step
/// that frees and allocates the same sizes takes no page faults, and the process holds no more than the ledger's peak.
/// Where a block of another size would not fit below that, a larger kept block serves the request if there is one;
/// so sizes that are held at different times share pages.
/// Under AddressSanitizer nothing is kept, so that it sees every use after the end.
class PageBlocks {
 public:
  PageBlocks() = default;
  PageBlocks(const PageBlocks&) = delete;
  PageBlocks& operator=(const PageBlocks&) = delete;
  ~PageBlocks();

  /// At least `bytes` > 0 bytes that begin `offset` < 4096 bytes into a page, or nullptr. `is_zero` says whether they
  /// are known to be zero.
  void* acquire(Index bytes, Index offset, bool& is_zero);
  /// Gives back what acquire(bytes, ...) returned.
  void release(void* memory, Index bytes);

  static bool keeps_freed_blocks();                       ///< false under AddressSanitizer
  [[nodiscard]] Index in_use() const { return in_use_; }  ///< bytes, in whole pages
  [[nodiscard]] Index kept() const { return kept_; }      ///< bytes, in whole pages

 private:
  struct Block {
    void* memory = nullptr;
    Index bytes = 0;
    Index resident = 0;  ///< bytes from the beginning that have not been given back
  };

  /// The smallest kept block of `bytes` to `most` bytes, of several the one freed last; no memory if there is none.
  Block take(Index bytes, Index most);
  /// Gives pages of the blocks kept for longest back to the system until at most `limit` bytes are kept.
  void trim(Index limit);

  std::vector<Block> free_;    ///< the kept blocks, the oldest first
  std::vector<Block> larger_;  ///< blocks in use that are larger than what was asked for
  Index spare_ = 0;            ///< bytes of them that nobody asked for
  Index in_use_ = 0;
  Index most_in_use_ = 0;
  Index kept_ = 0;
};

/// The CPU backend of make_cpu_device().
class CpuDevice final : public Device {
 public:
  CpuDevice(ProductKind products, int threads, CpuIsa isa);
  ~CpuDevice() override;
  [[nodiscard]] std::string description() const override;

 private:
  void* acquire(Tier tier, Category category, Index bytes) override;
  void release(Tier tier, void* memory, Index bytes) override;
  void fill_zero(Tier tier, void* memory, Index bytes) override;
  void copy_now(void* out, const void* in, Index bytes) override;

  CpuIsa isa_;
  PageBlocks blocks_;
  int optimizer_blocks_ = 0;  ///< optimizer blocks so far, modulo 3
  void* zeroed_ = nullptr;    ///< the block acquired last, if the system handed it out zeroed
  Buffer workspace_;          ///< lent to the products
};

}  // namespace zero
