#include "common/train/history.h"

#include <cmath>

#include <fmt/format.h>

#include "common/train/summary.h"

namespace zero {
namespace {

std::map<std::string, double> by_name(const StepSeconds& seconds) {
  return {{"total", seconds.total},
          {"compute", seconds.compute()},
          {"communication_exposed", seconds.communication},
          {"optimizer", seconds.optimizer},
          {"offload", seconds.offload}};
}

}  // namespace

void History::add(const StepResult& result, const StepSeconds& seconds) {
  losses_.push_back(number(result.loss));
  norms_.push_back(number(result.norm.value));
  seconds_.push_back(seconds);
  const bool taken = result.verdict != Verdict::not_finite;
  not_taken_ += taken ? 0 : 1;
  not_taken_in_a_row_ = taken ? 0 : not_taken_in_a_row_ + 1;
}

void History::write(nlohmann::json& summary, Index tokens_per_step) const {
  std::map<std::string, std::vector<double>> seconds;
  double total = 0;
  for (const StepSeconds& step : seconds_) {
    for (const auto& [name, value] : by_name(step)) seconds[name].push_back(value);
    total += step.total;
  }
  summary["losses"] = losses_;
  summary["grad_norms"] = norms_;
  summary["steps_not_taken"] = not_taken_;
  summary["seconds"] = seconds;
  summary["tokens_per_second"] =
      number(static_cast<double>(tokens_per_step) * static_cast<double>(seconds_.size()) / total);
}

nlohmann::json History::metrics(Index t, const StepResult& result, const StepSeconds& seconds, double learning_rate,
                                Index tokens_per_step) {
  return {{"step", t},
          {"loss", number(result.loss)},
          {"grad_norm", number(result.norm.value)},
          {"clip_factor", number(result.norm.clip_factor)},
          {"verdict", name(result.verdict)},
          {"learning_rate", learning_rate},
          {"seconds", by_name(seconds)},
          {"tokens_per_second", number(static_cast<double>(tokens_per_step) / seconds.total)}};
}

std::string counted_steps(Index count) { return fmt::format("{} step{}", count, count == 1 ? "" : "s"); }

std::string not_finite_sentence(Index t, const StepResult& result, Index in_a_row) {
  // The sign of a NaN means nothing.
  const auto text = [](double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); };
  std::string sentence = std::isfinite(result.loss)
                             ? fmt::format("step {}: the gradient norm is {}", t, text(result.norm.value))
                             : fmt::format("step {}: the loss is {}", t, text(result.loss));
  if (!result.not_finite.empty() && result.not_finite != "the loss") sentence += "; first in " + result.not_finite;
  sentence +=
      in_a_row <= 1 ? "; the step was not taken" : fmt::format("; {} in a row were not taken", counted_steps(in_a_row));
  return sentence + "; a lower --lr may help";
}

}  // namespace zero
