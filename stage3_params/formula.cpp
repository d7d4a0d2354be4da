#include "stage3_params/formula.h"

#include <algorithm>

namespace zero::stage3_params {

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

formula::Formula formula(const formula::Setting& s) {
  const Index P = formula::padded_parameters(s);
  const Index p = formula::parameter_bytes(s), g = formula::gradient_bytes(s);
  formula::Formula f;
  f.memory = formula::common_memory(s);
  f.memory["parameters"] = formula::slice_of(p * P, s);
  f.memory["gradients"] = formula::slice_of(g * P, s);
  f.memory["optimizer"] = formula::slice_of(formula::optimizer_bytes(s) * P, s);
  if (s.micro_steps > 1) f.memory["partial_sums"] = formula::partial_sums(s);

  const std::vector<Index> units = formula::padded_units(s);
  f.memory["gradient_in_flight"] = g * *std::max_element(units.begin(), units.end());
  const Gathers gathered = gathers(units, s.prefetch, s.reshard_after_forward);
  f.memory["gathered"] = p * gathered.peak;

  f.communication["gradients"] = formula::gradient_passes(s, "reduce_scatter", s.micro_steps);
  if (s.world > formula::slices(s)) f.communication["gradients_across"] = formula::across_groups(s);
  formula::Sent& parameters = f.communication["parameters"];
  parameters.collective = "all_gather";
  for (std::size_t i = 0; i < units.size(); ++i) {
    const Index times = s.micro_steps * gathered.times[i];
    parameters.bytes += times * formula::traffic(s, units[i], p);
    parameters.calls += times * formula::calls(s, units[i]);
  }
  f.communication["scalars"] = formula::scalars(s, true);
  return f;
}

}  // namespace zero::stage3_params
