#pragma once
/// \file
/// An exact sum of non-negative doubles: the result does not depend on the order, so not on who added what.

#include <array>
#include <cstdint>

#include "common/base/order_free_digits.h"

namespace zero {

/// A fixed-point number of 32-bit digits wide enough for sums of squares of fp32 values: from 2^-320 to 2^352. Adding
/// is exact for terms that are multiples of 2^-320 and below 2^288 (blocks of 32 squares of fp32 values are: the least
/// non-zero square is 2^-298 and the largest block sum below 2^261); so are at least 2^31 additions without carry.
/// Infinities and NaNs are counted apart, so that the sum of anything with them is infinite or NaN as IEEE would have
/// it. Trivially copyable: ranks exchange its bytes.
class OrderFreeSum {
 public:
  /// Adds `term` >= 0 (or not finite). A negative term counts as a NaN, one of 2^320 or more as an infinity.
  void add(double term);
  /// Adds another sum.
  void add(const OrderFreeSum& other);
  /// Adds the digits of fewer than 2^31 terms, as a device added them up.
  void add(const OrderFreeDigits& digits);
  /// The sum rounded once to double, to nearest, ties to even. NaN if a NaN was added, else infinity if an infinity
  /// was.
  [[nodiscard]] double value() const;

 private:
  void normalize();  ///< carries, so that every digit is below 2^32

  std::array<std::uint64_t, kOrderFreeDigits> digits_{};
  std::uint32_t pending_ = 0;  ///< additions since the last carry
  std::uint32_t infinities_ = 0;
  std::uint32_t nans_ = 0;
};

}  // namespace zero
