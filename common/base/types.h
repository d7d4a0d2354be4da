#pragma once
/// \file
/// The integer type of every size, index and count.

#include <cstdint>

namespace zero {

/// Sizes, indices and counts: signed and 64 bits wide, up to the very call of a library that takes less.
using Index = std::int64_t;

/// The least multiple of `step` that is not below `value`. `value >= 0`, `step > 0`.
constexpr Index round_up(Index value, Index step) { return (value + step - 1) / step * step; }

/// `ceil(a / b)` for `a >= 0`, `b > 0`.
constexpr Index divide_up(Index a, Index b) { return (a + b - 1) / b; }

}  // namespace zero
