#pragma once
/// \file
/// Counter-based random numbers: a value is a function of (seed, stream, index), so that any rank makes any part alone.

#include <cstdint>

#include "common/base/types.h"

namespace zero {

/// 64 random bits for the `index`-th draw of `stream` under `seed` (Philox4x32-10, Salmon et al., SC11: counter =
/// (index, stream), key = seed; the first two of its four output words).
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

/// A keyed permutation of [0, n) (a Feistel network over random_bits with cycle walking): `index` in [0, n), n >= 1.
Index random_permutation(std::uint64_t seed, std::uint64_t stream, Index index, Index n);

}  // namespace zero
