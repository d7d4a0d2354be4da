#pragma once
/// \file
/// The transport of ranks that have a GPU each: NCCL's sends and receives, from memory of one GPU to that of another.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/cuda/in_flight.h"
#include "common/comm/cuda/nccl_comm.h"
#include "common/comm/transport.h"
#include "common/device/cuda/cuda_device.h"

namespace zero::cuda {

/// An exchange is one group of sends and receives, queued on the device's present queue; blocks are sent from where
/// they are and received into staging memory. The host waits for nothing: what `consume` queues comes after it.
///
/// Every exchange receives into the same memory. Stream order makes that safe: a communicator works on one queue
/// (Queue::communication), so that the next exchange's receives run after the kernels that read this one's.
///
/// The watchdog looks while the host waits for the GPU, whatever for: when NCCL reports an error, or the exchange at
/// work gets nowhere for `--timeout` seconds, NCCL's communicator is aborted and the waiting ends with
/// ResourceFailure.
class NcclTransport final : public Transport {
 public:
  /// `staging` is device memory. `host` moves what is in host memory. Collective; all ranks throw alike. NCCL's own
  /// start has no timeout.
  NcclTransport(MPI_Comm ranks, CudaDevice& device, Buffer staging, std::unique_ptr<Transport> host,
                double timeout_seconds);
  ~NcclTransport() override;

  [[nodiscard]] int rank() const override { return comm_.rank(); }
  [[nodiscard]] int size() const override { return comm_.size(); }
  void exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected, const Consume& consume,
                const char* what) override;
  void exchange_same(ConstBytes offered, const Consume& consume, const char* what) override;
  [[nodiscard]] Index max_block() const override { return max_block_; }
  [[nodiscard]] Index max_same_block() const override { return max_block_; }
  [[nodiscard]] Transport& host() override { return *host_; }
  [[nodiscard]] std::string description() const override;

  /// Queues what `calls` asks of NCCL on the present queue, as one group and one collective of the watchdog.
  using Calls = std::function<void(ncclComm_t comm, cudaStream_t stream)>;
  void queue(const char* what, const Calls& calls);

 private:
  /// Meets every other rank once. NCCL makes a connection when it is first used, and a host that waits there for a
  /// peer has no watchdog: so that is now, when all ranks come.
  void connect();
  /// The watchdog's look.
  void look();
  /// Gives up, and says which collective it was.
  [[noreturn]] void fail(const std::string& reason);
  /// Ends what NCCL has queued. From now on nobody is waited for.
  void give_up();

  OwnedComm comm_;
  CudaDevice& device_;
  double timeout_seconds_;
  Index max_block_;
  Buffer staging_;  ///< size() - 1 blocks are used
  std::unique_ptr<Transport> host_;
  std::unique_ptr<NcclComm> nccl_;
  InFlight in_flight_;
  Mark used_;            ///< where NCCL and the staging memory were used last
  bool failed_ = false;  ///< given up
  Watch watch_;
  UnwindGuard guard_;
  std::vector<ConstBytes> received_;  ///< one for each rank
};

}  // namespace zero::cuda
