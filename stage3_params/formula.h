#pragma once
/// \file
/// What stage 3 holds and sends.

#include "common/formula/formula.h"

namespace zero::stage3_params {

/// Stage 3: all model states are slices (16Ψ/N bytes); a unit's parameters are gathered when it is used and freed
/// again. Gathering them twice in a micro-step makes 3Ψ elements sent where k = 1. Local-first accumulation does not
/// exist here.
formula::Formula formula(const formula::Setting& setting);

}  // namespace zero::stage3_params
