#pragma once
/// \file
/// A sentence for each thing in a table of stages that surprises at first sight.

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/formula/formula.h"
#include "tools/stages.h"

namespace zero::tools {

/// What a rank of a program holds by category, sends by purpose and moves between tiers: measured, or from a formula.
/// Bytes.
struct Row {
  std::string program;
  const Stage* stage = nullptr;         ///< nothing for a program of another name
  std::map<std::string, Index> memory;  ///< of the device "optimizer", of other tiers "host optimizer"
  std::map<std::string, Index> sent;
  std::map<std::string, Index> moved;  ///< "down", "up", "read", "written"

  [[nodiscard]] Index held(const std::string& category) const;
  [[nodiscard]] Index model_states() const;  ///< on the device
  [[nodiscard]] Index activations() const { return held("activations"); }
  [[nodiscard]] Index buffers() const;  ///< everything else on the device
  /// The sum over the categories of a tier: "device", "host" or "nvme".
  [[nodiscard]] Index total(std::string_view tier) const;
  /// What a category of a tier is called in `memory`.
  static std::string key(std::string_view tier, const std::string& category);
  [[nodiscard]] Index sent_per_step() const;
  [[nodiscard]] Index moved_in(const std::string& direction) const;
};

/// The tiers below the device, and the directions between all of them, in the order of tables.
inline constexpr std::array<std::string_view, 2> kLowerTiers = {"host", "nvme"};
inline constexpr std::array<const char*, 4> kDirections = {"down", "up", "read", "written"};
/// Whether a row has something outside the device.
bool any_offload(const std::vector<Row>& rows);

/// The row that the formula of `stage` makes; what the stage does not have (setting_for) does not count.
Row formula_row(const Stage& stage, const formula::Setting& setting);

/// How many times smaller `bytes` is than `reference`: "1.60x", "-" for nothing.
std::string times_smaller(Index reference, Index bytes);

/// Sentences without full stops at their ends; only what the rows show.
std::vector<std::string> surprises(const std::vector<Row>& rows, const formula::Setting& setting);

}  // namespace zero::tools
