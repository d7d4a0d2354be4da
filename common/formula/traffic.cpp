// What a rank sends: the parts that all stages have in common.
#include <algorithm>

#include "common/formula/formula.h"

namespace zero::formula {

Index traffic(const Setting& s, Index elements, Index element_bytes) {
  return divide_up(elements * element_bytes * (s.world - 1), s.world);
}

Index bucket_columns(const Setting& s, Index slice) {
  if (s.bucket == 0) return slice;
  return std::min(slice, std::max<Index>(1, s.bucket / (gradient_bytes(s) * s.world)));
}

Index calls(const Setting& s, Index padded_unit) {
  const Index slice = divide_up(padded_unit, s.world);
  return slice == 0 ? 0 : divide_up(slice, bucket_columns(s, slice));
}

Sent passes(const Setting& s, const std::string& collective, Index times, Index element_bytes) {
  Sent sent{collective, 0, 0};
  for (const Index unit : padded_units(s)) {
    sent.bytes += times * traffic(s, unit, element_bytes);
    sent.calls += times * calls(s, unit);
  }
  return sent;
}

Index reductions(const Setting& s) { return s.local_first ? 1 : s.micro_steps; }

Sent scalars(const Setting& s, bool norm_over_ranks) {
  const Index losses = 8 * s.micro_steps;
  const Index norm = norm_over_ranks ? kNormAccumulatorBytes : 0;
  return {"all_gather", (losses + norm) * (s.world - 1), norm_over_ranks ? 2 : 1};
}

}  // namespace zero::formula
