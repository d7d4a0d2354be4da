#include "common/device/cuda/runtime.h"

#include <fmt/format.h>

#include "common/base/error.h"

namespace zero::cuda {
namespace {

const char* last_launch_name = "";

}  // namespace

const char* last_launch() { return last_launch_name; }
void set_last_launch(const char* name) { last_launch_name = name; }

void check(cudaError_t status, const char* call) {
  switch (status) {
    case cudaSuccess: return;
    case cudaErrorInsufficientDriver:
      throw UnusableInput(
          fmt::format("--backend cuda: {} finds no NVIDIA driver, or one that is older than the CUDA runtime of this "
                      "build; install a newer driver, or use --backend cpu",
                      call));
    case cudaErrorNoDevice:
      throw UnusableInput(fmt::format(
          "--backend cuda: {} finds no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES, or use --backend cpu", call));
    case cudaErrorMemoryAllocation:
      throw ResourceFailure(fmt::format("{}: the GPU has no memory left; ask plan what fits", call));
    default: break;
  }
  const char* after = *last_launch_name == '\0' ? "" : "; the last kernel launched was ";
  throw ResourceFailure(fmt::format("{} failed: {} (CUDA error {}{}{})", call, cudaGetErrorString(status),
                                    static_cast<int>(status), after, last_launch_name));
}

int count_devices() {
  int count = 0;  // left as it is by a call that fails
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess && status != cudaErrorInsufficientDriver && status != cudaErrorNoDevice) {
    throw UnusableInput(fmt::format(
        "--backend cuda: cudaGetDeviceCount failed: {} (CUDA error {}); see nvidia-smi, or use --backend cpu",
        cudaGetErrorString(status), static_cast<int>(status)));
  }
  check(status, "cudaGetDeviceCount");
  if (count == 0) check(cudaErrorNoDevice, "cudaGetDeviceCount");
  return count;
}

Stream::Stream(Priority priority) {
  int usual = 0, high = 0;
  check(cudaDeviceGetStreamPriorityRange(&usual, &high), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, priority == Priority::high ? high : usual),
        "cudaStreamCreateWithPriority");
}

Stream::~Stream() { cudaStreamDestroy(handle_); }

void read_back(void* host, const void* device, std::size_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace zero::cuda
