#pragma once
/// \file
/// A rank's life: starting and ending MPI, and ending a job when something failed.

#include <optional>
#include <type_traits>
#include <utility>

#include "common/base/error.h"
#include "common/comm/communicator.h"

namespace zero {

/// MPI from construction to destruction; a program makes one, in main. Also tells malloc to keep what MPI's reductions
/// free: they allocate scratch memory in every call, and new pages cost more than the reduction.
/// Destroyed because an exception passes, it ends the job with ExitStatus::failed: a rank that leaves alone must not
/// keep the others waiting.
class MpiProcess {
 public:
  MpiProcess(int& argc, char**& argv);
  ~MpiProcess();
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  /// Of MPI_COMM_WORLD.
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

 private:
  int rank_ = 0;
  int size_ = 1;
  UnwindGuard guard_;
};

/// Flushes the standard streams and ends every rank of the job with `status`; without MPI, this process.
[[noreturn]] void abort_job(ExitStatus status);

/// All ranks learn whether any of them has an error; then every rank throws the same Error: status and sentence of the
/// lowest rank that has one, the sentence prefixed by "rank R: " unless every rank has the same. Returns when none has.
/// Collective.
void agree(Communicator& communicator, const std::optional<Error>& mine);

/// The same before there is a Communicator, by MPI. With one rank (MPI_COMM_NULL, MPI_COMM_SELF or a size of 1) MPI is
/// not called.
void agree(MPI_Comm ranks, const std::optional<Error>& mine);

/// Makes something on every rank, or throws the same Error on every rank. `make` must not communicate. Collective.
template <typename Make>
std::invoke_result_t<Make> agree_to_make(MPI_Comm ranks, Make make) {
  std::optional<std::invoke_result_t<Make>> made;
  std::optional<Error> error;
  try {
    made.emplace(make());
  } catch (const Error& caught) {
    error = caught;
  }
  agree(ranks, error);
  return std::move(*made);
}

}  // namespace zero
