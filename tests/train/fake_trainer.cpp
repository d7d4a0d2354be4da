#include "tests/train/fake_trainer.h"

#include <limits>

#include "common/base/error.h"
#include "common/train/run.h"

namespace zero {

std::unique_ptr<Trainer> make_reference_trainer(const Context& context) {
  return std::make_unique<testing::FakeTrainer>(context, true);
}

}  // namespace zero

namespace zero::testing {
namespace {

constexpr Index kUnit = 1;  ///< where the bit is off
constexpr Index kElement = 37;

Category category(StateKind kind) { return kind == StateKind::parameters ? Category::parameters : Category::optimizer; }

}  // namespace

Behavior behavior;

FakeTrainer::FakeTrainer(const Context& context, bool reference)
    : context_(context),
      behavior_(reference ? Behavior{.master = behavior.master} : behavior),
      units_(model_units(context.config, context.wrap, context.comm.size())),
      model_(context.config, context.micro_batch, units_, context.model, context.device),
      states_(kStateKinds) {
  for (int kind = 0; kind < kStateKinds; ++kind) {
    if (static_cast<StateKind>(kind) == StateKind::master && !behavior_.master) continue;
    for (const FlatUnit& unit : units_) {
      states_[kind].push_back(context_.device.allocate(category(static_cast<StateKind>(kind)),
                                                       behavior_.sharded ? unit.slice_size() : unit.size()));
    }
  }
  fill(0);
}

void FakeTrainer::fill(Index t) {
  for (int kind = 0; kind < kStateKinds; ++kind) {
    for (Index u = 0; u < std::ssize(states_[kind]); ++u) {
      const Array values = states_[kind][u].array();
      const Index begin = behavior_.sharded ? units_[u].slice_begin(context_.comm.rank()) : 0;
      auto* out = static_cast<float*>(values.data);
      for (const TensorPart& part : units_[u].parts(begin, values.size)) {
        for (Index i = 0; i < part.size; ++i) {
          const Index element = part.tensor_begin + i;
          float& value = out[part.flat_begin - begin + i];
          value = static_cast<float>(t + 10 * kind + 100 * part.tensor->id + 1000 * element);
          const bool here = static_cast<StateKind>(kind) == StateKind::momentum && u == kUnit;
          if (here && element == kElement && t == behavior_.one_bit_off_at && t > 0) value += 1;
        }
      }
      if (behavior_.dirty_padding && u + 1 == std::ssize(states_[kind])) out[values.size - 1] = 1;
    }
  }
}

StepResult FakeTrainer::train_step(Index t) {
  if (t == behavior_.fails_at) throw ResourceFailure("the fake device broke");
  StepResult result;
  result.loss = 5.0 / static_cast<double>(t) + (t == behavior_.loss_off_at ? 1e-12 : 0);
  result.norm.value = 0.1;
  if (t == behavior_.not_finite_at) {
    result.norm.value = std::numeric_limits<double>::infinity();
    result.verdict = Verdict::not_finite;
    result.not_finite = "block 0 mlp.expand.weight";
    return result;
  }
  fill(t);
  return result;
}

std::vector<double> FakeTrainer::evaluate(const Sampler& /*held_out*/, Index first) {
  std::vector<double> losses;
  for (Index i = first; i < first + context_.micro_batch; ++i) losses.push_back(static_cast<double>(i));
  return losses;
}

void FakeTrainer::visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const {
  for (int kind = 0; kind < kStateKinds; ++kind) {
    for (Index u = behavior_.hides_a_unit ? 1 : 0; u < std::ssize(states_[kind]); ++u) {
      const Index begin = behavior_.sharded ? units_[u].slice_begin(context_.comm.rank()) : 0;
      visit(static_cast<StateKind>(kind), {u, begin, states_[kind][u].array()});
    }
  }
}

formula::Formula fake_formula(const formula::Setting& setting) {
  const Index bytes = 4 * formula::padded_parameters(setting);
  formula::Formula formula;
  formula = formula::common(setting);
  formula.memory["parameters"] = bytes;
  formula.memory["optimizer"] = 2 * bytes;
  return formula;
}

}  // namespace zero::testing
