#pragma once
/// \file
/// Extents of a swap file: checked, counted, booked in the memory ledger's nvme tier.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/device/device.h"
#include "common/storage/block_file.h"

namespace zero {

/// The swap file of a rank, cut into extents that are read and written whole. Every completion is checked for errors
/// and short transfers, the size of the file with it; every extent has a checksum (XXH3, kept in memory) that is
/// verified when it is read. What moves is counted in Device::transfers(), in whole blocks, when it is started. Used by
/// one thread.
///
/// Order of use: reserve() every extent, open(), then transfers. Failures are ResourceFailures whose sentence names the
/// file, the offset and the rank. Wrong use (another order, an extent that is not there, memory that is not aligned) is
/// std::logic_error.
class SwapSpace {
 public:
  using Extent = Index;  ///< number of an extent
  using Ticket = std::uint64_t;

  /// `device` outlives it; `rank` is for the sentences. Extents above `most_transfer_bytes` (whole blocks) move in
  /// several transfers.
  SwapSpace(Device& device, int rank, Index most_transfer_bytes = kMostTransferBytes);
  /// Waits for what is under way, without looking at how it ended: the memory of transfers outlives the space.
  ~SwapSpace();
  SwapSpace(const SwapSpace&) = delete;
  SwapSpace& operator=(const SwapSpace&) = delete;

  /// Room for `bytes` > 0, taken up to whole blocks and booked in Tier::nvme (which throws past the tier's cap).
  Extent reserve(Category category, Index bytes);
  /// Makes the file for all that is reserved. Nothing happens when nothing is.
  void open(const OpenBlockFile& open_file);
  [[nodiscard]] Index bytes() const { return end_; }  ///< reserved so far, in whole blocks

  /// Starts moving a whole extent. `memory` has the extent's bytes in whole blocks, begins at a multiple of
  /// kBlockBytes, and stays as it is until wait(). When depth() transfers are under way, waits for one first. An extent
  /// has at most one ticket at a time, and is not read before it was written (std::logic_error).
  Ticket start_write(Extent extent, const void* memory);
  Ticket start_read(Extent extent, void* memory);
  /// Waits for what a ticket stands for and checks it. Every ticket is waited for once. After a failure the ticket is
  /// spent; what failed to be written counts as never written.
  void wait(Ticket ticket);

  /// For the plan; empty before open().
  [[nodiscard]] std::string description() const { return file_ ? file_->description() : ""; }

 private:
  struct Place {
    Category category;
    Index offset = 0;
    Index bytes = 0;  ///< in whole blocks
    std::uint64_t checksum = 0;
    bool written = false;
    bool busy = false;
  };
  struct UnderWay {
    Ticket ticket = 0;
    Extent extent = 0;
    Transfer transfer;
    bool ended = false;
    Index result = 0;
  };
  Ticket start(Transfer::Kind kind, Extent extent, void* memory);
  void take_completion();
  /// What is wrong with a transfer that has ended; empty when nothing is.
  [[nodiscard]] std::string fault(const UnderWay& ended) const;
  [[nodiscard]] std::string where(Index offset) const;

  Device& device_;
  int rank_;
  Index most_transfer_bytes_;
  std::unique_ptr<BlockFile> file_;
  std::vector<Place> places_;
  std::vector<UnderWay> under_way_;  ///< until their tickets are waited for
  Index not_ended_ = 0;              ///< of these, those that the file still has
  Index end_ = 0;
  Ticket next_ticket_ = 1;
  std::uint64_t next_transfer_ = 1;
};

}  // namespace zero
