// What is gathered when units are sharded and gathered as they are used.
#include <algorithm>

#include "common/formula/formula.h"

namespace zero::formula {

Gathers gathers(const std::vector<Index>& units, Index prefetch, bool reshard) {
  const auto count = static_cast<Index>(units.size());
  const Index uses = 2 * count;  // the embedding, the blocks, the head, the blocks
  const auto unit_of = [count](Index use) {
    return static_cast<std::size_t>(use < count ? use : (2 * count - use) % count);
  };
  const auto next_use = [count, uses](Index use) { return use == 0 ? count : use < count ? uses - use : uses; };

  Gathers result{std::vector<Index>(units.size(), 0), 0};
  std::vector<bool> held(units.size(), false);
  Index sum = 0, ahead = 0;  // uses below `ahead` have been looked at
  for (Index use = 0; use < uses; ++use) {
    const Index last = std::min(uses - 1, prefetch < uses - use ? use + prefetch : uses - 1);
    for (; ahead <= last; ++ahead) {
      const std::size_t unit = unit_of(ahead);
      if (held[unit]) continue;
      held[unit] = true;
      sum += units[unit];
      ++result.times[unit];
    }
    result.peak = std::max(result.peak, sum);
    const Index next = next_use(use);
    if (next == uses || (reshard && next > last)) {
      held[unit_of(use)] = false;
      sum -= units[unit_of(use)];
    }
  }
  return result;
}

}  // namespace zero::formula
