#pragma once
/// \file
/// What stage 3 holds and sends.

#include <vector>

#include "common/formula/formula.h"

namespace zero::stage3_params {

/// Stage 3: all model states are slices (16Ψ/N bytes); a unit's parameters are gathered when it is used and freed
/// again. Gathering them twice in a micro-step makes 3Ψ elements sent where k = 1. Local-first accumulation does not
/// exist here.
formula::Formula formula(const formula::Setting& setting);

/// What one micro-step gathers.
struct Gathers {
  std::vector<Index> times;  ///< [unit]: how often it is gathered
  Index peak = 0;            ///< the most elements gathered at one time
};

/// Follows the uses of a micro-step: the embedding, the units of blocks forward, the head (the embedding unit again,
/// held from its forward to its backward), the units of blocks backward. When a use begins, its unit and those of the
/// next `prefetch` uses are gathered unless held; after it, its unit is freed unless one of those uses is of the same
/// unit. Without `reshard` it is freed after its last use. `units` are elements, [0] the embedding unit.
Gathers gathers(const std::vector<Index>& units, Index prefetch, bool reshard);

}  // namespace zero::stage3_params
