#pragma once
/// \file
/// Files of blocks: how slices reach storage. An interface, so that tests can put faults between a program and its
/// disk.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/types.h"
#include "common/storage/descriptor.h"

namespace zero {

/// Offsets, lengths and addresses of transfers are multiples of this many bytes, as O_DIRECT asks for.
inline constexpr Index kBlockBytes = 4096;

/// The most bytes of one transfer: system calls move no more than 2 GiB at a time.
inline constexpr Index kMostTransferBytes = Index{1} << 30;

/// One transfer between memory and a file.
struct Transfer {
  enum class Kind { read, write };
  Kind kind = Kind::read;
  Index offset = 0;        ///< in the file
  void* memory = nullptr;  ///< not touched by the caller until the transfer has ended
  Index bytes = 0;         ///< at most kMostTransferBytes
  std::uint64_t id = 0;    ///< the caller's; comes back with the completion
};

/// The end of a transfer.
struct Completion {
  std::uint64_t id = 0;
  Index result = 0;  ///< bytes moved, which may be fewer than asked for, or -errno
};

/// A file with transfers under way. Used by one thread.
class BlockFile {
 public:
  BlockFile() = default;
  /// Waits for what is under way: nobody touches the memory of a transfer any more when the file is gone.
  virtual ~BlockFile() = default;
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  /// Starts a transfer; at most depth() may be under way (std::logic_error). Its errors come with the completion.
  virtual void start(const Transfer& transfer) = 0;
  /// Waits until some transfer has ended and hands out its end; at least one is under way (std::logic_error). Ends come
  /// in any order. Both throw ResourceFailure when the system has no resources to start or to wait at all.
  virtual Completion wait() = 0;
  /// Bytes in the file at this moment, which is what was asked for unless something else has changed it.
  [[nodiscard]] virtual Index size() const = 0;

  [[nodiscard]] virtual Index depth() const = 0;
  [[nodiscard]] virtual std::string path() const = 0;  ///< for error sentences
  /// How it moves bytes, for the plan: "io_uring, O_DIRECT", "pread and pwrite, page cache (no O_DIRECT here)".
  [[nodiscard]] virtual std::string description() const = 0;
};

/// Makes a file of `bytes` bytes for the slices of one rank.
using OpenBlockFile = std::function<std::unique_ptr<BlockFile>(Index bytes)>;

/// By which system calls a swap file moves its bytes; `automatic` takes io_uring where the system has it.
enum class FileRoute { automatic, io_uring, positioned };

/// Whether a swap file goes around the page cache; `automatic` does where its file system has O_DIRECT.
enum class FileCache { automatic, page_cache };

/// Makes the swap file of a rank in `directory`, with `bytes` bytes of space reserved, for at most `depth` transfers at
/// a time. The file has mode 0600, is made by this call (never an existing one, never through a symbolic link), and has
/// no name any more when the call returns: whatever ends the process, its space is free again.
/// Throws UnusableInput when the directory is missing, is none, or cannot be written to, or when the route is io_uring
/// and the system has none; ResourceFailure when the file system has not that much room (the sentence says how much is
/// needed and how much there is).
std::unique_ptr<BlockFile> open_swap_file(const std::string& directory, int rank, Index bytes, Index depth,
                                          FileRoute route = FileRoute::automatic,
                                          FileCache cache = FileCache::automatic);

/// Holds the directory of swap files for one run, until it goes or the process ends. Taken by one rank (rank 0) for all
/// of a run's.
class SwapDirectoryLock {
 public:
  /// Throws UnusableInput when another run holds it, or as open_swap_file() does.
  explicit SwapDirectoryLock(const std::string& directory);

 private:
  Descriptor descriptor_;
};

}  // namespace zero
