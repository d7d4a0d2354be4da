#pragma once
/// \file
/// MPI's C interface, and what every use of it here needs: return codes as errors, and a communicator that is owned.

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // the deprecated C++ bindings would need a library of their own
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <exception>

namespace zero {

/// Throws ResourceFailure with the call's name and MPI's text when `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// True when `ranks` is one process for which MPI needs no call: MPI_COMM_NULL or MPI_COMM_SELF, which may be used
/// before MPI_Init, or a communicator of size 1.
bool is_single(MPI_Comm ranks);

/// Knows whether its owner is being destroyed because of an exception thrown after it was made. Freeing MPI's
/// communicators and windows is collective: a rank that fails alone must not wait there for ranks that have not failed.
class UnwindGuard {
 public:
  [[nodiscard]] bool unwinding() const { return std::uncaught_exceptions() > exceptions_; }

 private:
  int exceptions_ = std::uncaught_exceptions();
};

/// A duplicate of a communicator whose errors come back as codes. Making and destroying it is collective; destroyed
/// while an exception passes, it is left to the end of the process.
class OwnedComm {
 public:
  explicit OwnedComm(MPI_Comm ranks);
  ~OwnedComm();
  OwnedComm(const OwnedComm&) = delete;
  OwnedComm& operator=(const OwnedComm&) = delete;

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Leaves the communicator to the end of the process: after a failure the peers cannot be relied upon.
  void abandon() { abandoned_ = true; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool abandoned_ = false;
  UnwindGuard guard_;
};

}  // namespace zero
