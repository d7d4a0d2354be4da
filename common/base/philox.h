#pragma once
/// \file
/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11), for host and
/// device. Included by code that is compiled once per instruction set, so: no other header, internal linkage.

#include <cstdint>

#if defined(__CUDACC__)
#define ZERO_HD __host__ __device__
#else
#define ZERO_HD  ///< marks a function that both host and device call
#endif

namespace zero {

/// Four output (or counter) words.
struct PhiloxBlock {
  std::uint32_t word[4];
};

/// The ten rounds: a block of random bits for a 128-bit counter under a 64-bit key.
ZERO_HD static inline PhiloxBlock philox4x32_10(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1) {
  std::uint32_t x0 = counter.word[0], x1 = counter.word[1], x2 = counter.word[2], x3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * x0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * x2;
    x0 = static_cast<std::uint32_t>(product1 >> 32) ^ x1 ^ key0;
    x1 = static_cast<std::uint32_t>(product1);
    x2 = static_cast<std::uint32_t>(product0 >> 32) ^ x3 ^ key1;
    x3 = static_cast<std::uint32_t>(product0);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return {{x0, x1, x2, x3}};
}

/// 64 random bits for (seed, stream, index): what random_bits() of random.h returns.
ZERO_HD static inline std::uint64_t philox_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const PhiloxBlock counter = {{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                                static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
  const PhiloxBlock out =
      philox4x32_10(counter, static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  return std::uint64_t{out.word[0]} | std::uint64_t{out.word[1]} << 32;
}

}  // namespace zero
