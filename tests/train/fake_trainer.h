#pragma once
/// \file
/// A trainer that computes nothing: its states are a function of step, tensor and element, and it misbehaves on demand.

#include <vector>

#include "common/formula/formula.h"
#include "common/train/trainer.h"

namespace zero::testing {

/// What the fake trainers of this process do; tests set it before they run.
struct Behavior {
  bool sharded = false;        ///< ranks keep slices; else copies
  bool master = false;         ///< shows master weights
  Index not_finite_at = 0;     ///< step whose norm is infinite
  Index fails_at = 0;          ///< step in which this rank throws ResourceFailure
  Index one_bit_off_at = 0;    ///< step after which one element of the momentum differs (not in the reference)
  Index loss_off_at = 0;       ///< step whose loss differs (not in the reference)
  bool dirty_padding = false;  ///< something stands in the padding of the last unit
  bool hides_a_unit = false;   ///< unit 0 is not shown
};
extern Behavior behavior;

class FakeTrainer : public Trainer {
 public:
  /// `reference`: always whole and well-behaved.
  explicit FakeTrainer(const Context& context, bool reference = false);

  StepResult train_step(Index t) override;
  /// The loss of sequence i is i.
  std::vector<double> evaluate(const Sampler& held_out, Index first) override;
  void visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const override;
  [[nodiscard]] const std::vector<FlatUnit>& units() const override { return units_; }

 private:
  void fill(Index t);

  Context context_;
  Behavior behavior_;
  std::vector<FlatUnit> units_;
  Gpt2 model_;                               // for its memory alone
  std::vector<std::vector<Buffer>> states_;  // [kind][unit]
};

/// What a fake trainer holds, and sends: nothing.
formula::Formula fake_formula(const formula::Setting& setting);

}  // namespace zero::testing
