#pragma once
/// \file
/// ZeRO stage 3 with its optimizer, and if asked for its parameters, in host memory or in storage (ZeRO-Infinity).

#include <memory>
#include <vector>

#include "common/shard/partial_sums.h"
#include "common/train/timers.h"
#include "common/train/trainer.h"
#include "offload/optimizer_states.h"
#include "offload/parameter_home.h"
#include "offload/settings.h"
#include "offload/updater.h"

namespace zero::offload::stage3 {

/// stage3_params with slices outside the device. Letters: N ranks, k micro-steps, P = padded size of a unit. Device
/// memory holds a unit's whole parameters (gathered) while they are used and its whole gradient until it is reduced.
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
  ConstArray use(Index i);
  void bring_up(Index u);
  void release(Index i);
  Array own_slice(Index u, const Buffer& whole) const;

  Context context_;
  std::vector<FlatUnit> units_;
  Gpt2 model_;

  SwapSpace swap_;                       // this rank's file, where a tier is nvme
  std::vector<Buffer> parameters_;       // [unit] (P / N): the own slice, where parameters stay on the device
  std::unique_ptr<ParameterHome> home_;  // of the own slices of the parameters
  OptimizerStates optimizer_;            // of the own slices: master weights, moments, gradients
  std::unique_ptr<Updater> updater_;     // from optimizer_ to home_
  std::vector<Index> uses_;              // the units in the order in which a micro-step uses them
  struct Gathered {
    Buffer parameters;  // (P), or nothing
    Pending pending;
  };
  std::vector<Gathered> gathered_;  // [unit]
  GradientInFlight in_flight_;      // a unit's whole gradient (P), beside the next one's backward pass
  PartialSums partial_sums_;        // over micro-steps: own slices (P / N)
  GradientScan scan_;               // of the gradients of this step, as they go down
  std::vector<double> losses_;      // [k]: of this rank's leaves
};

}  // namespace zero::offload::stage3
