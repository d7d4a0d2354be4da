#pragma once
/// \file
/// How an error that one rank alone has ends the run.

#include <exception>
#include <optional>
#include <string>

#include "common/comm/process.h"

namespace zero {

/// A rank of a run: where it stands and whom it talks to. MPI_COMM_SELF for a program of a single process, which never
/// starts MPI.
struct Ranks {
  MPI_Comm comm = MPI_COMM_SELF;
  int rank = 0;
  int size = 1;
};

/// What `act` throws, if it does.
template <typename Act>
std::optional<Error> error_of(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// Every rank throws rank 0's error, if it has one. Collective.
void agree_with_rank0(const Ranks& ranks, const std::optional<Error>& mine);

/// Does `act` on rank 0, for what it alone does (files, the baseline of `--verify`); every rank throws its error, in
/// its words. `act` must not communicate. Collective.
template <typename Act>
void on_rank0(const Ranks& ranks, Act act) {
  agree_with_rank0(ranks, ranks.rank == 0 ? error_of(act) : std::nullopt);
}

/// Throws UnusableInput on all ranks when one was started with another program or other options than rank 0, before any
/// of them is read: ranks that took different ways would wait for each other. Collective.
void agree_on_command_line(const Ranks& ranks, const std::string& program, int argc, const char* const* argv);

/// Ends the job because of an error that the other ranks do not know of: prints one line and takes all ranks down. With
/// one rank it throws the error again.
[[noreturn]] void fail_alone(const Ranks& ranks, const std::exception& error);

/// Prints "error: sentence" on standard error, in one piece and on one line: control characters are shown as "?".
void print_error(const std::string& sentence);

}  // namespace zero
