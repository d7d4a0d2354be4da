#include "tools/compare_judge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "common/base/error.h"
#include "tools/compare_claims.h"
#include "tools/run_setting.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

bool same_number(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

/// Largest over ranks of each category and purpose.
Row measured_row(const Summary& summary, bool& counted_bytes) {
  Row row;
  for (const RankSummary& rank : summary.ranks) {
    for (const auto& [category, bytes] : rank.memory) row.memory[category] = std::max(row.memory[category], bytes.peak);
    for (const auto& [purpose, bytes] : rank.sent) {
      if (!bytes.sent) counted_bytes = false;
      row.sent[purpose] = std::max(row.sent[purpose], bytes.sent.value_or(0));
    }
    for (const auto& [direction, bytes] : rank.moved)
      row.moved[direction] = std::max(row.moved[direction], bytes.moved);
  }
  return row;
}

Row own_formula(const Summary& summary) {
  Row row;
  for (const RankSummary& rank : summary.ranks) {
    for (const auto& [category, bytes] : rank.memory)
      row.memory[category] = std::max(row.memory[category], bytes.formula);
    for (const auto& [purpose, bytes] : rank.sent) row.sent[purpose] = std::max(row.sent[purpose], bytes.formula);
    for (const auto& [direction, bytes] : rank.moved)
      row.moved[direction] = std::max(row.moved[direction], bytes.formula);
  }
  return row;
}

/// One sentence for the first rank that differs from `formula`, if one does. `value` takes a RankSummary.
template <typename Value>
void compare_ranks(Judged& judged, const std::string& what, const char* verb, Index formula, const Summary& summary,
                   const Value& value) {
  const WrongRanks wrong = wrong_ranks(summary, [&](const RankSummary& rank) { return value(rank) != formula; });
  if (wrong.count == 0) return;
  const auto [expected, found] = in_words(formula, value(summary.ranks[wrong.first]));
  judged.findings.push_back(
      fmt::format("{}: formula {}, {} {}{}", harmless(what, 40), expected, verb, found, wrong.where));
}

void compare_bytes(Judged& judged, const Summary& summary) {
  std::set<std::string> categories, purposes;
  for (const auto& [name, bytes] : judged.formula.memory) categories.insert(name);
  for (const auto& [name, bytes] : judged.held.memory) categories.insert(name);
  for (const auto& [name, bytes] : judged.formula.sent) purposes.insert(name);
  for (const auto& [name, bytes] : judged.held.sent) purposes.insert(name);
  for (const std::string& name : categories) {
    const auto held = [&](const RankSummary& rank) {
      const auto found = rank.memory.find(name);
      return found == rank.memory.end() ? Held{} : found->second;
    };
    const std::size_t before = judged.findings.size();
    const Index formula = judged.formula.held(name);
    compare_ranks(judged, name, "measured", formula, summary, [&](const RankSummary& rank) { return held(rank).peak; });
    const std::string state = name.substr(name.find(' ') + 1);  // of whichever tier
    const bool kept = state == "parameters" || state == "gradients" || state == "optimizer";
    if (kept && judged.findings.size() == before) {
      compare_ranks(judged, name, "after the last step", formula, summary,
                    [&](const RankSummary& rank) { return held(rank).current; });
    }
  }
  for (const std::string& name : purposes) {
    if (leaves_open(summary, name)) continue;
    const auto formula = judged.formula.sent.find(name);
    compare_ranks(judged, "sent for " + name, "measured", formula == judged.formula.sent.end() ? 0 : formula->second,
                  summary, [&](const RankSummary& rank) {
                    const auto found = rank.sent.find(name);
                    return found == rank.sent.end() ? 0 : found->second.sent.value_or(0);
                  });
  }
  std::set<std::string> directions;
  for (const Row* row : {&judged.formula, &judged.held}) {
    for (const auto& [name, bytes] : row->moved) directions.insert(name);
  }
  for (const std::string& name : directions) {
    compare_ranks(judged, "moved " + name, "measured", judged.formula.moved_in(name), summary,
                  [&](const RankSummary& rank) {
                    const auto found = rank.moved.find(name);
                    return found == rank.moved.end() ? 0 : found->second.moved;
                  });
  }
}

/// Options that both runs name and that make them different runs.
void compare_options(Judged& judged, const Summary& summary, const std::string& reference_name,
                     const Summary& reference) {
  const std::set<std::string> own = {"out", "as-world"};
  for (const auto& [name, value] : reference.options.items()) {
    if (own.count(name) > 0 || !summary.options.contains(name)) continue;
    const auto here = option_text(summary.options, name.c_str()), there = option_text(reference.options, name.c_str());
    if (here == there) continue;
    judged.findings.push_back(fmt::format("it ran with --{} {} and {} with {}: these are different runs",
                                          harmless(name, 40), harmless(here.value_or("unset"), 40), reference_name,
                                          harmless(there.value_or("unset"), 40)));
  }
}

/// The first difference between two lists of numbers, one for each step.
std::string difference(const char* what, const std::vector<double>& here, const std::vector<double>& there) {
  for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
    if (!same_number(here[i], there[i]))
      return fmt::format("the {} of step {} is {} and not {}", what, i + 1, here[i], there[i]);
  }
  return here.size() == there.size()
             ? ""
             : fmt::format("the number of steps with a {} is {} and not {}", what, here.size(), there.size());
}

void compare_results(Judged& judged, const Summary& summary, const std::string& reference_name,
                     const Summary& reference) {
  for (std::size_t i = 0; i < std::min(summary.losses.size(), reference.losses.size()); ++i) {
    if (same_number(summary.losses[i], reference.losses[i])) continue;
    const double apart = std::abs(summary.losses[i] - reference.losses[i]);
    judged.largest_difference = std::max(judged.largest_difference, std::isnan(apart) ? HUGE_VAL : apart);
  }
  std::vector<std::string> differences = {difference("loss", summary.losses, reference.losses),
                                          difference("gradient norm", summary.grad_norms, reference.grad_norms)};
  for (const auto& [state, digest] : reference.digest) {
    if (summary.digest.at(state) != digest) differences.push_back(fmt::format("the digest of {} is another", state));
  }
  for (const std::string& sentence : differences) {
    if (sentence.empty()) continue;
    judged.equal = false;
    if (judged.must_be_equal) judged.findings.push_back(fmt::format("not equal to {}: {}", reference_name, sentence));
  }
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

Judged judge(const Job& job, const Summary& summary, const std::string& reference_name, const Summary& reference,
             Index ranks) {
  Judged judged;
  judged.name = job.name;
  judged.executable = summary.executable;
  const Stage* stage = stage_of_run(summary.executable, summary.options);
  judged.held = measured_row(summary, judged.bytes_are_counted);
  // A summary could name other shapes than it ran with: those of the reference count where it names none, and others
  // are a finding of their own.
  formula::Setting setting =
      setting_of(stage != nullptr ? summary.options : reference.options, reference.options, ranks);
  if (stage != nullptr) setting = setting_for(*stage, setting);
  judged.formula = stage != nullptr ? formula_row(*stage, setting) : own_formula(summary);
  for (Row* row : {&judged.held, &judged.formula}) {
    row->program = job.name;
    row->stage = stage;
  }
  judged.seconds_per_step = median(summary.seconds);
  const auto tokens = static_cast<double>(setting.micro_batch * setting.world * setting.micro_steps) *
                      static_cast<double>(setting.context);
  judged.tokens_per_second = judged.seconds_per_step > 0 ? tokens / judged.seconds_per_step : 0;
  judged.last_loss = summary.losses.back();
  const auto collectives = option_text(summary.options, "collectives");
  judged.must_be_equal = ranks == 1 || !collectives || *collectives == "canonical";

  const std::string program = stage != nullptr ? stage->program : "";
  if (job.expected != nullptr && job.expected->program != program) {
    judged.findings.push_back(fmt::format("its summary calls it {}", harmless(summary.executable, 40)));
  } else if (job.expected != nullptr && job.chosen && job.expected != stage) {
    judged.findings.push_back(fmt::format("its summary's options are those of {}", stage->label));
  }
  if (&summary != &reference) {
    compare_options(judged, summary, reference_name, reference);
    compare_results(judged, summary, reference_name, reference);
  }
  compare_bytes(judged, summary);
  judge_claims(judged, summary, setting);
  return judged;
}

}  // namespace zero::tools
