#pragma once
/// \file
/// Judges what a summary says beside bytes held and sent: how many parameters, how many collectives, a tier's peak.

#include <functional>
#include <string>

#include "tools/compare_judge.h"

namespace zero::tools {

/// The ranks of which something is wrong.
struct WrongRanks {
  std::size_t count = 0, first = 0;
  std::string where;  ///< " on rank 1 and 2 more"; empty where it is all of them
};
WrongRanks wrong_ranks(const Summary& summary, const std::function<bool(const RankSummary&)>& is_wrong);

/// Whether some rank does not say what it sent for that purpose.
bool leaves_open(const Summary& summary, const std::string& purpose);

/// Adds a finding to `judged` for each claim that cannot be: bytes sent left open without native collectives, a tier's
/// peak above the sum of its categories' peaks, another number of parameters than the shapes of `setting` have. Of a
/// program with a formula also other calls, and another number of parameters with padding.
void judge_claims(Judged& judged, const Summary& summary, const formula::Setting& setting);

}  // namespace zero::tools
