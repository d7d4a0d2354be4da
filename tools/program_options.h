#pragma once
/// \file
/// What the programs take, all together: compare passes on what a program offers. Tests hold the lists to the programs.

#include <array>
#include <string_view>

namespace zero::tools {

/// Options with a value, without dashes.
inline constexpr std::array<std::string_view, 43> kProgramOptions = {"model",
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
                                                                     "delay-after",
                                                                     "tile",
                                                                     "out"};
/// Of those, what only some programs offer: each list under the one that says which (tools/stages.h).
inline constexpr std::array<std::string_view, 2> kGatherOptions = {"prefetch", "reshard-after-forward"};
inline constexpr std::array<std::string_view, 1> kGroupOptions = {"shard-group"};
inline constexpr std::array<std::string_view, 3> kReorderOptions = {"delayed-update", "delay-after", "tile"};
/// Options with a value that `offload` alone has.
inline constexpr std::array<std::string_view, 4> kOffloadOptions = {"stage", "offload-optimizer", "offload-params",
                                                                    "nvme-path"};
/// Options without.
inline constexpr std::array<std::string_view, 3> kProgramFlags = {"verify", "checkpoint-activations", "delayed-update"};

}  // namespace zero::tools
