#include "common/storage/swap_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/storage/directory.h"

namespace zero {
namespace {

/// Makes a file that no other process can open by name, and takes its name away. mkostemp() makes new files only and
/// follows no symbolic link (O_EXCL), with mode 0600.
OpenedFile make_nameless_file(const std::string& directory, int rank) {
  OpenedFile file;
  file.path = fmt::format("{}{}zero-swap-rank{}-XXXXXX", directory, directory.ends_with('/') ? "" : "/", rank);
  file.descriptor = Descriptor(uninterrupted([&] { return mkostemp(file.path.data(), O_CLOEXEC); }));
  if (!file.descriptor) {
    switch (const int error = errno) {
      case ENOSPC:
      case EDQUOT:
      case EMFILE:
      case ENFILE:
      case ENOMEM:
        throw ResourceFailure(fmt::format("rank {}: no swap file can be made in --nvme-path {} ({})", rank, directory,
                                          std::strerror(error)));
      default: throw unusable_directory(directory, error);
    }
  }
  if (unlink(file.path.c_str()) != 0) throw unusable_directory(directory, errno);
  return file;
}

/// The block that O_DIRECT asks for on this file, 0 when it has no O_DIRECT after all. Where the system does not say,
/// kBlockBytes, which is what storage has.
Index direct_block(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx about {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 && (about.stx_mask & STATX_DIOALIGN) != 0) {
    return std::max<Index>(about.stx_dio_offset_align, about.stx_dio_mem_align);
  }
#else
  static_cast<void>(descriptor);
#endif
  return kBlockBytes;
}

/// Turns O_DIRECT on where it can be had. Otherwise says why not. (Asking for it when the file is made would leave one
/// behind on file systems without: they refuse after they have made it.)
std::optional<std::string> why_not_direct(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) return "no O_DIRECT here";
  const Index block = direct_block(descriptor);
  if (block > 0 && block <= kBlockBytes) return std::nullopt;
  if (fcntl(descriptor, F_SETFL, flags) != 0) return "no O_DIRECT here";
  return block == 0 ? "no O_DIRECT here" : fmt::format("O_DIRECT takes blocks of {} here", format_bytes(block));
}

/// Bytes that are free on the file system of a file; nothing where it does not say.
std::optional<Index> free_bytes(int descriptor) {
  struct statvfs about {};
  if (fstatvfs(descriptor, &about) != 0 || about.f_blocks == 0) return std::nullopt;
  return static_cast<Index>(about.f_bavail) * static_cast<Index>(about.f_frsize);
}

ResourceFailure no_room(const std::string& directory, int rank, Index bytes, int descriptor, const std::string& cause) {
  // What was taken before the room ended counts as free.
  const std::optional<Index> free = ftruncate(descriptor, 0) == 0 ? free_bytes(descriptor) : std::optional<Index>();
  return ResourceFailure(fmt::format(
      "rank {}: --nvme-path {} has no room for a swap file: {} needed, {} free ({}); a directory with more room would "
      "do",
      rank, directory, format_bytes(bytes), free ? format_bytes(*free) : "an unknown number of bytes", cause));
}

void reserve(const std::string& directory, int rank, Index bytes, int descriptor) {
  if (bytes == 0) return;
  struct rlimit limit {};
  // Asked first, because passing this limit brings a signal that ends the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(bytes) > limit.rlim_cur) {
    throw no_room(directory, rank, bytes, descriptor,
                  fmt::format("files may have {}, says ulimit -f", format_bytes(static_cast<Index>(limit.rlim_cur))));
  }
  // Not posix_fallocate(), which writes to every block where the file system cannot reserve.
  if (uninterrupted([&] { return fallocate(descriptor, 0, 0, bytes); }) == 0) return;
  if (errno == EOPNOTSUPP || errno == ENOSYS) {
    const std::optional<Index> free = free_bytes(descriptor);
    if (free && *free < bytes) throw no_room(directory, rank, bytes, descriptor, std::strerror(ENOSPC));
    if (uninterrupted([&] { return ftruncate(descriptor, bytes); }) == 0) return;
  }
  throw no_room(directory, rank, bytes, descriptor, std::strerror(errno));
}

std::string describe(const char* route, const std::optional<std::string>& no_direct, const std::string& no_uring) {
  std::string why = no_direct.value_or("");
  if (!why.empty() && !no_uring.empty()) why += "; ";
  why += no_uring;
  return fmt::format("{}, {}{}", route, no_direct ? "page cache" : "O_DIRECT", why.empty() ? "" : " (" + why + ")");
}

}  // namespace

Index SwapFile::size() const {
  struct stat about {};
  if (fstat(descriptor(), &about) != 0) {
    throw ResourceFailure(fmt::format("{}: its size cannot be had ({})", path(), std::strerror(errno)));
  }
  return about.st_size;
}

void SwapFile::check_start(const Transfer& transfer, Index under_way) const {
  if (under_way >= depth_) throw std::logic_error("more transfers under way than a file's depth");
  if (transfer.bytes > kMostTransferBytes) throw std::logic_error("a transfer of more bytes than one may have");
}

void SwapFile::check_wait(Index under_way) {
  if (under_way == 0) throw std::logic_error("a wait with no transfer under way");
}

std::unique_ptr<BlockFile> open_swap_file(const std::string& directory, int rank, Index bytes, Index depth,
                                          FileRoute route, FileCache cache) {
  if (bytes < 0 || depth < 1) throw std::logic_error("a swap file of negative size or without depth");
  open_directory(directory);
  OpenedFile file = make_nameless_file(directory, rank);
  reserve(directory, rank, bytes, file.descriptor.get());
  const std::optional<std::string> no_direct =
      cache == FileCache::automatic ? why_not_direct(file.descriptor.get()) : std::optional<std::string>("");

  std::string no_uring;
  if (route != FileRoute::positioned) {
    file.description = describe("io_uring", no_direct, "");
    if (auto made = make_uring_file(file, depth, no_uring)) return made;
    if (route == FileRoute::io_uring) {
      throw UnusableInput(no_uring + "; pread and pwrite (the positioned route) would do");
    }
  }
  file.description = describe("pread and pwrite", no_direct, no_uring);
  return make_positioned_file(std::move(file), depth);
}

}  // namespace zero
