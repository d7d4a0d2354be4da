#pragma once
/// \file
/// The command line of plan.

#include <optional>
#include <string>
#include <vector>

#include "common/formula/formula.h"
#include "tools/largest_fit.h"
#include "tools/stages.h"

namespace zero::tools {

struct PlanOptions {
  std::string model;  ///< the preset; empty with --parameters
  formula::Setting setting;
  Index global_batch = 1;
  double dropout = 0;
  std::vector<const Stage*> stages;
  Caps caps;
  bool json = false;
  bool markdown = false;
  bool paper_table1 = false;
};

/// Throws UnusableInput with one sentence. Returns nothing when `--help` was asked for; `text` then holds what to
/// print.
std::optional<PlanOptions> parse_plan_options(int argc, const char* const* argv, std::string& text);

}  // namespace zero::tools
