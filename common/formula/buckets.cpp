// What the collectives of common/comm hold, restated: it is not in the paper.
#include <algorithm>

#include "common/formula/formula.h"

namespace zero::formula {
namespace {

constexpr Index kStaging = Index{4} << 20;   // of the transport, whichever it is
constexpr Index kSums = Index{256} << 10;    // of a reduce-scatter in parts
constexpr Index kLargestCount = 2147483647;  // elements over all ranks that one of MPI's collectives may move

// On a GPU half of it is there, and the whole of it in host memory.
Index device_staging(const Setting& s) { return s.gpu ? kStaging / 2 : kStaging; }

// The largest block that a rank offers another of `ranks` in one exchange: what is left of the staging memory by a
// counter and two tables of 16 bytes a rank, all aligned to 128 bytes, in two halves.
Index block(const Setting& s, Index ranks) {
  const Index overhead = 128 + 128 + round_up(2 * ranks * 16, 128);
  return (device_staging(s) - overhead) / 2 / (ranks - 1) / 128 * 128;
}

/// What one communicator of `ranks` holds, where units of more than one byte pattern are widened into sums.
Index communicator(const Setting& s, Index ranks, bool native, bool bf16, Index slice, Index columns) {
  if (ranks == 1) return bf16 ? kSums : 0;
  if (!native) return device_staging(s) + kSums;
  const Index part = std::min(columns, kLargestCount / ranks);
  const Index sums = 4 * part;
  const Index packed = part < slice || s.bf16 ? ranks * 4 * part : 0;  // MPI wants the N parts one after the other
  return device_staging(s) + sums + packed;
}

}  // namespace

Index bucket_memory(const Setting& s) {
  const std::vector<Index> units = padded_units(s);
  const Index group = slices(s);
  const Index slice = *std::max_element(units.begin(), units.end()) / group;
  const Index columns = bucket_columns(s, slice);
  const Index states = communicator(s, group, s.native, s.bf16, slice, columns);
  if (group == s.world) return states;
  // Beside that of the group one of all ranks, for losses, and one across groups.
  return states + communicator(s, s.world, false, false, slice, columns) +
         communicator(s, s.world / group, false, false, slice, columns);
}

Index host_bucket_memory(const Setting& s) {
  if (!s.gpu || s.world == 1) return 0;
  const Index group = slices(s);
  Index communicators = 1;
  if (group < s.world) communicators = (group > 1 ? 1 : 0) + 2;  // the group's, all ranks', those across
  return communicators * kStaging;
}

Index reduction_parts(const Setting& s, Index columns) {
  const Index group = slices(s);
  Index part = columns;
  if (group > 1 && s.native) part = std::min(columns, kLargestCount / group);
  if (group > 1 && !s.native) {
    const Index sent = s.ring ? 4 : gradient_bytes(s);  // bytes of an element, at most
    part = std::min(kSums / 4, block(s, group) / sent);
  }
  if (group == 1 && s.bf16) part = kSums / 4;
  return divide_up(columns, part);
}

}  // namespace zero::formula
