#pragma once
/// \file
/// The CUDA runtime as this project uses it, and the only include of its header. Tests compile the same sources with a
/// header of that name that runs kernels on the host (tests/fakes/cuda_on_host).

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

namespace zero::cuda {

/// Throws unless `status` is success. `call` names the call that returned it, as a person would search for it.
/// UnusableInput where no GPU can be used (no driver, no device); ResourceFailure for all else, such as device memory
/// that has run out and faults of kernels, which show at a later call: the sentence then names the last kernel
/// launched.
void check(cudaError_t status, const char* call);

/// How many GPUs there are. Throws UnusableInput, with the reason, when there is none.
int count_devices();

/// A queue of work on the current device: what is queued runs in order, beside the host and other queues. Must outlive
/// what uses it.
class Stream {
 public:
  /// Where queues have work at the same time, blocks of threads of a `high` one begin first.
  enum class Priority { usual, high };
  explicit Stream(Priority priority = Priority::usual);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] cudaStream_t handle() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

/// Queues a copy to the host and waits for it, and so for all that was queued before.
void read_back(void* host, const void* device, std::size_t bytes, cudaStream_t stream);

/// How many threads a kernel runs on.
struct Grid {
  unsigned blocks = 0;
  unsigned threads = 0;          ///< of a block
  std::size_t shared_bytes = 0;  ///< of a block, as shared_memory() of grid.h gives it
};

/// The name of the kernel launched last.
const char* last_launch();
void set_last_launch(const char* name);

/// Queues kernel(arguments...); does nothing without blocks. `name` is for error messages.
template <class... Parameters>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  if (grid.blocks == 0) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.blocks);
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  set_last_launch(name);
  check(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

}  // namespace zero::cuda
