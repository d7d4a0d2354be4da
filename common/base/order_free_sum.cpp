#include "common/base/order_free_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

namespace zero {
namespace {

constexpr int kDigitBits = kOrderFreeDigitBits;
constexpr std::uint64_t kDigitMask = 0xFFFFFFFFU;
constexpr std::uint32_t kCarryFreeAdditions = 1U << 31;

}  // namespace

void OrderFreeSum::add(double term) {
  const OrderFreeTerm part = order_free_term(std::bit_cast<std::uint64_t>(term));
  nans_ += part.nan;
  infinities_ += part.infinity;
  if (part.digit < 0) return;
  const auto digit = static_cast<std::size_t>(part.digit);
  for (std::size_t i = 0; i < 3; ++i) {
    if (part.value[i] != 0) digits_[digit + i] += part.value[i];
  }
  if (++pending_ == kCarryFreeAdditions) normalize();
}

void OrderFreeSum::add(const OrderFreeSum& other) {
  OrderFreeSum carried = other;
  carried.normalize();
  for (std::size_t i = 0; i < digits_.size(); ++i) digits_[i] += carried.digits_[i];
  infinities_ += carried.infinities_;
  nans_ += carried.nans_;
  if (++pending_ == kCarryFreeAdditions) normalize();
}

void OrderFreeSum::add(const OrderFreeDigits& digits) {
  OrderFreeSum sum;
  std::copy(std::begin(digits.digit), std::end(digits.digit), sum.digits_.begin());
  sum.infinities_ = digits.infinities;
  sum.nans_ = digits.nans;
  add(sum);
}

double OrderFreeSum::value() const {
  if (nans_ > 0) return std::numeric_limits<double>::quiet_NaN();
  if (infinities_ > 0) return std::numeric_limits<double>::infinity();
  OrderFreeSum carried = *this;
  carried.normalize();
  int top = kOrderFreeDigits - 1;
  while (top >= 0 && carried.digits_[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return 0;

  // The 64 leading bits, the first of them set, and whether anything follows them.
  const auto digit = [&](int i) { return i < 0 ? std::uint64_t{0} : carried.digits_[static_cast<std::size_t>(i)]; };
  const int zeros = std::countl_zero(digit(top)) - kDigitBits;
  std::uint64_t leading = (digit(top) << kDigitBits | digit(top - 1)) << zeros;
  leading |= zeros == 0 ? 0 : digit(top - 2) >> (kDigitBits - zeros);
  bool more = (digit(top - 2) << zeros & kDigitMask) != 0;
  for (int i = top - 3; i >= 0; --i) more = more || digit(i) != 0;

  // Round to 53 bits, to nearest, ties to even. The result is a normal number: its exponent is between -320 and 352.
  constexpr int kDropped = 64 - 53;
  std::uint64_t mantissa = leading >> kDropped;
  const std::uint64_t rest = leading & ((std::uint64_t{1} << kDropped) - 1);
  constexpr std::uint64_t kHalf = std::uint64_t{1} << (kDropped - 1);
  if (rest > kHalf || (rest == kHalf && (more || (mantissa & 1) != 0))) ++mantissa;
  return std::ldexp(static_cast<double>(mantissa),
                    kOrderFreeLowestExponent + kDigitBits * (top - 1) - zeros + kDropped);
}

void OrderFreeSum::normalize() {
  // The last digit keeps what is carried into it: 2^31 terms below 2^320 end below 2^352.
  for (std::size_t i = 0; i + 1 < digits_.size(); ++i) {
    digits_[i + 1] += digits_[i] >> kDigitBits;
    digits_[i] &= kDigitMask;
  }
  pending_ = 0;
}

}  // namespace zero
