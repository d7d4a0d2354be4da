#pragma once
/// \file
/// Digests of the model states, summed over the ranks that keep them.

#include <array>

#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/train/trainer.h"

namespace zero {

/// A digest of each StateKind; in fp32 training `master` is that of the parameters.
using StateDigests = std::array<Digest, kStateKinds>;

/// Digests what the ranks keep. State that every rank keeps whole counts once. Throws ResultFailure, the same on all
/// ranks, when copies differ, when the ranks do not show every element once, or when a gap or the padding of a flat
/// unit is not zero. `group` is the ranks over which states are sharded; groups must give the same digests. Collective;
/// allocates nothing.
StateDigests digest_state(const Trainer& trainer, Device& device, Communicator& world, Communicator& group);

/// {"parameters": hex, "master": hex, ...}
nlohmann::json to_json(const StateDigests& digests);

}  // namespace zero
