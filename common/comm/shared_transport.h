#pragma once
/// \file
/// The transport over MPI-3 shared memory windows: the ranks of one host read each other's memory.

#include <atomic>
#include <cstdint>
#include <vector>

#include "common/comm/transport.h"

namespace zero {

/// Bytes booked in a ledger while this lives, for memory that something else allocates.
class LedgerEntry {
 public:
  LedgerEntry(MemoryLedger& ledger, Tier tier, Category category, Index bytes);
  LedgerEntry(LedgerEntry&& other) noexcept;
  LedgerEntry& operator=(LedgerEntry&&) = delete;
  ~LedgerEntry();

 private:
  MemoryLedger* ledger_;
  Tier tier_;
  Category category_;
  Index bytes_;
};

/// A shared memory window of `bytes` on each rank. Construction and destruction are collective.
class SharedWindow {
 public:
  /// MPI aligns a window to words only; what precedes the first address that is a multiple of this is not used.
  static constexpr Index kAlignment = 128;

  /// Throws ResourceFailure, on every rank, when a rank cannot have it.
  SharedWindow(MPI_Comm ranks, Index bytes);
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  /// The window of a rank, as this process sees it: its last `bytes - kAlignment` bytes or more, aligned.
  [[nodiscard]] std::byte* of(int rank) const { return base_[static_cast<std::size_t>(rank)]; }
  void abandon() { abandoned_ = true; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::byte*> base_;
  bool abandoned_ = false;
  UnwindGuard guard_;
};

/// Each rank writes only to its own window, which holds
/// \code
///   arrivals   one counter, alone on its cache lines: the exchanges this rank has written its blocks for
///   table      for each of two halves and each rank p: where in the window the block for p lies, and its bytes
///   half 0     the blocks of exchanges 0, 2, 4 ...
///   half 1     the blocks of exchanges 1, 3, 5 ...
/// \endcode
/// In exchange k a rank writes to half k mod 2, counts, waits until every rank has counted k, and reads. One wait is
/// enough: who writes exchange k + 2 to the same half has seen every rank count k + 1, and a rank counts k + 1 only
/// after it has read k.
class SharedTransport final : public Transport {
 public:
  /// `ranks` are on one host. `booked` is the ledger's entry for the window, of `staging_bytes`.
  SharedTransport(MPI_Comm ranks, LedgerEntry booked, double timeout_seconds, Index staging_bytes);
  ~SharedTransport() override = default;

  [[nodiscard]] int rank() const override { return comm_.rank(); }
  [[nodiscard]] int size() const override { return comm_.size(); }
  void exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected, const Consume& consume,
                const char* what) override;
  void exchange_same(ConstBytes offered, const Consume& consume, const char* what) override;
  [[nodiscard]] Index max_block() const override { return max_block_; }
  [[nodiscard]] Index max_same_block() const override { return half_bytes_; }
  [[nodiscard]] std::string description() const override;

  /// Bytes of a window that are not of the two halves, for `size` ranks.
  static Index overhead_bytes(int size);

 private:
  using Counter = std::atomic<std::uint64_t>;
  static_assert(Counter::is_always_lock_free);
  struct Block {
    Index offset;
    Index bytes;
  };

  [[nodiscard]] Counter& arrivals(int rank) const { return *reinterpret_cast<Counter*>(window_.of(rank)); }
  /// Where half 0 begins.
  static Index header_bytes(int size);
  /// The table of `rank` for exchange number done_: one Block for each rank.
  [[nodiscard]] Block* table(int rank) const;
  /// Where the half of exchange number done_ begins in a window.
  [[nodiscard]] Index half_offset() const;
  /// Counts this rank, waits for the others, and consumes.
  void meet(const Consume& consume, const char* what);
  [[noreturn]] void fail(const char* what);

  OwnedComm comm_;
  LedgerEntry booked_;
  double timeout_seconds_;
  Index staging_bytes_;
  Index half_bytes_;
  Index max_block_;
  SharedWindow window_;
  std::uint64_t done_ = 0;             ///< exchanges completed
  std::vector<std::size_t> expected_;  ///< bytes, one for each rank
  std::vector<ConstBytes> received_;   ///< one for each rank
};

}  // namespace zero
