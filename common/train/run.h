#pragma once
/// \file
/// The whole of a program around its trainer: start MPI, read options, agree on refusals, print the plan, run the steps
/// with progress and metrics, check, write the summary.

#include <memory>

#include "common/train/options.h"
#include "common/train/trainer.h"

namespace zero {

/// A program's `main`. Returns the exit status.
int run(const Program& program, int argc, const char* const* argv);

/// The unsharded baseline, against which `--verify` compares: defined beside the baseline and linked into every
/// program, so that common/ names no stage.
std::unique_ptr<Trainer> make_reference_trainer(const Context& context);

}  // namespace zero
