#pragma once
/// \file
/// Transports move bytes between the ranks of a communicator; they add nothing. Every collective of ours is built on
/// the one operation below.

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/types.h"
#include "common/comm/mpi_api.h"
#include "common/device/device.h"

namespace zero {

/// Bytes that somebody else owns.
using ConstBytes = std::span<const std::byte>;

/// What a transport of two or more ranks holds on each rank, of either kind, in bytes. `self` holds nothing.
inline constexpr Index kStagingBytes = Index{4} << 20;

/// A rank that offers a block of another size than its peer expects is a mistake of the caller: std::length_error.
void check_size(ConstBytes received, std::size_t expected);

/// One transport of a rank. Making and destroying it is collective; one that is destroyed because an exception passes,
/// or after it has thrown, waits for nobody and leaves its MPI objects to the end of the process.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Given received[p] = what rank p offered to this rank; valid during the call only. received[rank()] is empty.
  using Consume = std::function<void(std::span<const ConstBytes> received)>;

  /// Every rank offers offered[p] to each rank p and consumes what it is offered: expected[p] bytes by rank p. Blocks
  /// may be empty; those of rank() itself are ignored. Collective: all ranks call it in the same order, with blocks of
  /// the sizes their peers expect; no block is larger than max_block(). `consume` may write to what was offered. `what`
  /// names the collective for the watchdog. Throws ResourceFailure naming the collective and the late ranks after
  /// `--timeout` seconds without progress; then the transport is of no further use, and the job has to end.
  virtual void exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected,
                        const Consume& consume, const char* what) = 0;

  /// Every rank offers the same block to all others, of the same size on all ranks: exchange() with one block, stored
  /// once where that helps.
  virtual void exchange_same(ConstBytes offered, const Consume& consume, const char* what) = 0;

  /// The largest block of exchange() (one of N-1) and of exchange_same(), in bytes: multiples of 128.
  [[nodiscard]] virtual Index max_block() const = 0;
  [[nodiscard]] virtual Index max_same_block() const = 0;

  /// The transport for what lies in host memory: this one, unless it moves device memory.
  [[nodiscard]] virtual Transport& host() { return *this; }

  /// For the plan: "self", "shared memory windows, 4 MiB a rank", "messages".
  [[nodiscard]] virtual std::string description() const = 0;
};

/// `--transport`. For GPUs `shared` and `messages` go through host memory, which `automatic` does where ranks share
/// one.
enum class TransportKind { automatic, shared, messages, nccl };

/// The largest block of exchange(), in bytes, for a transport of `size` >= 2 ranks: a multiple of 128. Windows hold two
/// generations of size - 1 blocks and a table; messages keep to the same size.
Index block_bytes(Index staging_bytes, int size);

/// The transport of the ranks of `communicator` (duplicated). MPI_COMM_SELF, MPI_COMM_NULL or a size of 1 gives `self`,
/// which needs no MPI call; the first two need no MPI_Init either. `staging_bytes` are booked as Category::buckets, for
/// two or more ranks. `automatic` takes shared windows when all ranks are on one host and Open MPI's folder for them
/// (/dev/shm) has room for all, else messages; the description says which and why. `shared` throws UnusableInput where
/// it cannot be had. Collective; all ranks throw alike. `timeout_seconds` is the watchdog's. Tests lower
/// `staging_bytes` to see many blocks in little data.
std::unique_ptr<Transport> make_transport(MPI_Comm communicator, TransportKind kind, Device& device,
                                          double timeout_seconds, Index staging_bytes = kStagingBytes);

/// The same for two or more ranks and bytes in host memory, booked in `tier`; `kind` is not nccl.
std::unique_ptr<Transport> make_host_transport(MPI_Comm communicator, TransportKind kind, Device& device, Tier tier,
                                               double timeout_seconds, Index staging_bytes);

/// The same for a device whose memory the host cannot read: blocks are in device memory, and work on them is queued
/// on the device's present queue. Holds half of `staging_bytes` (Category::buckets) on the device and
/// all of it in Tier::host, its host() included. Defined by common/comm/cuda; where that is not linked, there is no
/// such device.
std::unique_ptr<Transport> make_device_transport(MPI_Comm communicator, TransportKind kind, Device& device,
                                                 double timeout_seconds, Index staging_bytes);

}  // namespace zero
