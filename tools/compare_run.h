#pragma once
/// \file
/// Runs a program and waits for it, without a shell.

#include <string>

#include "tools/compare_jobs.h"

namespace zero::tools {

/// Runs the job with `--out OUT/NAME` on `ranks` ranks under mpirun (the baseline without), its output going to
/// OUT/NAME.log. Shows on standard error which job of `total` this is. Throws Error: the program's own status and
/// sentence where it failed, ResourceFailure after `limit_seconds`, when the program and all that it started are ended.
void run_job(const Job& job, Index ranks, const std::string& out, double limit_seconds, std::size_t number,
             std::size_t total);

/// Lets SIGINT and SIGTERM end the running job before they end compare.
void watch_signals();

/// Runs `arguments` (looked up in PATH) and returns its exit status, 127 when it cannot be started; for plots.
int run_quietly(const std::vector<std::string>& arguments, const std::string& log, double limit_seconds);

}  // namespace zero::tools
