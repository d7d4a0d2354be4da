#include "tools/stages.h"

#include <algorithm>

#include <fmt/format.h>

#include "stage0_ddp/formula.h"
#include "stage1_optimizer/formula.h"
#include "stage2_gradients/formula.h"
#include "stage3_params/formula.h"

namespace zero::tools {
namespace {

using offload::Place;

std::string_view name_of(Place place) {
  return place == Place::device ? "none" : place == Place::host ? "host" : "nvme";
}

Stage offload_row(int stage, Place optimizer, Place parameters) {
  const offload::Offload moved{stage, optimizer, parameters};
  const std::string behind = parameters == Place::device ? "" : fmt::format("-{}", name_of(parameters));
  return {.label = fmt::format("offload-{}-{}{}", stage, name_of(optimizer), behind),
          .program = "offload",
          .formula = [moved](const formula::Setting& s) { return offload::formula(s, moved); },
          .single_process = false,
          .local_first = false,
          .gathers_parameters = true,
          .sharding_groups = false,
          // The program keeps the second gradient in host memory only.
          .delays_updates = optimizer == Place::host,
          .tiles_products = true,
          .offload = moved};
}

std::vector<Stage> all_stages() {
  std::vector<Stage> all = {
      {"baseline", "baseline", stage0_ddp::baseline_formula, true, true, false, false, true, true, {}},
      {"0", "stage0_ddp", stage0_ddp::formula, false, true, false, false, false, false, {}},
      {"1", "stage1_optimizer", stage1_optimizer::formula, false, true, false, false, false, false, {}},
      {"2", "stage2_gradients", stage2_gradients::formula, false, false, false, false, false, false, {}},
      {"3", "stage3_params", stage3_params::formula, false, false, true, true, false, false, {}},
  };
  for (const Place optimizer : {Place::host, Place::nvme}) all.push_back(offload_row(2, optimizer, Place::device));
  for (const Place parameters : {Place::device, Place::host, Place::nvme}) {
    for (const Place optimizer : {Place::host, Place::nvme}) all.push_back(offload_row(3, optimizer, parameters));
  }
  return all;
}

const Stage* found(const std::function<bool(const Stage&)>& is_it) {
  const auto place = std::find_if(stages().begin(), stages().end(), is_it);
  return place == stages().end() ? nullptr : &*place;
}

}  // namespace

const std::vector<Stage>& stages() {
  static const std::vector<Stage> all = all_stages();
  return all;
}

const Stage* stage_of_program(std::string_view program) {
  return found([&](const Stage& stage) { return stage.program == program; });
}

const Stage* stage_of_label(std::string_view label) {
  return found([&](const Stage& stage) { return stage.label == label; });
}

const Stage* stage_named(std::string_view name) {
  const Stage* stage = stage_of_label(name);
  return stage != nullptr ? stage : stage_of_program(name);
}

const Stage* offload_stage(std::string_view stage, std::string_view optimizer, std::string_view parameters) {
  return found([&](const Stage& row) {
    if (!row.offload) return false;
    const std::string number = std::to_string(row.offload->stage);
    const bool by_default = stage.empty() && number == (parameters == "none" ? "2" : "3");
    return (stage == number || by_default) && optimizer == name_of(row.offload->optimizer) &&
           parameters == name_of(row.offload->parameters);
  });
}

std::vector<std::string> offload_arguments(const Stage& stage) {
  return {"--stage",
          std::to_string(stage.offload->stage),
          "--offload-optimizer",
          std::string(name_of(stage.offload->optimizer)),
          "--offload-params",
          std::string(name_of(stage.offload->parameters))};
}

bool uses_nvme(const Stage& stage) {
  return stage.offload && (stage.offload->optimizer == Place::nvme || stage.offload->parameters == Place::nvme);
}

formula::Setting setting_for(const Stage& stage, formula::Setting setting) {
  if (!stage.sharding_groups) setting.shard_group = 0;
  if (!stage.delays_updates) setting.delayed_update = false;
  if (!stage.tiles_products) setting.tiles = 1;
  return setting;
}

}  // namespace zero::tools
