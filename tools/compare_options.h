#pragma once
/// \file
/// The command line of compare.

#include <optional>
#include <string>
#include <vector>

#include "tools/compare_jobs.h"
#include "tools/compare_largest.h"

namespace zero::tools {

struct CompareOptions {
  Index ranks = 4;
  Jobs jobs;
  std::optional<Largest> largest;         ///< nothing: the programs are compared
  std::string json, markdown, csv, plot;  ///< files; empty: none
  std::string out;                        ///< folder; empty: a temporary one
  double limit_seconds = 600;
};

/// Throws UnusableInput with one sentence. `folder` holds the programs. What is not an option of compare's own is
/// passed on. Returns nothing when `--help` was asked for; `text` then holds what to print.
std::optional<CompareOptions> parse_compare_options(int argc, const char* const* argv, const std::string& folder,
                                                    std::string& text);

}  // namespace zero::tools
