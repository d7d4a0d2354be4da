#pragma once
/// \file
/// The directory of swap files, and what to say about one that will not do.

#include <string>

#include "common/base/error.h"
#include "common/storage/descriptor.h"

namespace zero {

/// What `--nvme-path` is refused with when a system call on it ended with `error`.
UnusableInput unusable_directory(const std::string& directory, int error);

/// Opens a directory in which files can be made. Throws UnusableInput.
Descriptor open_directory(const std::string& directory);

}  // namespace zero
