#include "tools/compare_claims.h"

#include <set>

#include <fmt/format.h>

#include "tools/table.h"

namespace zero::tools {
namespace {

void judge_calls(Judged& judged, const Summary& summary, const formula::Formula& formula,
                 const std::set<std::string>& purposes) {
  for (const std::string& purpose : purposes) {
    const auto by_formula = formula.communication.find(purpose);
    const Index expected = by_formula == formula.communication.end() ? 0 : by_formula->second.calls;
    const WrongRanks wrong = wrong_ranks(summary, [&](const RankSummary& rank) {
      const auto said = rank.sent.find(purpose);  // what is left out sent nothing, which bytes show
      return said != rank.sent.end() && said->second.calls != expected;
    });
    if (wrong.count == 0) continue;
    const std::optional<Index> calls = summary.ranks[wrong.first].sent.at(purpose).calls;
    judged.findings.push_back(fmt::format("calls for {}: formula {}, {}{}", harmless(purpose, 40), expected,
                                          calls ? fmt::format("counted {}", *calls) : "missing from the summary",
                                          wrong.where));
  }
}

void judge_tiers(Judged& judged, const Summary& summary) {
  std::set<std::string> tiers;
  for (const RankSummary& rank : summary.ranks) {
    for (const auto& [tier, bytes] : rank.tiers) tiers.insert(tier);
  }
  for (const std::string& tier : tiers) {
    const WrongRanks wrong = wrong_ranks(summary, [&](const RankSummary& rank) {
      const auto held = rank.tiers.find(tier);
      return held != rank.tiers.end() && held->second.peak.value_or(0) > held->second.peaks_of_categories;
    });
    if (wrong.count == 0) continue;
    const TierBytes& held = summary.ranks[wrong.first].tiers.at(tier);
    const auto [peak, sum] = in_words(*held.peak, held.peaks_of_categories);
    judged.findings.push_back(
        fmt::format("{}: peak {}, categories add up to {}{}", harmless(tier, 40), peak, sum, wrong.where));
  }
}

void judge_number(Judged& judged, const char* what, Index formula, const std::optional<Index>& said) {
  if (said == formula) return;
  judged.findings.push_back(fmt::format("{}: formula {}, {}", what, formula,
                                        said ? fmt::format("the summary says {}", *said) : "missing from the summary"));
}

}  // namespace

WrongRanks wrong_ranks(const Summary& summary, const std::function<bool(const RankSummary&)>& is_wrong) {
  WrongRanks wrong;
  for (std::size_t i = 0; i < summary.ranks.size(); ++i) {
    if (is_wrong(summary.ranks[i]) && wrong.count++ == 0) wrong.first = i;
  }
  if (wrong.count > 0 && wrong.count < summary.ranks.size()) {
    wrong.where =
        fmt::format(" on rank {}{}", wrong.first, wrong.count > 1 ? fmt::format(" and {} more", wrong.count - 1) : "");
  }
  return wrong;
}

bool leaves_open(const Summary& summary, const std::string& purpose) {
  return wrong_ranks(summary, [&](const RankSummary& rank) {
           const auto said = rank.sent.find(purpose);
           return said != rank.sent.end() && !said->second.sent;
         }).count > 0;
}

void judge_claims(Judged& judged, const Summary& summary, const formula::Setting& setting) {
  std::set<std::string> purposes;
  for (const RankSummary& rank : summary.ranks) {
    for (const auto& [purpose, bytes] : rank.sent) purposes.insert(purpose);
  }
  const Stage* stage = judged.formula.stage;
  if (!setting.native) {
    for (const std::string& purpose : purposes) {
      if (!leaves_open(summary, purpose)) continue;
      judged.findings.push_back(
          fmt::format("{}: sent is not counted, and only native collectives leave that open", harmless(purpose, 40)));
    }
    if (stage != nullptr) judge_calls(judged, summary, stage->formula(setting), purposes);
  }
  judge_tiers(judged, summary);
  judge_number(judged, "number of parameters", formula::parameters(setting), summary.parameters);
  if (stage == nullptr) return;
  formula::Setting padded_for = setting;
  if (stage->single_process) padded_for.world = 1;
  judge_number(judged, "number of parameters with padding", formula::padded_parameters(padded_for),
               summary.padded_parameters);
}

}  // namespace zero::tools
