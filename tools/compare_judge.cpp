#include "tools/compare_judge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "common/base/error.h"
#include "tools/compare_claims.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

using nlohmann::json;

/// The option's value as text, whatever its JSON type; nothing where it is absent or null.
std::optional<std::string> text_of(const json& options, const char* name) {
  const auto found = options.find(name);
  if (found == options.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  return found->dump();
}

class Reader {
 public:
  Reader(const json& options, const json& otherwise) : options_(options), otherwise_(otherwise) {}

  [[nodiscard]] std::optional<std::string> text(const char* name) const {
    const auto own = text_of(options_, name);
    return own ? own : text_of(otherwise_, name);
  }
  [[nodiscard]] Index count(const char* name, Index least, std::optional<Index> absent = std::nullopt) const {
    const auto value = text(name);
    if (!value && absent) return *absent;
    constexpr Index kMost = Index{1} << 40;  // times as many ranks fits an Index
    char* end = nullptr;
    const long long number = value ? std::strtoll(value->c_str(), &end, 10) : -1;
    if (!value || value->empty() || *end != '\0' || number < least || number > kMost) {
      throw UnusableInput(fmt::format("a summary's options do not say a usable --{}: {}", name,
                                      value ? harmless(*value, 40) : "it is missing"));
    }
    return number;
  }
  [[nodiscard]] bool is(const char* name, const char* value) const { return text(name) == value; }

 private:
  const json& options_;
  const json& otherwise_;
};

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
  }
  return row;
}

Row own_formula(const Summary& summary) {
  Row row;
  for (const RankSummary& rank : summary.ranks) {
    for (const auto& [category, bytes] : rank.memory)
      row.memory[category] = std::max(row.memory[category], bytes.formula);
    for (const auto& [purpose, bytes] : rank.sent) row.sent[purpose] = std::max(row.sent[purpose], bytes.formula);
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
    const bool kept = name == "parameters" || name == "gradients" || name == "optimizer";
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
}

/// Options that both runs name and that make them different runs.
void compare_options(Judged& judged, const Summary& summary, const std::string& reference_name,
                     const Summary& reference) {
  const std::set<std::string> own = {"out", "as-world"};
  for (const auto& [name, value] : reference.options.items()) {
    if (own.count(name) > 0 || !summary.options.contains(name)) continue;
    const auto here = text_of(summary.options, name.c_str()), there = text_of(reference.options, name.c_str());
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

formula::Setting setting_of(const json& options, const json& otherwise, Index ranks) {
  const Reader read(options, otherwise);
  formula::Setting s;
  s.world = ranks;
  s.layers = read.count("layers", 0);
  s.heads = read.count("heads", 1);
  s.width = read.count("width", 1);
  s.context = read.count("context", 1);
  s.vocab = read.count("vocab", 1);
  s.micro_batch = read.count("micro-batch", 1);
  const Index per_micro_step = s.micro_batch * ranks;
  const Index global = read.count("global-batch", 1, per_micro_step);
  if (global % per_micro_step != 0) {
    throw UnusableInput(
        fmt::format("a summary's options say --global-batch {}, which is not a multiple of --micro-batch {} times {}",
                    global, s.micro_batch, counted(ranks, "rank")));
  }
  s.micro_steps = global / per_micro_step;
  s.bf16 = read.is("precision", "bf16");
  s.local_first = read.is("accumulation", "local-first");
  s.checkpoint_activations = read.is("checkpoint-activations", "true");
  const std::optional<std::string> dropout = read.text("dropout");
  s.dropout = dropout && std::strtod(dropout->c_str(), nullptr) > 0;
  s.ring = read.is("collectives", "ring");
  s.shard_group = read.count("shard-group", 1, 0);
  if (s.shard_group > 0 && s.world % s.shard_group != 0) {
    throw UnusableInput(fmt::format("a summary's options say --shard-group {}, which does not divide {}", s.shard_group,
                                    counted(s.world, "rank")));
  }
  s.wrap = read.count("wrap", 1, 1);
  s.bucket = read.count("bucket", 1, 0);
  s.native = read.is("collectives", "native");
  s.library_products = read.is("products", "library");
  s.threads = static_cast<int>(std::min<Index>(read.count("threads", 1, 1), 4096));
  s.prefetch = read.count("prefetch", 0, 1);
  s.reshard_after_forward = !read.is("reshard-after-forward", "off") && !read.is("reshard-after-forward", "false");
  if (!formula::countable(s)) throw UnusableInput("a summary's options describe a model that is too large to count");
  return s;
}

Judged judge(const std::string& name, const Summary& summary, const std::string& reference_name,
             const Summary& reference, Index ranks) {
  Judged judged;
  judged.name = name;
  judged.executable = summary.executable;
  const Stage* stage = stage_of_program(summary.executable);
  judged.held = measured_row(summary, judged.bytes_are_counted);
  // A summary could name other shapes than it ran with: those of the reference count where it names none, and others
  // are a finding of their own.
  formula::Setting setting =
      setting_of(stage != nullptr ? summary.options : reference.options, reference.options, ranks);
  if (stage != nullptr) setting = setting_for(*stage, setting);
  judged.formula = stage != nullptr ? formula_row(*stage, setting) : own_formula(summary);
  for (Row* row : {&judged.held, &judged.formula}) {
    row->program = name;
    row->stage = stage;
  }
  judged.seconds_per_step = median(summary.seconds);
  const auto tokens = static_cast<double>(setting.micro_batch * setting.world * setting.micro_steps) *
                      static_cast<double>(setting.context);
  judged.tokens_per_second = judged.seconds_per_step > 0 ? tokens / judged.seconds_per_step : 0;
  judged.last_loss = summary.losses.back();
  const auto collectives = text_of(summary.options, "collectives");
  judged.must_be_equal = ranks == 1 || !collectives || *collectives == "canonical";

  const Stage* expected = stage_of_program(name.substr(0, name.find('-')));
  if (expected != nullptr && stage != expected) {
    judged.findings.push_back(fmt::format("its summary calls it {}", harmless(summary.executable, 40)));
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
