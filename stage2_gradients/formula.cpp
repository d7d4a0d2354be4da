#include "stage2_gradients/formula.h"

namespace zero::stage2_gradients {

formula::Formula formula(const formula::Setting& s) {
  const Index P = formula::padded_parameters(s);
  const Index p = formula::parameter_bytes(s), g = formula::gradient_bytes(s);
  formula::Formula f = formula::common(s);
  f.memory["parameters"] = p * P;
  f.memory["gradients"] = formula::slice_of(g * P, s);
  f.memory["optimizer"] = formula::slice_of(formula::optimizer_bytes(s) * P, s);
  if (s.micro_steps > 1) f.memory["partial_sums"] = formula::partial_sums(s);

  // A unit's whole gradient from its backward pass to its reduction.
  f.memory["gradient_in_flight"] = formula::gradient_in_flight(s);

  f.communication["gradients"] = formula::gradient_passes(s, "reduce_scatter", s.micro_steps);
  f.communication["parameters"] = formula::passes(s, "all_gather", 1, p);
  f.communication["scalars"] = formula::scalars(s, true);
  return f;
}

}  // namespace zero::stage2_gradients
