#pragma once
/// \file
/// ZeRO stage 2: optimizer states and gradients are sharded. A unit's whole gradient lives only until it is reduced.

#include <vector>

#include "common/shard/partial_sums.h"
#include "common/train/timers.h"
#include "common/train/trainer.h"

namespace zero::stage2_gradients {

/// "P_os+g" of the ZeRO paper (section 5.2). Letters: N ranks, k micro-steps, P = padded size of a unit. The members
/// are allocated at construction; a whole gradient (gradient_in_flight) is allocated and freed in backward().
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
  Buffer whole_gradient(Index u);
  void reduce(Index u, Index m, Buffer gradient);
  StepResult measure();
  void step(Index t, float clip_factor);
  void publish();
  [[nodiscard]] Array own_slice(Index u, const Buffer& unit) const;

  Context context_;
  std::vector<FlatUnit> units_;
  Gpt2 model_;

  std::vector<Buffer> parameters_;  // [unit] (P)
  std::vector<Buffer> gradients_;   // [unit] (P / N): the own slice of the average over all leaves
  std::vector<Buffer> master_;      // [unit] (P / N): fp32, where parameters are not
  std::vector<Buffer> momentum_;    // [unit] (P / N): the own slice's
  std::vector<Buffer> variance_;    // [unit] (P / N)
  GradientInFlight in_flight_;      // a unit's whole gradient (P), beside the next one's backward pass
  PartialSums partial_sums_;        // over micro-steps: own slices (P / N)
  Index updates_ = 0;               // steps taken
  std::vector<double> losses_;      // [k]: of this rank's leaves
};

}  // namespace zero::stage2_gradients
