#pragma once
/// \file
/// ZeRO stage 2 with its optimizer in host memory (ZeRO-Offload) or in storage.

#include <memory>
#include <vector>

#include "common/shard/partial_sums.h"
#include "common/train/timers.h"
#include "common/train/trainer.h"
#include "offload/optimizer_states.h"
#include "offload/parameter_home.h"
#include "offload/settings.h"
#include "offload/updater.h"

namespace zero::offload::stage2 {

/// stage2_gradients with gradient and optimizer slices outside the device. Letters: N ranks, k micro-steps, P = padded
/// size of a unit. Device memory holds the parameters and a unit's whole gradient until it is reduced.
class Trainer final : public zero::Trainer {
 public:
  Trainer(const Context& context, const Settings& settings);

  StepResult train_step(Index t) override;
  std::vector<double> evaluate(const Sampler& held_out, Index first) override;
  void visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const override;
  [[nodiscard]] std::string storage() const override { return swap_.description(); }
  [[nodiscard]] const std::vector<FlatUnit>& units() const override { return units_; }

 private:
  double forward();
  void backward(Index m);
  Buffer whole_gradient(Index u);
  void reduce(Index u, Index m, Buffer gradient);
  Pending take_down(Index u, ConstArray own);
  StepResult measure();
  bool step(Index t, float clip_factor);
  void publish();
  Array own_slice(Index u, const Buffer& whole) const;

  Context context_;
  std::vector<FlatUnit> units_;
  Gpt2 model_;

  SwapSpace swap_;                       // this rank's file, where a tier is nvme
  std::vector<Buffer> parameters_;       // [unit] (P)
  std::unique_ptr<ParameterHome> home_;  // of the own slices of the parameters: in parameters_
  OptimizerStates optimizer_;            // of the own slices: master weights, moments, gradients
  std::unique_ptr<Updater> updater_;     // from optimizer_ to home_
  GradientInFlight in_flight_;           // a unit's whole gradient (P), beside the next one's backward pass
  PartialSums partial_sums_;             // over micro-steps: own slices (P / N)
  GradientScan scan_;                    // of the gradients of this step, as they go down
  std::vector<double> losses_;           // [k]: of this rank's leaves
};

}  // namespace zero::offload::stage2
