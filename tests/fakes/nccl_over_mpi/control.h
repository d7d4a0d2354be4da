#pragma once
/// \file
/// NCCL over MPI, for CUDA on the host (tests/fakes/cuda_on_host); what a test can ask of it beyond NCCL's calls.
///
/// When a group is queued (ncclGroupEnd, or a call outside a group), what its streams depend on runs, the bytes to be
/// sent are taken and go out by MPI, and the receive buffers are filled with poison: from now on, nothing else may
/// touch the buffers. The rest waits in the streams: when its turn comes, each operation looks whether its buffers are
/// as they were and still there (else a Fault), and writes what was received. So whoever does not wait for it reads
/// poison.
///
/// A communicator's ranks may be some of MPI_COMM_WORLD; the rank that made the unique id must be among them.

#include <nccl.h>

#include <cstdint>
#include <string>

namespace nccl_over_mpi {

/// The next call of this name returns `result` and does nothing.
void fail_next(const std::string& call, ncclResult_t result);

/// The next operation of this process never ends, nor does what follows on its stream: a query of the stream is not
/// ready for ever, waiting for it is a Fault. ncclCommAbort() ends it.
void hang_next();

/// What ncclCommGetAsyncError() reports from now on, of every communicator.
void set_async_error(ncclResult_t result);

/// Operations that were queued, and bytes that they sent to other ranks.
struct Counts {
  std::uint64_t operations = 0, bytes_sent = 0;
};
Counts counts();

}  // namespace nccl_over_mpi
