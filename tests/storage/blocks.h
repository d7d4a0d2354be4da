#pragma once
/// \file
/// Memory for transfers, and the swap file of this process as the system shows it.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/storage/block_file.h"

namespace zero::testing {

/// Aligned memory in whole blocks.
class Blocks {
 public:
  explicit Blocks(Index bytes)
      : bytes_(round_up(bytes, kBlockBytes)),
        memory_(static_cast<std::byte*>(
            std::aligned_alloc(static_cast<std::size_t>(kBlockBytes), static_cast<std::size_t>(bytes_)))) {
    fill_with(std::byte{0});
  }

  void fill_with(std::byte value) { std::memset(data(), static_cast<int>(value), static_cast<std::size_t>(bytes_)); }
  /// Bytes that differ from those of another seed and do not repeat from block to block.
  void fill(std::uint64_t seed) {
    for (Index i = 0; i < bytes_; ++i) {
      seed = seed * 6364136223846793005U + 1442695040888963407U;
      data()[i] = static_cast<std::byte>(seed >> 56U);
    }
  }
  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  [[nodiscard]] Index bytes() const { return bytes_; }
  friend bool operator==(const Blocks& a, const Blocks& b) {
    return a.bytes_ == b.bytes_ && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes_)) == 0;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  Index bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

/// Why transfers cannot take a route on this machine; empty where they can.
inline std::string why_not(FileRoute route) {
  try {
    open_swap_file(std::filesystem::temp_directory_path().string(), 0, 0, 1, route);
    return "";
  } catch (const UnusableInput& refused) {
    return refused.what();
  }
}

/// The open swap files of this process, by paths under which they can be opened though they have no name any more.
inline std::vector<std::string> open_swap_files() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone).string().find("zero-swap-rank") != std::string::npos) {
      found.push_back(entry.path().string());
    }
  }
  return found;
}

}  // namespace zero::testing
