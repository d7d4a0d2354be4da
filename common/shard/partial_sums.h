#pragma once
/// \file
/// Sums over the micro-steps of a step, kept in fp32 until the last one is in.

#include <vector>

#include "common/device/device.h"

namespace zero {

/// A binary counter of partial sums: the sum over terms 0 .. n-1 as a tree split at the largest power of two below n,
/// left + right, while holding at most floor(log2 n) partial sums. Each unit has its own counter, and each element of a
/// unit may be added at its own time, as long as its terms come in order. With n = 1 every term is the first and the
/// last, and nothing is held.
class PartialSums {
 public:
  /// `sizes`: elements held for each unit. `terms` = n >= 1. Allocates floor(log2 n) buffers for each
  /// (Category::partial_sums).
  PartialSums(Device& device, const std::vector<Index>& sizes, Index terms);

  /// Adds `value` (fp32 or bf16) as term number `term` for the elements [begin, begin + value.size) of the unit. With
  /// the last term, writes out = sum / divisor, rounded once to its type, and returns true; before that `out` is not
  /// touched. `out` may be `value`.
  bool add(Index unit, Index term, Index begin, Array value, Array out, float divisor = 1);

 private:
  Device& device_;
  Index terms_;
  std::vector<std::vector<Buffer>> held_;  // [unit][level], the oldest (largest) partial sum first
};

/// Sums terms one after the other, as DDP's no_sync does: ((t0 + t1) + t2) + ... in fp32. With one term every term
/// is the first and the last, and nothing is held.
class RunningSum {
 public:
  RunningSum(Device& device, const std::vector<Index>& sizes, Index terms);

  /// Adds the whole unit's `value` (fp32 or bf16) as term number `term`. With the last term, writes the sum into
  /// `value`, returns true.
  bool add(Index unit, Index term, Array value);

 private:
  Device& device_;
  Index terms_;
  std::vector<Buffer> held_;  // [unit]
};

}  // namespace zero
