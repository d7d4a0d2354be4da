#include "common/storage/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cstring>

#include "common/storage/block_file.h"

namespace zero {

UnusableInput unusable_directory(const std::string& directory, int error) {
  constexpr const char* kRemedy = "a directory that can be written to would do";
  switch (error) {
    case ENOENT:
      return UnusableInput(fmt::format("--nvme-path {} does not exist; create it, or {}", directory, kRemedy));
    case ENOTDIR: return UnusableInput(fmt::format("--nvme-path {} is not a directory; {}", directory, kRemedy));
    default:
      return UnusableInput(
          fmt::format("--nvme-path {} cannot be written to ({}); {}", directory, std::strerror(error), kRemedy));
  }
}

Descriptor open_directory(const std::string& directory) {
  Descriptor opened(
      uninterrupted([&] { return open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK); }));
  if (!opened) throw unusable_directory(directory, errno);
  if (faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0) throw unusable_directory(directory, errno);
  return opened;
}

SwapDirectoryLock::SwapDirectoryLock(const std::string& directory) {
  Descriptor opened = open_directory(directory);
  if (uninterrupted([&] { return flock(opened.get(), LOCK_EX | LOCK_NB); }) != 0) {
    if (errno == EWOULDBLOCK) {
      throw UnusableInput(
          fmt::format("--nvme-path {} is in use by another run; another directory would do", directory));
    }
    throw UnusableInput(fmt::format("--nvme-path {} cannot be locked ({}); a directory on a local file system would do",
                                    directory, std::strerror(errno)));
  }
  descriptor_ = std::move(opened);
}

}  // namespace zero
