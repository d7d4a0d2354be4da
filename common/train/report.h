#pragma once
/// \file
/// What the ranks held and sent, beside what the formulas say.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/comm/communicator.h"
#include "common/device/device.h"
#include "common/formula/formula.h"
#include "common/train/groups.h"

namespace zero {

/// What a rank sends and moves between tiers in a step, which must be the same in every step.
class TrafficLog {
 public:
  /// Takes the counts of step t: of the communicators, and between tiers.
  void record(const RankGroups& groups, const Transfers& transfers, Index t);

  [[nodiscard]] const std::array<Traffic, kPurposes>& last() const { return last_; }
  [[nodiscard]] const Transfers& last_transfers() const { return last_transfers_; }
  /// The first step that sent or moved something else than the one before; 0 when there is none.
  [[nodiscard]] Index first_change() const { return first_change_; }

 private:
  std::array<Traffic, kPurposes> last_;
  Transfers last_transfers_;
  bool empty_ = true;
  Index first_change_ = 0;
};

/// A rank's memory and traffic after the last step. Trivially copyable: ranks exchange its bytes.
struct RankReport {
  struct TierReport {
    Index cap = -1;  ///< -1: none
    Index peak = 0;
    std::array<Index, kCategories> current{};
    std::array<Index, kCategories> category_peak{};
  };
  Index process_peak = 0;  ///< bytes, by the kernel's count
  std::array<TierReport, kTiers> tiers;
  std::array<Index, kPurposes> sent{};
  std::array<Index, kPurposes> calls{};
  Transfers moved;
  Index traffic_change = 0;  ///< TrafficLog::first_change()
};

RankReport measure(const MemoryLedger& ledger, const TrafficLog& traffic);

/// All ranks' reports beside the formula.
struct Report {
  std::vector<RankReport> ranks;
  std::array<std::string, kPurposes> collectives;  ///< by which each purpose was served
  bool counts_bytes = true;
  formula::Formula formula;
  formula::Activations activations;  ///< by formula, layer by layer

  /// The members `memory` and `communication` of summary.json.
  [[nodiscard]] nlohmann::json memory_json() const;
  [[nodiscard]] nlohmann::json communication_json() const;
  /// One line when everything is as the formula says, else a line for each difference.
  [[nodiscard]] std::vector<std::string> memory_lines() const;
  /// What rank 0 held of activations, beside the formula by layer.
  [[nodiscard]] std::string activations_line() const;
  [[nodiscard]] std::vector<std::string> communication_lines() const;
  /// The member `offload`: no ranks where nothing moves between tiers. Lines likewise.
  [[nodiscard]] nlohmann::json offload_json() const;
  [[nodiscard]] std::vector<std::string> offload_lines() const;
  /// Throws ResultFailure when a rank's steps did not all send the same.
  void check_steady() const;
};

}  // namespace zero
