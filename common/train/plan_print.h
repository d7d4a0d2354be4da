#pragma once
/// \file
/// The effective plan, printed before the first step.

#include <string>

#include "common/train/options.h"

namespace zero {

/// What the plan says besides the options.
struct PlanFacts {
  int ranks = 1;
  Index tokens = 0;                  ///< of the data
  Index sequences = 0;               ///< of the data, without those held out
  Index held_out = 0;                ///< sequences
  Index evaluated = 0;               ///< of those, in one evaluation
  std::vector<std::string> devices;  ///< of each rank; one where all are alike
  std::string products;
  std::string collectives;
};

/// The plan in lines: what runs, on what, in which order things are added, what each rank will hold and send. `units`:
/// of the flat units, cut for the ranks; `context`: for the buckets.
std::string plan_text(const Program& program, const Options& options, const Context& context,
                      const std::vector<FlatUnit>& units, const PlanFacts& facts);

}  // namespace zero
