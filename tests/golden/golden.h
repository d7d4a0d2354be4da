#pragma once
/// \file
/// The golden digests: what every machine, compiler, vector width, stage and power-of-two number of ranks must give
/// with canonical products at the same global batch. They change only when the arithmetic contract does.

#include <string>
#include <vector>

#include "tests/support/stage_run.h"

namespace zero::test {

struct Golden {
  std::string name;
  RunSetting setting;  ///< of the baseline; micro-batch 1, global batch 8
};

/// The runs whose digests are kept.
std::vector<Golden> golden_runs();

/// The line of golden.txt for a run: name, then loss, norm and digests after the last step.
std::string golden_line(const std::string& name, const StepRecord& last);

/// The lines of golden.txt that start with a name, comments left out.
std::vector<std::string> golden_lines();

}  // namespace zero::test
