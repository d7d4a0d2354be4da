#pragma once
/// \file
/// An operation of NCCL as messages of MPI.

#include <mpi.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/fakes/cuda_on_host/streams.h"

/// A communicator. Operations keep it until they have run.
struct ncclComm {  // NOLINT: NCCL's name
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0, size = 1;
  bool aborted = false;
  int queued = 0;  ///< operations that have not run
};

namespace nccl_over_mpi {

using Bytes = std::vector<unsigned char>;

/// The kinds of operations, by NCCL's names. A send and a receive are one kind to each other.
enum class Kind { point_to_point, all_gather, reduce_scatter, all_reduce };

/// Memory of the device.
struct Region {
  unsigned char* begin = nullptr;
  std::size_t bytes = 0;
};

/// What goes to, or comes from, a rank.
struct Message {
  int peer;
  std::size_t begin, bytes;  ///< of the region that is sent, or of what was received
};

class Operation {
 public:
  /// `out` are parts of `from`; `in` come one after the other.
  Operation(const char* name, Kind kind, ncclDataType_t type, ncclComm* comm, cudaStream_t stream, Region from,
            Region to, std::vector<Message> out, std::vector<Message> in);
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation();

  // Queueing, in this order, the first three with device memory unlocked.
  void take_bytes();     ///< that are sent
  void poison_target();  ///< nobody may read there any more
  void watch_source();   ///< nobody may write there any more
  void start();          ///< the messages
  void never_end() { hangs_ = true; }

  [[nodiscard]] cuda_on_host::Readiness readiness();
  /// Its turn in the stream has come, and it is ready.
  void finish();

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t bytes_to_others() const;

 private:
  /// In front of every message, so that ranks that do different things are found.
  struct Header {
    Kind kind;
    ncclDataType_t type;
    std::size_t bytes;
  };
  struct Posted {
    int peer;
    Bytes bytes;  // with the header
  };

  void check(int code, const char* call) const;
  [[nodiscard]] Bytes received() const;

  std::string name_;
  Kind kind_;
  ncclDataType_t type_;
  ncclComm* comm_;
  cudaStream_t stream_;
  Region from_, to_;
  std::vector<Message> out_, in_;
  std::vector<Posted> sent_, arriving_;
  std::vector<MPI_Request> requests_;  // none when they are done
  Bytes source_;                       // what it must still be
  bool hangs_ = false;
};

std::size_t size_of(ncclDataType_t type);

/// The sum of `terms` arrays that lie one after the other, in the order of ranks.
Bytes sum(const Bytes& arrays, std::size_t terms, ncclDataType_t type);

}  // namespace nccl_over_mpi
