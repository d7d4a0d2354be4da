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

  /// Steps whose loss or gradient norm was not finite: all of them, and how many of them were the latest steps.
  [[nodiscard]] Index not_taken() const { return not_taken_; }
  [[nodiscard]] Index not_taken_in_a_row() const { return not_taken_in_a_row_; }

  /// Adds the members `losses`, `grad_norms`, `steps_not_taken`, `seconds` and `tokens_per_second` to a summary.
  void write(nlohmann::json& summary, Index tokens_per_step) const;
  /// The line of metrics.jsonl for the latest step t.
  [[nodiscard]] static nlohmann::json metrics(Index t, const StepResult& result, const StepSeconds& seconds,
                                              double learning_rate, Index tokens_per_step);

 private:
  nlohmann::json losses_ = nlohmann::json::array();
  nlohmann::json norms_ = nlohmann::json::array();
  std::vector<StepSeconds> seconds_;
  Index not_taken_ = 0;
  Index not_taken_in_a_row_ = 0;
};

/// "1 step", "2 steps".
std::string counted_steps(Index count);

/// Why a run ends at step t, whose loss or gradient norm is not finite, like those of the `in_a_row` - 1 steps before.
std::string not_finite_sentence(Index t, const StepResult& result, Index in_a_row = 1);

}  // namespace zero
