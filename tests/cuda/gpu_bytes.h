#pragma once
/// \file
/// For tests of transports of GPUs: this rank's GPU, of the fake, and bytes in its memory.

#include <memory>
#include <vector>

#include "common/comm/transport.h"
#include "common/device/cuda/cuda_device.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/support/mpi_main.h"

namespace zero::testing {

using Bytes = std::vector<std::byte>;

/// This rank's GPU among so many.
inline std::unique_ptr<CudaDevice> gpu_of(int gpus) {
  cuda_on_host::set_device_count(gpus);
  return std::make_unique<CudaDevice>(ProductKind::canonical, world_rank());
}

/// Bytes in device memory.
class OnGpu {
 public:
  OnGpu(CudaDevice& device, std::size_t bytes)
      : device_(device),
        buffer_(device.allocate_uninitialized(Category::workspace, static_cast<Index>(bytes / 4 + 1))),
        bytes_(bytes) {}
  OnGpu(CudaDevice& device, const Bytes& bytes) : OnGpu(device, bytes.size()) { copy(data(), bytes.data(), bytes_); }

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(buffer_.array().data); }
  [[nodiscard]] ConstBytes view() const { return {data(), bytes_}; }
  [[nodiscard]] Bytes read() const {
    Bytes bytes(bytes_);
    copy(bytes.data(), data(), bytes_);
    device_.synchronize(device_.mark());
    return bytes;
  }
  /// Queued.
  void copy(void* to, const void* from, std::size_t bytes) const {
    if (bytes > 0) cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, device_.stream()), "a copy");
  }
  void overwrite() const { cuda::check(cudaMemsetAsync(data(), 0x77, bytes_, device_.stream()), "a fill"); }

 private:
  CudaDevice& device_;
  Buffer buffer_;
  std::size_t bytes_;
};

}  // namespace zero::testing
