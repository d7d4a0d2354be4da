#pragma once
/// \file
/// The unsharded baseline: one process that computes every leaf itself and adds in the order of N ranks. Stage 0 is N
/// copies of it.

#include <optional>
#include <vector>

#include "common/shard/partial_sums.h"
#include "common/train/trainer.h"

namespace zero::stage0_ddp {

/// Letters: W the world whose order of additions it follows, k micro-steps, P = padded size of a unit. All of it is
/// allocated at construction. It communicates nothing.
class Baseline final : public zero::Trainer {
 public:
  explicit Baseline(const Context& context);

  StepResult train_step(Index t) override;
  std::vector<double> evaluate(const Sampler& held_out, Index first) override;
  void visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const override;
  [[nodiscard]] const std::vector<FlatUnit>& units() const override { return units_; }

 private:
  void leaf(Index t, Index m, Index r);
  double forward();
  void backward();
  void reduce(Index u, Index m, Index r);
  StepResult measure();
  void step(Index t, float clip_factor);
  bool step_pending();
  void update(const AdamWStep& scalars, const std::vector<Buffer>& gradients);

  /// Elements whose sums are passed on at a time.
  static constexpr Index kChunk = 16384;

  Context context_;
  std::vector<FlatUnit> units_;
  Gpt2 model_;

  std::vector<Buffer> parameters_;         // [unit] (P)
  std::vector<Buffer> gradients_;          // [unit] (P): a leaf, then the average over all leaves
  std::vector<Buffer> pending_gradients_;  // [unit] (P): with --delayed-update, the average of the step before
  std::optional<AdamWStep> pending_;       // how it will be applied
  std::vector<Buffer> master_;             // [unit] (P): fp32, where parameters are not
  std::vector<Buffer> momentum_;           // [unit] (P)
  std::vector<Buffer> variance_;           // [unit] (P)
  RunningSum running_sum_;                 // local-first: over micro-steps (P)
  PartialSums rank_sums_;                  // over ranks (P)
  PartialSums micro_step_sums_;            // ranks-first: over micro-steps (P)
  Buffer sums_;                            // (kChunk) fp32: between the sums over ranks and those over micro-steps
  Index updates_ = 0;                      // steps taken
  std::vector<double> losses_;             // [W k]: of leaf (m, r) at r k + m
};

}  // namespace zero::stage0_ddp
