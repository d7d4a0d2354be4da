#include "common/data/batches.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/base/error.h"
#include "common/base/random.h"

namespace zero {
namespace {

constexpr Index kBlockBytes = 32 << 10;
constexpr Index kHeaderInts = 256;
constexpr Index kHeaderBytes = kHeaderInts * 4;
constexpr std::int32_t kMagic = 20240520;
constexpr std::int32_t kVersion = 1;

using Block = std::array<unsigned char, kBlockBytes>;

std::string reason() { return std::strerror(errno); }

/// Reads up to `size` bytes at `offset`; fewer only at the end of the file.
Index read_at(int descriptor, const std::string& path, unsigned char* out, Index offset, Index size) {
  Index done = 0;
  while (done < size) {
    const ssize_t got =
        pread(descriptor, out + done, static_cast<std::size_t>(size - done), static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ResourceFailure(fmt::format("--data {} cannot be read: {}", path, reason()));
    if (got == 0) break;
    done += got;
  }
  return done;
}

std::int32_t little_endian_int(const unsigned char* bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8U | bytes[i];
  return static_cast<std::int32_t>(value);
}

std::int32_t token_at(const unsigned char* bytes, Index i, Index token_bytes) {
  if (token_bytes == 1) return bytes[i];
  return bytes[2 * i] | bytes[2 * i + 1] << 8;
}

/// The tokens that the header of a `.bin` file of `bytes` bytes promises, after checking it.
Index checked_header(int descriptor, const std::string& path, Index bytes) {
  if (bytes < kHeaderBytes) {
    throw UnusableInput(
        fmt::format("--data {} is too short ({}) for a .bin token file, which starts with a header of {} bytes", path,
                    bytes, kHeaderBytes));
  }
  Block block;
  if (read_at(descriptor, path, block.data(), 0, kHeaderBytes) < kHeaderBytes) {
    throw UnusableInput(fmt::format("--data {} shrank while its header was read", path));
  }
  const std::int32_t magic = little_endian_int(block.data());
  const std::int32_t version = little_endian_int(block.data() + 4);
  const Index count = little_endian_int(block.data() + 8);
  if (magic != kMagic) {
    throw UnusableInput(
        fmt::format("--data {} is not a token file: its magic number is {}, not {}; text needs a name "
                    "that does not end in .bin",
                    path, magic, kMagic));
  }
  if (version != kVersion) {
    throw UnusableInput(fmt::format("--data {} has version {}; version {} can be read", path, version, kVersion));
  }
  if (count < 0 || bytes != kHeaderBytes + 2 * count) {
    throw UnusableInput(
        fmt::format("--data {} is damaged: its header says {} tokens, which take {} bytes, and the file has "
                    "{}",
                    path, count, kHeaderBytes + 2 * count, bytes));
  }
  return count;
}

}  // namespace

TokenFile::TokenFile(const std::string& path, Index context, Index vocab) : path_(path), vocab_(vocab) {
  // Without O_NONBLOCK, opening a pipe would wait for somebody to write to it.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw UnusableInput(fmt::format("--data {} cannot be opened: {}", path, reason()));
  try {
    check(context);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

TokenFile::~TokenFile() { close(descriptor_); }

void TokenFile::check(Index context) {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) {
    throw UnusableInput(fmt::format("--data {} cannot be examined: {}", path_, reason()));
  }
  if (!S_ISREG(status.st_mode)) {
    throw UnusableInput(fmt::format("--data {} is {}; a text file or a .bin token file would do", path_,
                                    S_ISDIR(status.st_mode) ? "a directory" : "not a regular file"));
  }
  if (status.st_size == 0) {
    throw UnusableInput(
        fmt::format("--data {} is empty; --context {} needs at least {} tokens", path_, context, context + 1));
  }
  size_ = status.st_size;
  if (std::string_view(path_).ends_with(".bin")) {
    size_ = checked_header(descriptor_, path_, status.st_size);
    token_bytes_ = 2;
    first_byte_ = kHeaderBytes;
  }
  if (size_ < context + 1) {
    throw UnusableInput(fmt::format("--data {} has {} token{}; --context {} needs at least {}", path_, size_,
                                    size_ == 1 ? "" : "s", context, context + 1));
  }

  Block block;
  const Index block_tokens = kBlockBytes / token_bytes_;
  for (Index position = 0; position < size_; position += block_tokens) {
    const Index tokens = std::min(block_tokens, size_ - position);
    const Index bytes = tokens * token_bytes_;
    if (read_at(descriptor_, path_, block.data(), first_byte_ + position * token_bytes_, bytes) < bytes) {
      throw UnusableInput(fmt::format("--data {} shrank while it was checked", path_));
    }
    for (Index i = 0; i < tokens; ++i) {
      const std::int32_t token = token_at(block.data(), i, token_bytes_);
      if (token < vocab_) continue;
      throw UnusableInput(fmt::format("--data {} holds the {} {} at position {}; it must be below --vocab {}", path_,
                                      token_bytes_ == 1 ? "byte" : "token", token, position + i, vocab_));
    }
  }
}

void TokenFile::read(Index position, std::span<std::int32_t> out) const {
  Block block;
  const Index block_tokens = kBlockBytes / token_bytes_;
  const Index size = static_cast<Index>(out.size());
  for (Index done = 0; done < size; done += block_tokens) {
    const Index tokens = std::min(block_tokens, size - done);
    const Index bytes = tokens * token_bytes_;
    const Index first = position + done;
    if (read_at(descriptor_, path_, block.data(), first_byte_ + first * token_bytes_, bytes) < bytes) {
      throw ResourceFailure(fmt::format("--data {} has shrunk since the run began: tokens {} to {} are gone", path_,
                                        first, first + tokens - 1));
    }
    for (Index i = 0; i < tokens; ++i) {
      const std::int32_t token = token_at(block.data(), i, token_bytes_);
      // Checked again, since a token indexes a table and the file may have been written to since.
      if (token >= vocab_) {
        throw ResourceFailure(
            fmt::format("--data {} has changed since the run began: {} at position {} is not below "
                        "--vocab {}",
                        path_, token, first + i, vocab_));
      }
      out[done + i] = token;
    }
  }
}

Sampler::Sampler(const TokenFile& file, Index context, std::uint64_t seed)
    : file_(file), context_(context), seed_(seed), sequences_((file.size() - 1) / context) {}

Index Sampler::position(Index sample) const {
  const Index epoch = sample / sequences_;
  return random_permutation(seed_, static_cast<std::uint64_t>(epoch), sample % sequences_, sequences_) * context_;
}

void Sampler::load(Index first_sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
  const Index rows = static_cast<Index>(tokens.size()) / context_;
  for (Index row = 0; row < rows; ++row) {
    const Index first = position(first_sample + row);
    file_.read(first, tokens.subspan(row * context_, context_));
    file_.read(first + 1, targets.subspan(row * context_, context_));
  }
}

}  // namespace zero
