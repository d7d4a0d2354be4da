#pragma once
/// \file
/// What the steps of a run gave, under the names of summary.json and metrics.jsonl.

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/train/progress.h"

namespace zero {

class History {
 public:
  void add(const StepResult& result, const StepSeconds& seconds);

  /// Adds the members `losses`, `grad_norms`, `seconds` and `tokens_per_second` to a summary.
  void write(nlohmann::json& summary, Index tokens_per_step) const;
  /// The line of metrics.jsonl for the latest step t.
  [[nodiscard]] static nlohmann::json metrics(Index t, const StepResult& result, const StepSeconds& seconds,
                                              double learning_rate, Index tokens_per_step);

 private:
  nlohmann::json losses_ = nlohmann::json::array();
  nlohmann::json norms_ = nlohmann::json::array();
  std::vector<StepSeconds> seconds_;
};

/// Why a run ends at step t, whose loss or gradient norm is not finite.
std::string not_finite_sentence(Index t, const StepResult& result);

}  // namespace zero
