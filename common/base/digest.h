#pragma once
/// \file
/// Digests of tensors that may be spread over ranks: sums modulo 2^128 of a hash of every element, so that ranks digest
/// their own slices in any order and the sums add up to the digest of the whole.

#include <cstdint>
#include <string>

#include "common/base/types.h"

namespace zero {

/// A number modulo 2^128. Trivially copyable: ranks exchange its bytes.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  void add(const Digest& other) {
    low += other.low;
    high += other.high + (low < other.low ? 1U : 0U);
  }
  friend bool operator==(const Digest&, const Digest&) = default;
};

/// 32 lower-case hexadecimal digits, the high half first.
std::string to_hex(const Digest& digest);

}  // namespace zero
