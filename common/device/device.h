#pragma once
/// \file
/// A compute device: memory through the ledger, kernels, products. A rank has one.

#include <memory>
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

/// The backend's side of a run. Not thread-safe; outlives every buffer it made.
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

  /// Copies between tiers; same size and type. Counted in transfers().
  void copy_down(Array host, ConstArray device);
  void copy_up(Array device, ConstArray host);
  [[nodiscard]] Transfers& transfers() { return transfers_; }
  [[nodiscard]] const Transfers& transfers() const { return transfers_; }
  void clear_transfers() { transfers_ = {}; }

  /// What is used, for the plan: "cpu, AVX-512 kernels".
  [[nodiscard]] virtual std::string description() const = 0;

 protected:
  Device() = default;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Products> products_;

 private:
  friend class Buffer;
  /// Memory of at least `bytes` > 0 bytes, or nullptr when there is none. The category may decide where in a page it
  /// begins.
  virtual void* acquire(Tier tier, Category category, Index bytes) = 0;
  virtual void release(Tier tier, void* memory, Index bytes) = 0;
  virtual void fill_zero(Tier tier, void* memory, Index bytes) = 0;

  Buffer make(Category category, Index size, Dtype dtype, Tier tier, bool zero);
  /// Moves bytes between host and device memory.
  virtual void copy_bytes(void* out, const void* in, Index bytes) = 0;

  MemoryLedger ledger_;
  Transfers transfers_;
};

/// How products are computed (`--products`).
enum class ProductKind { canonical, library };

/// The CPU backend. `threads` is for products. Freed blocks are kept and reused by exact size, so a step that frees and
/// allocates the same sizes takes no page faults. Throws UnusableInput when `library` products were not built.
/// The environment variable ZERO_CPU_ISA (`avx512`, `avx2`, `generic`) chooses the vector code; unset: the best the
/// processor has. All give the same bits.
std::unique_ptr<Device> make_cpu_device(ProductKind products, int threads);

}  // namespace zero
