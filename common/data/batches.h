#pragma once
/// \file
/// Training data: a text file whose bytes are tokens, or a token file, and the sampler that says which sequence a
/// step's leaf sees.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/types.h"

namespace zero {

/// An open file of tokens. Files are hostile until checked: the constructor reads the whole file once in small blocks
/// and refuses (UnusableInput, one sentence with file, position and value) what is missing, not a regular file, empty,
/// too short for one sequence of `context` + 1 tokens, damaged, or holds a token at or above `vocab`. Holds a
/// descriptor and no contents.
class TokenFile {
 public:
  /// `path`: `.bin` is a token file (256 little-endian int32: magic 20240520, version 1, count; then uint16 tokens);
  /// anything else is text, a token per byte.
  TokenFile(const std::string& path, Index context, Index vocab);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  [[nodiscard]] Index size() const { return size_; }  ///< tokens
  /// Reads out.size() tokens from `position`. Throws ResourceFailure when the file has shrunk, has changed to hold a
  /// token that is not below `vocab`, or cannot be read.
  void read(Index position, std::span<std::int32_t> out) const;

 private:
  void check(Index context);

  std::string path_;
  Index vocab_;
  int descriptor_ = -1;
  Index size_ = 0;
  Index token_bytes_ = 1;
  Index first_byte_ = 0;
};

/// Which sequence sample g of the run is: the file is cut into sequences of `context` tokens (the tail that does not
/// fill one is left out); each epoch visits every sequence once in an order keyed by (seed, epoch). It depends on the
/// global sample index alone, never on ranks.
class Sampler {
 public:
  /// Over the tokens [begin, end) of the file; `end` 0: to the end.
  Sampler(const TokenFile& file, Index context, std::uint64_t seed, Index begin = 0, Index end = 0);

  [[nodiscard]] Index sequences() const { return sequences_; }
  /// Position of the first token of sample g.
  [[nodiscard]] Index position(Index sample) const;
  /// Fills tokens and targets (the next tokens), both (rows, context), for samples first, first + 1, ...
  void load(Index first_sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;

 private:
  const TokenFile& file_;
  Index context_;
  std::uint64_t seed_;
  Index begin_;
  Index sequences_;
};

}  // namespace zero
