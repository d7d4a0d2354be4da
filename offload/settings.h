#pragma once
/// \file
/// What the offload program decides beyond its stage's settings.

#include <string>

#include "common/device/memory_ledger.h"
#include "common/storage/block_file.h"

namespace zero::offload {

/// Transfers of a rank's swap file under way at a time.
inline constexpr Index kSwapDepth = 16;

struct Settings {
  int stage = 2;                      ///< `--stage`: 2 or 3
  Tier optimizer = Tier::host;        ///< `--offload-optimizer`: host or nvme
  Tier parameters = Tier::device;     ///< `--offload-params`: device ("none"), host or nvme; needs stage 3
  int threads = 1;                    ///< of AdamW on the host
  OpenBlockFile open_file = nullptr;  ///< makes this rank's swap file where a tier is nvme
};

}  // namespace zero::offload
