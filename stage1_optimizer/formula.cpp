#include "stage1_optimizer/formula.h"

namespace zero::stage1_optimizer {

formula::Formula formula(const formula::Setting& s) {
  const Index P = formula::padded_parameters(s);
  const Index p = formula::parameter_bytes(s), g = formula::gradient_bytes(s);
  formula::Formula f = formula::common(s);
  f.memory["parameters"] = p * P;
  f.memory["gradients"] = g * P;
  f.memory["optimizer"] = formula::slice_of(formula::optimizer_bytes(s) * P, s);
  if (s.micro_steps > 1) f.memory["partial_sums"] = formula::partial_sums(s);

  f.communication["gradients"] = formula::gradient_passes(s, "reduce_scatter", formula::reductions(s));
  f.communication["parameters"] = formula::passes(s, "all_gather", 1, p);
  f.communication["scalars"] = formula::scalars(s, true);
  return f;
}

}  // namespace zero::stage1_optimizer
