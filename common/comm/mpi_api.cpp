#include "common/comm/mpi_api.h"

#include <string>

#include <fmt/format.h>

#include "common/base/error.h"

namespace zero {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  throw ResourceFailure(fmt::format("{} failed: {}", call, text));
}

bool is_single(MPI_Comm ranks) {
  if (ranks == MPI_COMM_NULL || ranks == MPI_COMM_SELF) return true;
  int size = 0;
  check_mpi(MPI_Comm_size(ranks, &size), "MPI_Comm_size");
  return size == 1;
}

OwnedComm::OwnedComm(MPI_Comm ranks) {
  check_mpi(MPI_Comm_dup(ranks, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

OwnedComm::~OwnedComm() {
  if (abandoned_ || guard_.unwinding()) return;
  MPI_Comm_free(&comm_);
}

}  // namespace zero
