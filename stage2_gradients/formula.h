#pragma once
/// \file
/// What stage 2 holds and sends.

#include "common/formula/formula.h"

namespace zero::stage2_gradients {

/// Stage 2: gradients are a slice on each rank too (fp32: 4Ψ + 12Ψ/N bytes; bf16: 2Ψ + 14Ψ/N), and a unit's full
/// gradient lives only until it is reduced. It sends what stage 1 sends. Local-first accumulation does not exist here:
/// it needs full gradients.
formula::Formula formula(const formula::Setting& setting);

}  // namespace zero::stage2_gradients
