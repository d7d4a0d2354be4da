#pragma once
/// \file
/// What the baseline and the stages take, all together: compare passes it on. A test holds the list to the programs.

#include <array>
#include <string_view>

namespace zero::tools {

/// Options with a value, without dashes.
inline constexpr std::array<std::string_view, 41> kProgramOptions = {"model",
                                                                     "layers",
                                                                     "heads",
                                                                     "width",
                                                                     "context",
                                                                     "vocab",
                                                                     "data",
                                                                     "steps",
                                                                     "seed",
                                                                     "micro-batch",
                                                                     "global-batch",
                                                                     "accumulation",
                                                                     "lr",
                                                                     "lr-schedule",
                                                                     "warmup",
                                                                     "min-lr",
                                                                     "beta1",
                                                                     "beta2",
                                                                     "eps",
                                                                     "weight-decay",
                                                                     "clip",
                                                                     "precision",
                                                                     "products",
                                                                     "threads",
                                                                     "collectives",
                                                                     "transport",
                                                                     "bucket",
                                                                     "wrap",
                                                                     "timeout",
                                                                     "prefetch",
                                                                     "reshard-after-forward",
                                                                     "as-world",
                                                                     "backend",
                                                                     "device-memory",
                                                                     "host-memory",
                                                                     "dropout",
                                                                     "eval-every",
                                                                     "on-nonfinite",
                                                                     "shard-group",
                                                                     "digest-every",
                                                                     "out"};
/// Options without.
inline constexpr std::array<std::string_view, 2> kProgramFlags = {"verify", "checkpoint-activations"};

}  // namespace zero::tools
