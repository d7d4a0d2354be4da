#pragma once
/// \file
/// What plain data parallelism holds and sends, and the unsharded baseline.

#include "common/formula/formula.h"

namespace zero::stage0_ddp {

/// Stage 0: every rank holds everything (16Ψ bytes), and an all-reduce of the gradients sends 2Ψ elements.
formula::Formula formula(const formula::Setting& setting);

/// The baseline: one process that follows the order of additions of `setting.world` ranks, and so keeps the partial
/// sums of a tree over ranks. It sends nothing.
formula::Formula baseline_formula(const formula::Setting& setting);

}  // namespace zero::stage0_ddp
