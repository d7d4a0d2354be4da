#pragma once
/// \file
/// The largest model that trains under a cap, found by training: Table 2 of ZeRO and figure 7 of ZeRO-Offload,
/// measured.

#include <functional>
#include <string>
#include <vector>

#include "tools/compare_jobs.h"
#include "tools/largest_fit.h"

namespace zero::tools {

/// What `--largest` is about.
struct Largest {
  formula::Setting setting;  ///< but for its layers
  Caps caps;
};

/// Layers that a program takes at most.
inline constexpr Index kMostProgramLayers = 10'000;

/// Reads the programs' options for `--largest`. Adds to `arguments` what it chooses itself: one step, a small width and
/// context, a cap. Throws UnusableInput: options that cannot be used, or that `--largest` chooses.
Largest read_largest(std::vector<std::string>& arguments, Index ranks);

/// A row of its table.
struct LargestRow {
  std::string name;
  const Stage* stage = nullptr;
  Index formula = 0;     ///< layers: the most whose categories stay below the caps; 0: not even one
  Index measured = 0;    ///< layers: the most that trained a step
  std::string ended_by;  ///< the tier whose cap one layer more went past; empty: there is no more
  Index runs = 0;
  /// Whether the formula adds up peaks that do not fall together: the embedding unit, where it is the largest, is
  /// gathered while no gradient is in flight, and its gradient is in flight while nothing is gathered.
  bool formula_is_above = false;

  [[nodiscard]] bool right() const { return formula - measured <= 1 && (measured - formula <= 1 || formula_is_above); }
};

/// How a run under a cap ended: well, or at the cap of that tier.
struct CappedRun {
  bool trained = false;
  std::string tier;
};

/// Bisects from the formula on: it, one more, and where these do not settle it in steps that double. `train` trains one
/// step of the job with so many layers.
LargestRow find_largest(const Job& job, const Largest& largest, const std::function<CappedRun(Index layers)>& train);

/// Runs the job with so many layers under mpirun (compare_run.h). Throws Error where it fails for another reason than a
/// cap.
CappedRun train_capped(const Job& job, Index layers, Index ranks, const std::string& out, double limit_seconds,
                       std::size_t number, std::size_t total);

struct LargestReport {
  Index ranks = 1;
  Largest largest;
  std::vector<LargestRow> rows;
  std::vector<std::string> notes;

  [[nodiscard]] bool right() const;
};

std::string largest_text(const LargestReport& report);
std::string largest_markdown(const LargestReport& report);
std::string largest_json(const LargestReport& report);
std::string largest_csv(const LargestReport& report);

}  // namespace zero::tools
