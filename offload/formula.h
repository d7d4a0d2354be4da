#pragma once
/// \file
/// What the offload program holds in each tier, sends, and moves between tiers.

#include "common/formula/formula.h"

namespace zero::offload {

/// Where something lives.
enum class Place { device, host, nvme };

/// What the formula depends on besides the setting of the stage.
struct Offload {
  int stage = 2;
  Place optimizer = Place::host;
  Place parameters = Place::device;
};

/// Stage 2 or 3 with 12Ψ/N bytes of fp32 weights, momentum and variance and the gradient's slice off the device. Each
/// step a rank moves its gradient slice down and its new parameters up (Ren et al. 2021, section 4.1: over all ranks
/// 2Ψ + 2Ψ bytes in bf16); with parameters offloaded, too, their slice comes up for each gather instead. In storage
/// everything is in chunks of at most 2^18 elements, taken up to blocks of 4096 bytes; three chunks of each state pass
/// through host memory at a time.
formula::Formula formula(const formula::Setting& setting, const Offload& offload);

}  // namespace zero::offload
