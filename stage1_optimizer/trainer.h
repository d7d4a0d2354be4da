#pragma once
/// \file
/// ZeRO stage 1: the optimizer states are sharded. Every rank holds all parameters and gradients and updates its slice.

#include <vector>

#include "common/shard/partial_sums.h"
#include "common/train/timers.h"
#include "common/train/trainer.h"

namespace zero::stage1_optimizer {

/// "P_os" of the ZeRO paper (section 5.1). Letters: N ranks, k micro-steps, P = padded size of a unit. All of it is
/// allocated at construction.
class Trainer final : public zero::Trainer {
 public:
  explicit Trainer(const Context& context);

  StepResult train_step(Index t) override;
  std::vector<double> evaluate(const Sampler& held_out, Index first) override;
  void visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const override;
  [[nodiscard]] const std::vector<FlatUnit>& units() const override { return units_; }

 private:
  double forward();
  void backward(Index m);
  void reduce(Index u, Index m);
  StepResult measure();
  void step(Index t, float clip_factor);
  void publish();
  [[nodiscard]] Array own_slice(Index u, const Buffer& unit) const;

  Context context_;
  std::vector<FlatUnit> units_;
  Gpt2 model_;

  std::vector<Buffer> parameters_;  // [unit] (P)
  std::vector<Buffer> gradients_;   // [unit] (P): a leaf, then in the own slice the average over all leaves
  std::vector<Buffer> master_;      // [unit] (P / N): fp32, where parameters are not
  std::vector<Buffer> momentum_;    // [unit] (P / N): the own slice's
  std::vector<Buffer> variance_;    // [unit] (P / N)
  PartialSums partial_sums_;        // over micro-steps: own slices (P / N)
  RunningSum running_sum_;          // local-first: whole units (P)
  Pending reduction_;               // the last one of a micro-step
  Index updates_ = 0;               // steps taken
  std::vector<double> losses_;      // [k]: of this rank's leaves
};

}  // namespace zero::stage1_optimizer
