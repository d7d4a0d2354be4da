#pragma once
/// \file
/// How a term of an OrderFreeSum falls into digits, for host and device: integer work alone, so that a device adds
/// terms by integer atomics in any order. Included by code for devices: internal linkage, no other header but these.

#include <cstdint>

#include "common/base/philox.h"

namespace zero {

constexpr int kOrderFreeDigits = 21;            ///< 21 * 32 = 672 bits
constexpr int kOrderFreeDigitBits = 32;         ///< of a digit when all is carried
constexpr int kOrderFreeLowestExponent = -320;  ///< weight of bit 0 of digit 0

/// Digits to which fewer than 2^31 terms were added without a carry, and the counts of terms that are not finite.
struct OrderFreeDigits {
  std::uint64_t digit[kOrderFreeDigits];
  std::uint32_t infinities;
  std::uint32_t nans;
};

/// What a term adds: `value[i]`, each below 2^32, to digit `digit + i`; nothing to any digit when `digit` is -1.
struct OrderFreeTerm {
  int digit;
  std::uint64_t value[3];
  std::uint32_t infinity;  ///< 1 for infinity and for a term of 2^320 or more, which no block of squares reaches
  std::uint32_t nan;       ///< 1 for a NaN and for a negative term, which is a mistake that must not pass unseen
};

/// `bits`: of a double >= 0 (or not finite). What a term has below 2^-320 is cut off it, the same in every order (so
/// are doubles that are subnormal: they lie below altogether).
ZERO_HD static inline OrderFreeTerm order_free_term(std::uint64_t bits) {
  const std::uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFU;
  const bool negative = bits != magnitude && magnitude != 0;
  if (magnitude > 0x7FF0000000000000U || negative) return {-1, {0, 0, 0}, 0, 1};
  constexpr int kBias = 1023;
  const auto exponent = static_cast<int>(magnitude >> 52);
  if (exponent >= kBias - kOrderFreeLowestExponent) return {-1, {0, 0, 0}, 1, 0};
  // term = mantissa * 2^position in units of the lowest digit.
  std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | (std::uint64_t{1} << 52);
  int position = exponent - kBias - 52 - kOrderFreeLowestExponent;
  if (exponent == 0 || position <= -53) return {-1, {0, 0, 0}, 0, 0};
  if (position < 0) {
    mantissa >>= -position;
    position = 0;
  }
  const int shift = position % kOrderFreeDigitBits;
  // The shifted mantissa has at most 85 bits: three digits.
  const std::uint64_t low = mantissa << shift;
  const std::uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  return {position / kOrderFreeDigitBits, {low & 0xFFFFFFFFU, low >> 32, high}, 0, 0};
}

}  // namespace zero
