#pragma once
/// \file
/// The CUDA backend: memory of one GPU, and pinned memory of the host beside it.

#include <cstddef>
#include <map>
#include <string>

#include "common/device/cpu_kernels.h"
#include "common/device/cuda/cuda_kernels.h"
#include "common/device/cuda/queues.h"
#include "common/device/device.h"

namespace zero {

/// The CUDA backend of make_cuda_device(). A queue is a stream; nothing waits for the whole GPU but the destructor.
///
/// Device memory comes from the runtime's stream-ordered pool, which keeps what was freed: a step that frees and
/// allocates the same sizes asks the driver for nothing. It comes and goes in the order of Queue::compute. What is
/// allocated while another queue is the present one makes that queue wait for Queue::compute, so a stage allocates
/// before it changes queues. A block begins at a multiple of 256 bytes, and its size is rounded up to 512 by the pool;
/// the ledger has what was asked for.
///
/// Memory of the host tier is pinned, so that copies run beside all else; it begins at a page, for which up to a page
/// more than booked is held. Allocating and freeing it is slow: not in a step.
///
/// Beside the ledger's bytes the GPU holds the CUDA context, the kernels' code and what cuBLAS and NCCL keep.
class CudaDevice final : public Device {
 public:
  /// On GPU `local_rank` modulo the GPUs there are, which becomes the current one of the calling thread. Throws
  /// UnusableInput as why_no_cuda() says.
  CudaDevice(ProductKind products, int local_rank);
  /// Waits for all that was queued. Transports on this device end before it.
  ~CudaDevice() override;

  [[nodiscard]] Kernels& host_kernels() override { return host_kernels_; }
  [[nodiscard]] bool shares_host_memory() const override { return false; }
  [[nodiscard]] Mark mark() override { return queues_.mark(queue_); }
  void wait(Mark mark) override { queues_.wait(queue_, mark); }
  void synchronize(Mark mark) override { queues_.synchronize(mark); }
  /// "cuda: NVIDIA H200, compute capability 9.0, GPU 0 of 8"
  [[nodiscard]] std::string description() const override;

  // For transports.

  [[nodiscard]] cudaStream_t stream() const { return queues_.stream(queue_); }  ///< of the present queue
  [[nodiscard]] cudaStream_t stream_of(Queue queue) const { return queues_.stream(queue); }
  [[nodiscard]] int ordinal() const { return ordinal_; }  ///< of the GPU in this process
  [[nodiscard]] std::string bus_id() const;               ///< of the GPU in this machine: "0000:4e:00.0"
  /// Asked whenever the host waits for this device. A Watch ends before the device.
  [[nodiscard]] cuda::Watches& watches() { return queues_.watches(); }

 private:
  struct Block {
    Index bytes;
    Tier tier;
    void* allocated;  ///< what the runtime gave
  };

  void* acquire(Tier tier, Category category, Index bytes) override;
  void release(Tier tier, void* memory, Index bytes) override;
  void fill_zero(Tier tier, void* memory, Index bytes) override;
  void copy_now(void* out, const void* in, Index bytes) override;
  void queue_copy(void* out, const void* in, Index bytes) override;

  void* acquire_pinned(Index bytes);
  void release_pinned(void* memory);
  /// What follows on the present queue comes after what Queue::compute has been given.
  void follow_compute();
  /// The block that the address is in, or nullptr.
  [[nodiscard]] const Block* block_at(const void* address) const;

  int gpus_;
  int ordinal_;
  cuda::Queues queues_;
  std::map<const std::byte*, Block> blocks_;  ///< by where they begin
  CpuKernels host_kernels_;
  Buffer results_, workspace_;  ///< lent to the kernels and the products
};

}  // namespace zero
