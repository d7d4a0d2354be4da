#include "stage3_params/formula.h"

#include <algorithm>

namespace zero::stage3_params {

formula::Formula formula(const formula::Setting& s) {
  const Index P = formula::padded_parameters(s);
  const Index p = formula::parameter_bytes(s), g = formula::gradient_bytes(s);
  formula::Formula f = formula::common(s);
  f.memory["parameters"] = formula::slice_of(p * P, s);
  f.memory["gradients"] = formula::slice_of(g * P, s);
  f.memory["optimizer"] = formula::slice_of(formula::optimizer_bytes(s) * P, s);
  if (s.micro_steps > 1) f.memory["partial_sums"] = formula::partial_sums(s);

  const std::vector<Index> units = formula::padded_units(s);
  f.memory["gradient_in_flight"] = formula::gradient_in_flight(s);
  const formula::Gathers gathered = formula::gathers(units, s.prefetch, s.reshard_after_forward);
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
