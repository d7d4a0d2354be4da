#pragma once
/// \file
/// AdamW with its schedule and clipping, on slices of flat units.

#include <cstdint>
#include <span>
#include <string>

#include "common/comm/communicator.h"
#include "common/device/device.h"
#include "common/shard/flat_unit.h"

namespace zero {

/// `--lr-schedule`
enum class Schedule { constant, cosine };

struct AdamWOptions {
  double learning_rate = 1e-3;
  Schedule schedule = Schedule::constant;
  Index warmup = 0;  ///< steps of linear warm-up
  double min_learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  ///< on matrices only
  double clip = 1.0;          ///< largest gradient norm; 0 = off
  Index steps = 1;            ///< of the whole run: where the cosine ends
};

/// The rate of step t = 1, 2, ...: `warmup` steps of lr * t / warmup, then constant, or a cosine that reaches
/// min_learning_rate at t = steps.
double learning_rate(const AdamWOptions& options, Index t);

/// The scalars of step t (step.weight_decay is the matrices'): the rate is the schedule's at t, the bias corrections
/// are those of update number `update` = 1, 2, ..., which is behind t when steps were skipped.
AdamWStep adamw_step(const AdamWOptions& options, Index t, Index update, float clip_factor);

/// Updates the flat range [begin, begin + parameters.size) of a unit, tensor by tensor (decay differs); gaps and
/// padding are left alone. All views are of that range. Where there are master weights (bf16 training), they are
/// updated and the parameters are they, rounded; `master` is empty where there are none.
void adamw_update(Kernels& kernels, const FlatUnit& unit, Index begin, Array parameters, Array master, Array momentum,
                  Array variance, ConstArray gradients, const AdamWStep& step);

/// The norm of the averaged gradient and what clipping makes of it.
struct GradientNorm {
  double value = 0;       ///< before clipping
  float clip_factor = 1;  ///< clip / value where value > clip > 0
  [[nodiscard]] bool finite() const;
};

/// From the exact sum of squares over all elements.
GradientNorm gradient_norm(const OrderFreeSum& squares, double clip);

}  // namespace zero
