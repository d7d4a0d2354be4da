// What the collectives of common/comm hold, restated: it is not in the paper.
#include <algorithm>

#include "common/formula/formula.h"

namespace zero::formula {
namespace {

constexpr Index kStaging = Index{4} << 20;   // of the transport, whichever it is
constexpr Index kSums = Index{256} << 10;    // of a reduce-scatter in parts
constexpr Index kLargestCount = 2147483647;  // elements over all ranks that one of MPI's collectives may move

}  // namespace

Index bucket_memory(const Setting& s) {
  if (s.world == 1) return 0;
  if (!s.native) return kStaging + kSums;
  const std::vector<Index> units = padded_units(s);
  const Index slice = *std::max_element(units.begin(), units.end()) / s.world;
  const Index part = std::min(bucket_columns(s, slice), kLargestCount / s.world);
  const Index sums = 4 * part;
  const Index packed = part < slice ? s.world * 4 * part : 0;  // MPI wants the N parts one after the other
  return kStaging + sums + packed;
}

}  // namespace zero::formula
