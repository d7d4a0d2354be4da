#include "tools/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "common/base/error.h"
#include "tools/table.h"

namespace zero::tools {

OutputFile::OutputFile(std::string option, std::string path) : option_(std::move(option)), path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code ignored;
  if (std::filesystem::is_directory(path_, ignored))
    throw UnusableInput(fmt::format("{} {} is a folder; a file would do", option_, harmless(path_)));
  const bool device = std::filesystem::exists(path_, ignored) && !std::filesystem::is_regular_file(path_, ignored);
  partial_ = device ? path_ : fmt::format("{}.partial{}", path_, getpid());  // a device is written as it is
  std::ofstream file(partial_, std::ios::binary);
  if (!file) {
    const int error = errno;
    partial_.clear();
    throw UnusableInput(fmt::format("{} {} cannot be written: {}", option_, harmless(path_), std::strerror(error)));
  }
}

OutputFile::~OutputFile() {
  if (!partial_.empty() && partial_ != path_) std::remove(partial_.c_str());
}

void OutputFile::write(const std::string& text) {
  if (!wanted()) return;
  std::ofstream file(partial_, std::ios::binary);
  file << text;
  file.close();
  if (!file || (partial_ != path_ && std::rename(partial_.c_str(), path_.c_str()) != 0)) {
    throw ResourceFailure(
        fmt::format("{} {} could not be written: {}", option_, harmless(path_), std::strerror(errno)));
  }
  partial_.clear();
}

}  // namespace zero::tools
