#include "common/base/random.h"

#include "common/base/philox.h"

namespace zero {

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return philox_bits(seed, stream, index);
}

Index random_permutation(std::uint64_t seed, std::uint64_t stream, Index index, Index n) {
  // Any Feistel network is a bijection of [0, 4^half_bits), the least such power not below n. Walking along its cycle
  // until a number below n comes is a bijection of [0, n).
  int half_bits = 1;
  while (half_bits < 32 && (std::uint64_t{1} << (2 * half_bits)) < static_cast<std::uint64_t>(n)) ++half_bits;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  constexpr std::uint64_t kRounds = 8;
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (random_bits(seed, stream, round << 32 | right) & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits | right;
  } while (value >= static_cast<std::uint64_t>(n));
  return static_cast<Index>(value);
}

}  // namespace zero
