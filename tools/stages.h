#pragma once
/// \file
/// The programs that plan and compare know, with their formulas.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/formula/formula.h"
#include "offload/formula.h"

namespace zero::tools {

/// A row of the tables: a program, or one of the ways to run `offload`.
struct Stage {
  std::string label;    ///< as `plan --stage` takes it: "baseline", "0", ..., "offload-3-nvme-host"
  std::string program;  ///< its executable
  std::function<formula::Formula(const formula::Setting&)> formula;
  bool single_process;                      ///< the baseline
  bool local_first;                         ///< `--accumulation local-first` exists
  bool gathers_parameters;                  ///< `--prefetch` and `--reshard-after-forward` exist
  bool sharding_groups;                     ///< `--shard-group` exists
  bool delays_updates;                      ///< `--delayed-update` exists
  bool tiles_products;                      ///< `--tile` exists
  std::optional<offload::Offload> offload;  ///< what leaves the device; nothing of the other programs

  /// In tables: the program, or the label of a way to run `offload`.
  [[nodiscard]] const std::string& name() const { return offload ? label : program; }
};

/// In the order of tables: the unsharded baseline, stages 0 to 3, and the ways to run `offload`, whose labels are
/// offload-STAGE-OPTIMIZER with -PARAMETERS behind where those leave the device.
const std::vector<Stage>& stages();
/// The first of that program; nothing when there is none.
const Stage* stage_of_program(std::string_view program);
const Stage* stage_of_label(std::string_view label);
/// By label or program, as command lines take it.
const Stage* stage_named(std::string_view name);
/// Nothing for a combination that `offload` refuses. The values are those of `--stage` ("": the program chooses),
/// `--offload-optimizer` and `--offload-params`.
const Stage* offload_stage(std::string_view stage, std::string_view optimizer, std::string_view parameters);

/// What `offload` takes for the way to run it that `stage` is.
std::vector<std::string> offload_arguments(const Stage& stage);
/// Whether it keeps files.
bool uses_nvme(const Stage& stage);

/// `setting` without what the stage does not have: sharding groups, delayed updates, tiles.
formula::Setting setting_for(const Stage& stage, formula::Setting setting);

/// Why stages without local-first accumulation refuse it.
inline constexpr std::string_view kWhyNoLocalFirst =
    "local-first sums a rank's whole gradients over its micro-steps, and stages 2 and 3 do not hold whole gradients";

}  // namespace zero::tools
