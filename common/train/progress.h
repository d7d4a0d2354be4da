#pragma once
/// \file
/// The lines that a run prints while it goes.

#include <string>
#include <string_view>

#include "common/train/trainer.h"

namespace zero {

/// `value` without the sign of a NaN, which means nothing.
double printable(double value);

/// Seconds of one step.
struct StepSeconds {
  double total = 0;
  double communication = 0;  ///< waited for: nothing is hidden behind computing on the CPU
  double optimizer = 0;
  double offload = 0;  ///< waited for between tiers, outside the optimizer

  [[nodiscard]] double compute() const;  ///< the rest
};

/// A table of steps: every step of a short run; of a long one about a hundred lines, and the first and the last.
class StepTable {
 public:
  StepTable(Index steps, Index tokens_per_step);

  /// The column heads, and which steps are shown when not all are.
  [[nodiscard]] std::string head() const;
  [[nodiscard]] bool shows(Index t, Verdict verdict) const;
  /// The line of step t, without its end. Call it for every step in order: the time left is estimated from all of them.
  std::string line(Index t, const StepResult& result, double learning_rate, double seconds);

 private:
  Index steps_;
  Index tokens_per_step_;
  Index stride_ = 1;
  double seconds_ = 0;
};

/// "1h 02m", "3m 20s", "12s".
std::string format_duration(double seconds);

}  // namespace zero
