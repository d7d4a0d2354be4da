#pragma once
/// \file
/// Reads the summary.json that a program leaves, trusting nothing in it.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/types.h"

namespace zero::tools {

/// Bytes of a category, or sent for a purpose.
struct Held {
  Index formula = 0, current = 0, peak = 0;
};
struct SentBytes {
  Index formula = 0;
  std::optional<Index> sent;   ///< nothing under native collectives
  std::optional<Index> calls;  ///< nothing where the summary does not say
};
struct TierBytes {
  std::optional<Index> peak;      ///< nothing where the summary does not say
  Index peaks_of_categories = 0;  ///< their sum
};

/// Between tiers, in one direction.
struct MovedBytes {
  Index formula = 0, moved = 0;
};

struct RankSummary {
  Index process_peak = 0;
  std::map<std::string, Held> memory;  ///< named as in Row::memory
  std::map<std::string, SentBytes> sent;
  std::map<std::string, MovedBytes> moved;  ///< by direction
  std::map<std::string, TierBytes> tiers;
};

struct Summary {
  std::string executable;
  nlohmann::json options;  ///< an object
  std::optional<Index> parameters, padded_parameters;
  std::vector<double> losses, grad_norms;  ///< of each step
  std::map<std::string, std::string> digest;
  std::vector<RankSummary> ranks;  ///< by rank
  std::vector<double> seconds;     ///< of each step, at least one
};

/// The summary of a run on `ranks` ranks. Throws UnusableInput with one sentence that names the file and what is wrong
/// with it: not there, not JSON, nested too deep, a part missing, of another type or out of range, ranks missing.
Summary read_summary(const std::string& file, Index ranks);

}  // namespace zero::tools
