#pragma once
/// \file
/// A sentence for each thing in a table of stages that surprises at first sight.

#include <map>
#include <string>
#include <vector>

#include "common/formula/formula.h"
#include "tools/stages.h"

namespace zero::tools {

/// What a rank of a program holds by category and sends by purpose: measured, or from a formula. Bytes.
struct Row {
  std::string program;
  const Stage* stage = nullptr;  ///< nothing for a program of another name
  std::map<std::string, Index> memory;
  std::map<std::string, Index> sent;

  [[nodiscard]] Index held(const std::string& category) const;
  [[nodiscard]] Index model_states() const;
  [[nodiscard]] Index activations() const { return held("activations"); }
  [[nodiscard]] Index buffers() const { return total() - model_states() - activations(); }  ///< everything else
  [[nodiscard]] Index total() const;
  [[nodiscard]] Index sent_per_step() const;
};

/// The row that the formula of `stage` makes; sharding groups count where the stage has them.
Row formula_row(const Stage& stage, const formula::Setting& setting);

/// How many times smaller `bytes` is than `reference`: "1.60x", "-" for nothing.
std::string times_smaller(Index reference, Index bytes);

/// Sentences without full stops at their ends; only what the rows show.
std::vector<std::string> surprises(const std::vector<Row>& rows, const formula::Setting& setting);

}  // namespace zero::tools
