#pragma once
/// \file
/// A compute device: memory through the ledger, kernels, products. A rank has one.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/device/buffer.h"
#include "common/device/kernels.h"
#include "common/device/memory_ledger.h"
#include "common/device/products.h"

namespace zero {

/// Bytes that moved between tiers since clear_transfers(): from the device down to the host, up again, and between host
/// and storage.
struct Transfers {
  Index down = 0;
  Index up = 0;
  Index read = 0;
  Index written = 0;
};

/// What a device can do beside each other and beside the host: each is a queue of work, done in order. A CPU has none:
/// whatever is asked of it is done when the call returns.
enum class Queue { compute, communication, copies };
inline constexpr int kQueues = 3;

/// A point in a queue's work: all that was queued before it. By default one that is reached.
struct Mark {
  Queue queue = Queue::compute;
  std::uint64_t number = 0;  ///< the device's; 0: reached
};

/// The backend's side of a run. Not thread-safe; outlives every buffer it made.
///
/// Kernels, products and copies go to the present queue (queue(), changed by OnQueue). Queues know nothing of each
/// other: what one leaves for another has to be waited for, with mark() and wait(). Buffers come and go in the order of
/// Queue::compute: one that another queue has worked on must not go before Queue::compute has waited for that.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// A zero-filled buffer of `size` elements (0 is allowed), aligned to 128 bytes or better. What products read and
  /// write has the same offset within a page in every layout (gathered parameters that of parameters, gradients in
  /// flight that of gradients). Throws ResourceFailure past the tier's cap or when memory ends.
  [[nodiscard]] Buffer allocate(Category category, Index size, Dtype dtype = Dtype::fp32, Tier tier = Tier::device);

  /// The same without the zero filling, for a buffer whose every element is written before it is read.
  [[nodiscard]] Buffer allocate_uninitialized(Category category, Index size, Dtype dtype = Dtype::fp32,
                                              Tier tier = Tier::device);

  [[nodiscard]] MemoryLedger& ledger() { return ledger_; }
  [[nodiscard]] const MemoryLedger& ledger() const { return ledger_; }
  [[nodiscard]] Kernels& kernels() { return *kernels_; }
  [[nodiscard]] Products& products() { return *products_; }
  /// Kernels for what lives in the host tier, on the CPU: the same arithmetic, so the same bits.
  [[nodiscard]] virtual Kernels& host_kernels() { return *kernels_; }
  [[nodiscard]] Kernels& kernels_of(Tier tier) { return tier == Tier::device ? kernels() : host_kernels(); }

  /// Whether the host's code can read and write what lives in the device tier.
  [[nodiscard]] virtual bool shares_host_memory() const { return true; }

  [[nodiscard]] Queue queue() const { return queue_; }
  /// The point that the present queue has reached with what was queued so far.
  [[nodiscard]] virtual Mark mark() { return {}; }
  /// What is queued on the present queue from now on runs after the mark.
  virtual void wait(Mark /*mark*/) {}
  /// The host waits for the mark. Throws what the work before it failed with.
  virtual void synchronize(Mark /*mark*/) {}

  /// Copies between tiers, on Queue::copies after what the present queue has reached; same size and type. Counted in
  /// transfers(). The mark is where the copy is done: until then the host leaves its memory alone.
  Mark copy_down(Array host, ConstArray device);
  Mark copy_up(Array device, ConstArray host);
  /// Copies on the present queue that are no part of what a stage moves, such as tokens, and values that are looked at;
  /// not counted. Done, for the host, when they return. `host` has as many bytes as the view.
  void upload(Array device, const void* host) { copy_now(device.data, host, device.bytes()); }
  void download(void* host, ConstArray device) { copy_now(host, device.data, device.bytes()); }
  [[nodiscard]] Transfers& transfers() { return transfers_; }
  [[nodiscard]] const Transfers& transfers() const { return transfers_; }
  void clear_transfers() { transfers_ = {}; }

  /// What is used, for the plan: "cpu, AVX-512 kernels".
  [[nodiscard]] virtual std::string description() const = 0;

 protected:
  Device() = default;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Products> products_;
  Queue queue_ = Queue::compute;

 private:
  friend class Buffer;
  friend class OnQueue;
  /// Memory of at least `bytes` > 0 bytes, or nullptr when there is none. The category may decide where in a page it
  /// begins.
  virtual void* acquire(Tier tier, Category category, Index bytes) = 0;
  virtual void release(Tier tier, void* memory, Index bytes) = 0;
  virtual void fill_zero(Tier tier, void* memory, Index bytes) = 0;

  Buffer make(Category category, Index size, Dtype dtype, Tier tier, bool zero);
  /// Copies bytes between host and device memory on the present queue, and waits for it.
  virtual void copy_now(void* out, const void* in, Index bytes) = 0;
  /// The same without waiting.
  virtual void queue_copy(void* out, const void* in, Index bytes) { copy_now(out, in, bytes); }

  MemoryLedger ledger_;
  Transfers transfers_;
};

/// Makes another queue the present one while it lives. What is queued there runs after what the queue before has
/// reached.
class OnQueue {
 public:
  OnQueue(Device& device, Queue queue) : device_(device), before_(device.queue_) {
    if (queue == before_) return;
    const Mark reached = device.mark();
    device.queue_ = queue;
    device.wait(reached);
  }
  ~OnQueue() { device_.queue_ = before_; }
  OnQueue(const OnQueue&) = delete;
  OnQueue& operator=(const OnQueue&) = delete;

 private:
  Device& device_;
  Queue before_;
};

/// How products are computed (`--products`).
enum class ProductKind { canonical, library };

/// The CPU backend. `threads` is for products. Freed blocks are kept and reused by exact size, so a step that frees and
/// allocates the same sizes takes no page faults. Throws UnusableInput when `library` products were not built.
/// The environment variable ZERO_CPU_ISA (`avx512`, `avx2`, `generic`) chooses the vector code; unset: the best the
/// processor has. All give the same bits.
std::unique_ptr<Device> make_cpu_device(ProductKind products, int threads);

/// Why the CUDA backend cannot be had here: one sentence that begins with "--backend cuda" (this build has none, there
/// is no driver, no GPU). Nothing when it can. Defined by common/device/cuda, or where that is not linked by
/// no_cuda.cpp.
std::optional<std::string> why_no_cuda();

/// The CUDA backend, on GPU `local_rank` modulo the GPUs there are. Throws UnusableInput as why_no_cuda() says.
std::unique_ptr<Device> make_cuda_device(ProductKind products, int local_rank);

}  // namespace zero
