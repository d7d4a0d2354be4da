// What a rank sends: the parts that all stages have in common.
#include <algorithm>

#include "common/formula/formula.h"

namespace zero::formula {

Index traffic(const Setting& s, Index elements, Index element_bytes) {
  return divide_up(elements * element_bytes * (slices(s) - 1), slices(s));
}

Index bucket_columns(const Setting& s, Index slice) {
  if (s.bucket == 0) return slice;
  return std::min(slice, std::max<Index>(1, s.bucket / (gradient_bytes(s) * slices(s))));
}

Index calls(const Setting& s, Index padded_unit) {
  const Index slice = divide_up(padded_unit, slices(s));
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

Sent gradient_passes(const Setting& s, const std::string& collective, Index times) {
  Sent sent = passes(s, collective, times, gradient_bytes(s));
  if (!s.ring) return sent;
  sent.bytes = 0;
  for (const Index unit : padded_units(s)) {
    const Index slice = divide_up(unit, slices(s)), hops = slices(s) - 1;
    if (hops > 0) sent.bytes += times * slice * (gradient_bytes(s) + (hops - 1) * 4);
  }
  return sent;
}

Sent across_groups(const Setting& s) {
  const Index groups = s.world / slices(s);
  Sent sent{"all_reduce", 0, 0};
  if (groups == 1) return sent;
  for (const Index unit : padded_units(s)) {
    const Index slice = unit / slices(s), columns = bucket_columns(s, slice);
    sent.bytes += s.micro_steps * (groups - 1) * slice * 4;
    for (Index begin = 0; begin < slice; begin += columns) {
      sent.calls += s.micro_steps * reduction_parts(s, std::min(columns, slice - begin));
    }
  }
  return sent;
}

Index reductions(const Setting& s) { return s.local_first ? 1 : s.micro_steps; }

Sent scalars(const Setting& s, bool norm_over_ranks) {
  const Index losses = 8 * s.micro_steps;
  const Index norm = norm_over_ranks ? kNormAccumulatorBytes : 0;
  return {"all_gather", losses * (s.world - 1) + norm * (slices(s) - 1), norm_over_ranks ? 2 : 1};
}

}  // namespace zero::formula
