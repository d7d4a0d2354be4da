#include "common/train/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace zero {

double printable(double value) { return std::isnan(value) ? std::abs(value) : value; }

double StepSeconds::compute() const { return std::max(0.0, total - communication - optimizer - offload); }

StepTable::StepTable(Index steps, Index tokens_per_step) : steps_(steps), tokens_per_step_(tokens_per_step) {
  // 1, 2, 5, 10, 20, 50, ...: a stride that a reader can count in.
  constexpr Index kLines = 100;
  for (Index scale = 1; steps_ / stride_ > kLines; scale *= 10) {
    for (const Index factor : {1, 2, 5}) {
      stride_ = factor * scale;
      if (steps_ / stride_ <= kLines) break;
    }
  }
}

std::string StepTable::head() const {
  std::string text;
  if (stride_ > 1) text = fmt::format("one step in {} is shown; --out keeps all in metrics.jsonl\n", stride_);
  return text + fmt::format("{:>8}  {:>10}  {:>10}  {:<10}  {:>9}  {:>9}  {:>9}\n", "step", "loss", "grad norm",
                            "verdict", "lr", "ms", "tokens/s");
}

bool StepTable::shows(Index t, Verdict verdict) const {
  return t == 1 || t == steps_ || t % stride_ == 0 || verdict == Verdict::not_finite;
}

std::string StepTable::line(Index t, const StepResult& result, double learning_rate, double seconds) {
  seconds_ += seconds;
  std::string text =
      fmt::format("{:>8}  {:>10.6f}  {:>10.4f}  {:<10}  {:>9.3g}  {:>9.1f}  {:>9.0f}", t, printable(result.loss),
                  printable(result.norm.value), name(result.verdict), learning_rate, 1000 * seconds,
                  static_cast<double>(tokens_per_step_) / std::max(seconds, 1e-9));
  const double left = seconds_ / static_cast<double>(t) * static_cast<double>(steps_ - t);
  constexpr double kWorthSaying = 20;
  if (left > kWorthSaying && result.verdict != Verdict::not_finite) {
    text += fmt::format("  {} left", format_duration(left));
  }
  return text;
}

std::string format_duration(double seconds) {
  const auto s = static_cast<Index>(std::lround(seconds));
  if (s >= 3600) return fmt::format("{}h {:02}m", s / 3600, s % 3600 / 60);
  if (s >= 60) return fmt::format("{}m {:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

}  // namespace zero
