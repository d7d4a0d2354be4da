#pragma once
/// \file
/// What the two routes to a swap file share, and how they are made.

#include <string>
#include <utility>

#include "common/storage/block_file.h"
#include "common/storage/descriptor.h"

namespace zero {

/// A file that is open and has its room.
struct OpenedFile {
  Descriptor descriptor;
  std::string path;         ///< it had when it was made
  std::string description;  ///< "io_uring, O_DIRECT"
};

/// Everything of a swap file but the moving of bytes.
class SwapFile : public BlockFile {
 public:
  SwapFile(OpenedFile file, Index depth) : file_(std::move(file)), depth_(depth) {}

  [[nodiscard]] Index size() const final;
  [[nodiscard]] Index depth() const final { return depth_; }
  [[nodiscard]] std::string path() const final { return file_.path; }
  [[nodiscard]] std::string description() const final { return file_.description; }

 protected:
  [[nodiscard]] int descriptor() const { return file_.descriptor.get(); }
  /// Throw std::logic_error where a transfer more, or a wait, would break the contract of BlockFile.
  void check_start(const Transfer& transfer, Index under_way) const;
  static void check_wait(Index under_way);

 private:
  OpenedFile file_;
  Index depth_;
};

/// Moves bytes with pread and pwrite: a transfer has ended when start() returns.
std::unique_ptr<BlockFile> make_positioned_file(OpenedFile file, Index depth);

/// Moves bytes through io_uring. Where the system has none, gives nullptr, says why in `why_not`, and leaves `file` as
/// it is.
std::unique_ptr<BlockFile> make_uring_file(OpenedFile& file, Index depth, std::string& why_not);

}  // namespace zero
