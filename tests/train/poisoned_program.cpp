// A stage's program on whose last rank a weight is not a number for the length of some steps:
// poisoned_program STAGE STEP[,STEP...] OPTIONS. Everything but the weight is the stage's own.
#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "common/train/run.h"
#include "stage0_ddp/formula.h"
#include "stage0_ddp/trainer.h"
#include "stage1_optimizer/formula.h"
#include "stage1_optimizer/trainer.h"
#include "stage2_gradients/formula.h"
#include "stage2_gradients/trainer.h"
#include "stage3_params/formula.h"
#include "stage3_params/trainer.h"

namespace zero::testing {
namespace {

class PoisonedTrainer : public Trainer {
 public:
  PoisonedTrainer(std::unique_ptr<Trainer> trainer, bool here, std::vector<Index> steps)
      : trainer_(std::move(trainer)), here_(here), steps_(std::move(steps)) {}

  StepResult train_step(Index t) override {
    if (!here_ || std::find(steps_.begin(), steps_.end(), t) == steps_.end()) return trainer_->train_step(t);
    const Array weight = first_weight();
    std::vector<std::byte> before(static_cast<std::size_t>(weight.bytes()));
    std::memcpy(before.data(), weight.data, before.size());
    std::memset(weight.data, 0xff, before.size());  // a NaN in fp32 and bf16
    const StepResult result = trainer_->train_step(t);
    std::memcpy(weight.data, before.data(), before.size());
    return result;
  }
  std::vector<double> evaluate(const Sampler& held_out, Index first) override {
    return trainer_->evaluate(held_out, first);
  }
  void visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const override {
    trainer_->visit_state(visit);
  }
  [[nodiscard]] const std::vector<FlatUnit>& units() const override { return trainer_->units(); }

 private:
  /// The first parameter of the blocks that this rank keeps.
  [[nodiscard]] Array first_weight() const {
    Array weight;
    trainer_->visit_state([&](StateKind kind, const UnitView& view) {
      if (kind != StateKind::parameters || view.unit != 1) return;
      weight = {const_cast<void*>(view.values.data), 1, view.values.dtype};
    });
    return weight;
  }

  std::unique_ptr<Trainer> trainer_;
  bool here_;
  std::vector<Index> steps_;
};

template <typename StageTrainer>
void serve(Program& program, const std::vector<Index>& steps, formula::Formula (*formula)(const formula::Setting&)) {
  program.make_trainer = [steps](const Context& context) {
    return std::make_unique<PoisonedTrainer>(std::make_unique<StageTrainer>(context),
                                             context.comm.rank() == context.comm.size() - 1, steps);
  };
  program.formula = formula;
}

}  // namespace
}  // namespace zero::testing

int main(int argc, char** argv) {
  using namespace zero;
  if (argc < 3) return 2;
  std::vector<Index> steps;
  std::istringstream list(argv[2]);
  for (std::string step; std::getline(list, step, ',');) steps.push_back(std::stol(step));

  Program program;
  program.name = "poisoned";
  program.description = "A stage with a weight that is not a number.";
  switch (argv[1][0]) {
    case '0': testing::serve<stage0_ddp::Trainer>(program, steps, stage0_ddp::formula); break;
    case '1': testing::serve<stage1_optimizer::Trainer>(program, steps, stage1_optimizer::formula); break;
    case '2': testing::serve<stage2_gradients::Trainer>(program, steps, stage2_gradients::formula); break;
    case '3': testing::serve<stage3_params::Trainer>(program, steps, stage3_params::formula); break;
    default: return 2;
  }
  std::vector<const char*> options = {argv[0]};
  options.insert(options.end(), argv + 3, argv + argc);
  return run(program, static_cast<int>(options.size()), options.data());
}
