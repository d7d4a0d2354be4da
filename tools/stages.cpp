#include "tools/stages.h"

#include "stage0_ddp/formula.h"
#include "stage1_optimizer/formula.h"
#include "stage2_gradients/formula.h"
#include "stage3_params/formula.h"

namespace zero::tools {

const std::vector<Stage>& stages() {
  static const std::vector<Stage> all = {
      {"baseline", "baseline", stage0_ddp::baseline_formula, true, true, false},
      {"0", "stage0_ddp", stage0_ddp::formula, false, true, false},
      {"1", "stage1_optimizer", stage1_optimizer::formula, false, true, false},
      {"2", "stage2_gradients", stage2_gradients::formula, false, false, false},
      {"3", "stage3_params", stage3_params::formula, false, false, true},
  };
  return all;
}

const Stage* stage_of_program(std::string_view program) {
  for (const Stage& stage : stages()) {
    if (stage.program == program) return &stage;
  }
  return nullptr;
}

const Stage* stage_of_label(std::string_view label) {
  for (const Stage& stage : stages()) {
    if (stage.label == label) return &stage;
  }
  return nullptr;
}

const Stage* stage_named(std::string_view name) {
  const Stage* stage = stage_of_label(name);
  return stage != nullptr ? stage : stage_of_program(name);
}

formula::Setting setting_for(const Stage& stage, formula::Setting setting) {
  if (!stage.gathers_parameters) setting.shard_group = 0;
  return setting;
}

}  // namespace zero::tools
