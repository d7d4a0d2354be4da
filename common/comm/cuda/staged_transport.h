#pragma once
/// \file
/// The transport of ranks that share a GPU: through pinned host memory.

#include <memory>
#include <string>
#include <vector>

#include "common/comm/transport.h"
#include "common/device/cuda/cuda_device.h"

namespace zero::cuda {

/// An exchange is one between hosts: blocks are copied down into pinned memory, what is received is copied up into
/// staging memory, and the host waits for both. Whether MPI could read device memory is never asked: it is given
/// pointers to host memory only.
///
/// Every exchange receives into the same memory. Stream order makes that safe: a communicator works on one queue
/// (Queue::communication), so that the next exchange's copies up run after the kernels that read this one's.
class StagedTransport final : public Transport {
 public:
  /// `staging` is device memory, `pinned` of the host. `host` is between hosts, for blocks of as many bytes as
  /// block_bytes() gives for `pinned`. `ranks_on_a_gpu` is for the description: of the ranks, the most that
  /// share one GPU.
  StagedTransport(CudaDevice& device, Buffer staging, Buffer pinned, std::unique_ptr<Transport> host,
                  int ranks_on_a_gpu);
  ~StagedTransport() override;

  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }
  void exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected, const Consume& consume,
                const char* what) override;
  void exchange_same(ConstBytes offered, const Consume& consume, const char* what) override;
  [[nodiscard]] Index max_block() const override { return max_block_; }
  [[nodiscard]] Index max_same_block() const override { return max_block_; }
  [[nodiscard]] Transport& host() override { return *host_; }
  [[nodiscard]] std::string description() const override;
  /// Rather than because ranks share a GPU.
  [[nodiscard]] bool is_by_wish() const { return ranks_on_a_gpu_ == 1; }

 private:
  /// Queues a copy of a block to pinned memory, at `offset`: where it will be.
  ConstBytes copy_down(ConstBytes block, Index offset);
  /// Copies what was received to the device, and consumes it there.
  void bring_up(std::span<const ConstBytes> received, const Consume& consume);
  /// The host waits for the present queue.
  void wait_for_copies();

  CudaDevice& device_;
  Buffer staging_;  ///< size() - 1 blocks are used
  Buffer pinned_;   ///< as many
  std::unique_ptr<Transport> host_;
  int ranks_on_a_gpu_;
  Index max_block_;
  Mark used_;                         ///< where the staging memory was used last
  std::vector<ConstBytes> offered_;   ///< one for each rank, in pinned memory
  std::vector<ConstBytes> received_;  ///< one for each rank, in device memory
};

}  // namespace zero::cuda
