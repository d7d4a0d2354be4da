#pragma once
/// \file
/// How the ranks of a communicator find each other.

#include <mpi.h>
#include <nccl.h>

#include <string>

namespace nccl_over_mpi {

/// Of a communicator that this process will be a rank of.
ncclUniqueId make_id();

/// Collective over the ranks with this id. Gives an MPI communicator of them in their order; MPI_COMM_NULL, and a
/// sentence in `problem`, when they cannot form one, for all of them alike.
MPI_Comm meet(const ncclUniqueId& id, int ranks, int rank, std::string& problem);

}  // namespace nccl_over_mpi
