#pragma once
/// \file
/// NCCL as this project uses it, and the only include of its header.

#include <nccl.h>

#include <string>

#include "common/comm/mpi_api.h"

namespace zero::cuda {

/// Throws ResourceFailure with the call's name and NCCL's own words unless `status` is success.
void check(ncclResult_t status, const char* call);

/// What a result means: "remote process exited or there was a network error (ncclRemoteError)".
std::string meaning(ncclResult_t status);

/// "2.28.9", of the library that is loaded.
std::string nccl_version();

/// A communicator of NCCL: one rank of it. Destroyed because an exception passes, it is aborted, as by abort().
class NcclComm {
 public:
  /// `id` is one rank's ncclGetUniqueId for all. The GPU is the current one. Collective; throws ResourceFailure, on
  /// the ranks where NCCL fails.
  NcclComm(const ncclUniqueId& id, int size, int rank);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// nullptr once aborted.
  [[nodiscard]] ncclComm_t get() const { return comm_; }
  /// An error that came after a call had returned, such as a peer that is gone; or ncclSuccess.
  [[nodiscard]] ncclResult_t asynchronous_error() const;
  /// Gives it up: what is queued ends without a result, nobody is waited for.
  void abort();

 private:
  ncclComm_t comm_ = nullptr;
  UnwindGuard guard_;
};

}  // namespace zero::cuda
