#pragma once
/// \file
/// Data for tests of collectives: every rank can compute what any rank holds.

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/comm/communicator.h"

namespace zero::testing {

inline constexpr double kTimeout = 60;

/// A well-mixed 64-bit hash (splitmix64's last step).
inline std::uint64_t mix(std::uint64_t x) {
  x = (x + 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

/// Element i of rank r's unit: a float of widely varying magnitude, so that every order of additions rounds
/// differently.
inline float rough(int rank, Index i) {
  const std::uint64_t bits = mix(static_cast<std::uint64_t>(i) * 64 + static_cast<std::uint64_t>(rank));
  const float mantissa = static_cast<float>(static_cast<std::int32_t>(bits & 0xFFFFFFU)) - 8388608.0F;
  return mantissa * (bits >> 40U & 1U ? 1.0F : 0x1p-6F) * (bits >> 41U & 1U ? 1.0F : 0x1p-12F);
}

/// Element i of rank r's unit: a small integer, so that every order of additions gives the same bits.
inline float smooth(int rank, Index i) {
  return static_cast<float>(mix(static_cast<std::uint64_t>(i) * 64 + static_cast<std::uint64_t>(rank)) % 2001) -
         1000.0F;
}

using Element = float (*)(int rank, Index i);

inline std::vector<float> unit_of(int rank, Index size, Element element) {
  std::vector<float> unit(static_cast<std::size_t>(size));
  for (Index i = 0; i < size; ++i) unit[static_cast<std::size_t>(i)] = element(rank, i);
  return unit;
}

/// tree(terms): split at the largest power of two below the number of terms, left + right.
inline float tree(std::span<const float> terms) {
  if (terms.size() == 1) return terms[0];
  std::size_t half = 1;
  while (half * 2 < terms.size()) half *= 2;
  return tree(terms.first(half)) + tree(terms.subspan(half));
}

inline Array view(std::vector<float>& data) { return {data.data(), static_cast<Index>(data.size())}; }
inline ConstArray view(const std::vector<float>& data) { return {data.data(), static_cast<Index>(data.size())}; }

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace zero::testing
