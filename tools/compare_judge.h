#pragma once
/// \file
/// Judges a program by what it left: equal bits, bytes held, sent, and moved between tiers.

#include <string>
#include <vector>

#include "tools/compare_options.h"
#include "tools/compare_summary.h"
#include "tools/surprises.h"

namespace zero::tools {

/// A row of compare's table. Measured numbers are those of the rank with the most.
struct Judged {
  std::string name;
  Row held;     ///< measured
  Row formula;  ///< of the stage that the summary names, from the options of the run; of the summary itself where
                ///< compare does not know it
  std::string executable;         ///< what the summary calls the program
  bool bytes_are_counted = true;  ///< false where the summary leaves bytes sent open, as under native collectives
  double seconds_per_step = 0;    ///< median
  double tokens_per_second = 0;   ///< global batch x context / seconds_per_step
  double last_loss = 0;
  bool equal = true;              ///< digests, and the losses and norms of every step
  bool must_be_equal = true;      ///< false under ring and native collectives, which add in another order
  double largest_difference = 0;  ///< of a loss, over steps
  /// What is wrong, in sentences: "optimizer: formula 1.7 MB, measured 6.7 MB".
  std::vector<std::string> findings;

  [[nodiscard]] bool right() const { return findings.empty() && (equal || !must_be_equal); }
};

/// `summary` is what the job left, `reference` the run to be equal to, `reference_name` its name in the table. `ranks`
/// is the N of the comparison.
Judged judge(const Job& job, const Summary& summary, const std::string& reference_name, const Summary& reference,
             Index ranks);

}  // namespace zero::tools
