#pragma once
/// \file
/// The programs that plan and compare know, with their formulas.

#include <string>
#include <string_view>
#include <vector>

#include "common/formula/formula.h"

namespace zero::tools {

struct Stage {
  std::string_view label;    ///< as `plan --stage` takes it: "baseline", "0", ...
  std::string_view program;  ///< its executable
  formula::Formula (*formula)(const formula::Setting&);
  bool single_process;      ///< the baseline
  bool local_first;         ///< `--accumulation local-first` exists
  bool gathers_parameters;  ///< `--prefetch`, `--reshard-after-forward` and `--shard-group` exist
};

/// In the order of tables: the unsharded baseline, then stages 0 to 3.
const std::vector<Stage>& stages();
/// Nothing when there is none.
const Stage* stage_of_program(std::string_view program);
const Stage* stage_of_label(std::string_view label);
/// By label or program, as command lines take it.
const Stage* stage_named(std::string_view name);

/// `setting` without what the stage does not have: sharding groups.
formula::Setting setting_for(const Stage& stage, formula::Setting setting);

/// Why stages without local-first accumulation refuse it.
inline constexpr std::string_view kWhyNoLocalFirst =
    "local-first sums a rank's whole gradients over its micro-steps, and stages 2 and 3 do not hold whole gradients";

}  // namespace zero::tools
