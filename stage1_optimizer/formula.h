#pragma once
/// \file
/// What stage 1 holds and sends.

#include "common/formula/formula.h"

namespace zero::stage1_optimizer {

/// Stage 1: the optimizer's states are a slice on each rank (fp32: 8Ψ + 8Ψ/N bytes; bf16: 4Ψ + 12Ψ/N). Gradients are
/// reduce-scattered and new parameters all-gathered: 2Ψ elements, as much as an all-reduce.
formula::Formula formula(const formula::Setting& setting);

}  // namespace zero::stage1_optimizer
