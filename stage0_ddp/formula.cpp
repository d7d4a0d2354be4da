#include "stage0_ddp/formula.h"

namespace zero::stage0_ddp {

formula::Formula formula(const formula::Setting& s) {
  const Index P = formula::padded_parameters(s);
  const Index g = formula::gradient_bytes(s);
  formula::Formula f = formula::common(s);
  f.memory["parameters"] = formula::parameter_bytes(s) * P;
  f.memory["gradients"] = g * P;
  f.memory["optimizer"] = formula::optimizer_bytes(s) * P;
  if (s.micro_steps > 1) f.memory["partial_sums"] = formula::partial_sums(s);

  // Each micro-step is reduced; the averaged gradient is gathered once. Every rank then has all of it, so that the norm
  // needs no message.
  formula::Sent& gradients = f.communication["gradients"];
  gradients = formula::gradient_passes(s, "reduce_scatter + all_gather", formula::reductions(s));
  const formula::Sent gathered = formula::passes(s, "all_gather", 1, g);
  gradients.bytes += gathered.bytes;
  gradients.calls += gathered.calls;
  f.communication["scalars"] = formula::scalars(s, false);
  return f;
}

formula::Formula baseline_formula(const formula::Setting& setting) {
  formula::Setting s = setting;
  s.world = 1;  // one slice: padded for one, and no messages
  const Index P = formula::padded_parameters(s);
  formula::Formula f = formula::common(s);
  f.memory["parameters"] = formula::parameter_bytes(s) * P;
  f.memory["gradients"] = (s.delayed_update ? 2 : 1) * formula::gradient_bytes(s) * P;
  f.memory["optimizer"] = formula::optimizer_bytes(s) * P;
  f.memory["workspace"] += 4 * 16384;  // between the sums over ranks and those over micro-steps, so many at a time
  const Index over_ranks = formula::floor_log2(setting.world) * 4 * P;
  const Index partial = over_ranks + formula::partial_sums(s);
  if (partial > 0) f.memory["partial_sums"] = partial;
  return f;
}

}  // namespace zero::stage0_ddp
