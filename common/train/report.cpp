#include "common/train/report.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/train/machine.h"

namespace zero {
namespace {

Index memory_formula(const formula::Formula& formula, Tier tier, std::string_view category) {
  const auto& memory = tier == Tier::device ? formula.memory
                       : tier == Tier::host ? formula.host_memory
                                            : formula.nvme_memory;
  const auto found = memory.find(std::string(category));
  return found == memory.end() ? 0 : found->second;
}

formula::Sent sent_formula(const formula::Formula& formula, std::string_view purpose) {
  const auto found = formula.communication.find(std::string(purpose));
  return found == formula.communication.end() ? formula::Sent{} : found->second;
}

/// The directions in which bytes move between tiers, under their names.
constexpr std::array<std::pair<const char*, Index Transfers::*>, 4> kDirections = {
    {{"down", &Transfers::down}, {"up", &Transfers::up}, {"read", &Transfers::read}, {"written", &Transfers::written}}};

Index moved_formula(const formula::Formula& formula, const char* direction) {
  const auto found = formula.offload.find(direction);
  return found == formula.offload.end() ? 0 : found->second;
}

/// "1.7 MiB (1,782,579 bytes)": two sizes that differ by a byte look different.
std::string exact(Index bytes) {
  return bytes < 1024 ? format_bytes(bytes) : fmt::format("{} ({} bytes)", format_bytes(bytes), bytes);
}

}  // namespace

void TrafficLog::record(const RankGroups& groups, const Transfers& transfers, Index t) {
  std::array<Traffic, kPurposes> now;
  bool changed = false;
  for (const auto& [direction, bytes] : kDirections) changed = changed || transfers.*bytes != last_transfers_.*bytes;
  for (int p = 0; p < kPurposes; ++p) {
    now[p] = groups.traffic(static_cast<Purpose>(p));
    // Digests and agreements come when they come.
    if (static_cast<Purpose>(p) == Purpose::control) continue;
    changed = changed || now[p].sent != last_[p].sent || now[p].calls != last_[p].calls;
  }
  if (!empty_ && changed && first_change_ == 0) first_change_ = t;
  last_ = now;
  last_transfers_ = transfers;
  empty_ = false;
}

RankReport measure(const MemoryLedger& ledger, const TrafficLog& traffic) {
  RankReport report;
  report.process_peak = process_peak();
  for (int t = 0; t < kTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    RankReport::TierReport& out = report.tiers[t];
    out.cap = ledger.cap(tier).value_or(-1);
    out.peak = ledger.peak(tier);
    for (int c = 0; c < kCategories; ++c) {
      out.current[c] = ledger.current(tier, static_cast<Category>(c));
      out.category_peak[c] = ledger.peak(tier, static_cast<Category>(c));
    }
  }
  for (int p = 0; p < kPurposes; ++p) {
    report.sent[p] = traffic.last()[p].sent;
    report.calls[p] = traffic.last()[p].calls;
  }
  report.moved = traffic.last_transfers();
  report.traffic_change = traffic.first_change();
  return report;
}

nlohmann::json Report::memory_json() const {
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    nlohmann::json tiers = nlohmann::json::object();
    for (int t = 0; t < kTiers; ++t) {
      const auto tier = static_cast<Tier>(t);
      const RankReport::TierReport& held = ranks[r].tiers[t];
      if (tier != Tier::device && held.peak == 0) continue;
      nlohmann::json categories = nlohmann::json::object();
      for (int c = 0; c < kCategories; ++c) {
        const std::string category(name(static_cast<Category>(c)));
        const Index by_formula = memory_formula(formula, tier, category);
        if (held.category_peak[c] == 0 && by_formula == 0) continue;
        categories[category] = {{"formula", by_formula}, {"current", held.current[c]}, {"peak", held.category_peak[c]}};
      }
      tiers[std::string(name(tier))] = {
          {"cap", held.cap < 0 ? nullptr : nlohmann::json(held.cap)}, {"peak", held.peak}, {"categories", categories}};
    }
    all.push_back({{"rank", r}, {"process_peak", ranks[r].process_peak}, {"tiers", tiers}});
  }
  return {{"ranks", all}};
}

nlohmann::json Report::communication_json() const {
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    nlohmann::json rank = {{"rank", r}};
    for (int p = 0; p < kPurposes; ++p) {
      if (static_cast<Purpose>(p) == Purpose::control) continue;
      const std::string purpose(name(static_cast<Purpose>(p)));
      const formula::Sent by_formula = sent_formula(formula, purpose);
      if (ranks[r].calls[p] == 0 && by_formula.calls == 0 && by_formula.bytes == 0) continue;
      rank[purpose] = {{"collective", collectives[p].empty() ? by_formula.collective : collectives[p]},
                       {"formula", by_formula.bytes},
                       {"sent", counts_bytes ? nlohmann::json(ranks[r].sent[p]) : nullptr},
                       {"calls", ranks[r].calls[p]}};
    }
    all.push_back(rank);
  }
  return {{"ranks", all}};
}

std::vector<std::string> Report::memory_lines() const {
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (int t = 0; t < kTiers; ++t) {
      const auto tier = static_cast<Tier>(t);
      for (int c = 0; c < kCategories; ++c) {
        const std::string_view category = name(static_cast<Category>(c));
        const Index by_formula = memory_formula(formula, tier, category);
        const Index held = ranks[r].tiers[t].category_peak[c];
        if (held == by_formula) continue;
        lines.push_back(fmt::format("memory: rank {} held {} of {} on {}, and the formula says {}", r, exact(held),
                                    category, name(tier), exact(by_formula)));
      }
    }
  }
  if (lines.empty()) lines.emplace_back("memory: held = formula in every category, on every rank");
  return lines;
}

std::string Report::activations_line() const {
  const Index held = ranks[0].tiers[0].category_peak[static_cast<std::size_t>(Category::activations)];
  return fmt::format("        activations held {} {} {} layers x {} + {} x {} + {} outside them", held,
                     held == activations.total() ? "=" : "!=", activations.layers, activations.layer_input,
                     activations.rests, activations.layer_rest, activations.outside);
}

std::vector<std::string> Report::communication_lines() const {
  if (!counts_bytes) return {"sent: not counted, the collectives are the library's own"};
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (int p = 0; p < kPurposes; ++p) {
      const std::string_view purpose = name(static_cast<Purpose>(p));
      if (static_cast<Purpose>(p) == Purpose::control) continue;
      const formula::Sent by_formula = sent_formula(formula, purpose);
      if (ranks[r].sent[p] != by_formula.bytes) {
        lines.push_back(fmt::format("sent: rank {} sent {} of {} in a step, and the formula says {}", r,
                                    exact(ranks[r].sent[p]), purpose, exact(by_formula.bytes)));
      } else if (ranks[r].calls[p] != by_formula.calls) {
        lines.push_back(fmt::format("sent: rank {} took {} collectives for {} in a step, and the formula says {}", r,
                                    ranks[r].calls[p], purpose, by_formula.calls));
      }
    }
  }
  if (lines.empty()) lines.emplace_back("sent:   sent = formula for every purpose, in every step, from every rank");
  return lines;
}

nlohmann::json Report::offload_json() const {
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t r = 0; r < ranks.size() && !formula.offload.empty(); ++r) {
    nlohmann::json rank = {{"rank", r}};
    for (const auto& [direction, bytes] : kDirections) {
      rank[direction] = {{"formula", moved_formula(formula, direction)}, {"moved", ranks[r].moved.*bytes}};
    }
    all.push_back(rank);
  }
  return {{"ranks", all}};
}

std::vector<std::string> Report::offload_lines() const {
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [direction, bytes] : kDirections) {
      const Index by_formula = moved_formula(formula, direction), moved = ranks[r].moved.*bytes;
      if (moved == by_formula) continue;
      lines.push_back(fmt::format("moved: rank {} moved {} {} in a step, and the formula says {}", r, exact(moved),
                                  direction, exact(by_formula)));
    }
  }
  if (lines.empty() && !formula.offload.empty()) {
    lines.emplace_back("moved:  moved = formula between tiers, in every step, on every rank");
  }
  return lines;
}

void Report::check_steady() const {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].traffic_change == 0) continue;
    throw ResultFailure(
        fmt::format("rank {} sent or moved in step {} not what it did in the step before", r, ranks[r].traffic_change));
  }
}

}  // namespace zero
