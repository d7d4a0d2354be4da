#pragma once
/// \file
/// What fits under caps, by the formulas.

#include <optional>

#include "tools/surprises.h"

namespace zero::tools {

/// Bytes that a rank may hold in each tier.
struct Caps {
  std::optional<Index> device, host;
  [[nodiscard]] bool any() const { return device || host; }
};

/// Whether the categories of each tier, added up, stay below its cap.
bool fits(const Row& row, const Caps& caps);

/// The most layers (with bare parameters: the most parameters) that fit, all else as it is; -1 when none do. At least
/// one cap is set.
Index largest_that_fits(const Stage& stage, const formula::Setting& setting, const Caps& caps);

}  // namespace zero::tools
