#pragma once
/// \file
/// The command line of compare.

#include <optional>
#include <string>
#include <vector>

#include "common/base/types.h"

namespace zero::tools {

/// A program to run.
struct Job {
  std::string name;                    ///< in the table, and of its folder in --out; unique
  std::string path;                    ///< absolute
  bool single_process = false;         ///< the baseline: without mpirun
  std::vector<std::string> arguments;  ///< but for --out
};

struct CompareOptions {
  Index ranks = 4;
  std::vector<Job> jobs;                  ///< the one to compare with first
  std::string json, markdown, csv, plot;  ///< files; empty: none
  std::string out;                        ///< folder; empty: a temporary one
  double limit_seconds = 600;
};

/// Throws UnusableInput with one sentence. `folder` holds the programs. What is not an option of compare's own is
/// passed on. Returns nothing when `--help` was asked for; `text` then holds what to print.
std::optional<CompareOptions> parse_compare_options(int argc, const char* const* argv, const std::string& folder,
                                                    std::string& text);

}  // namespace zero::tools
