// What a person reads when CUDA cannot do what is asked.
#include "common/device/cuda/runtime.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "tests/cuda/gpu.h"
#include "tests/fakes/cuda_on_host/control.h"

namespace zero {
namespace {

using test::Gpu;
using test::Order;

template <class Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(ExitStatus::done, "no error");
}

void expect(const Error& error, ExitStatus status, const std::string& sentence) {
  EXPECT_EQ(error.status(), status) << error.what();
  EXPECT_EQ(error.what(), sentence);
}

TEST(CudaRuntime, WithoutADriverTheBackendIsRefusedInOneSentence) {
  cuda_on_host::fail_next("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  expect(
      error_of([] { cuda::count_devices(); }), ExitStatus::unusable,
      "--backend cuda: cudaGetDeviceCount finds no NVIDIA driver, or one that is older than the CUDA runtime of this "
      "build; install a newer driver, or use --backend cpu");
}

TEST(CudaRuntime, WithoutAGpuTheBackendIsRefusedInOneSentence) {
  cuda_on_host::fail_next("cudaGetDeviceCount", cudaErrorNoDevice);
  expect(error_of([] { cuda::count_devices(); }), ExitStatus::unusable,
         "--backend cuda: cudaGetDeviceCount finds no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES, or use --backend "
         "cpu");
  EXPECT_EQ(cuda::count_devices(), 1);
}

TEST(CudaRuntime, MemoryThatRunsOutIsAResourceFailure) {
  cuda_on_host::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
  expect(error_of([] { test::DeviceMemory memory(8); }), ExitStatus::failed,
         "cudaMalloc: the GPU has no memory left; ask plan what fits");
}

TEST(CudaRuntime, AFaultThatShowsLaterNamesTheLastKernel) {
  Gpu gpu(Order::forward);
  std::vector<float> v(3);
  gpu.kernels.fill(gpu.place(v), 1.0F);
  cuda_on_host::fail_next("cudaStreamSynchronize", cudaErrorIllegalAddress);
  expect(error_of([&] { gpu.kernels.check_indices(); }), ExitStatus::failed,
         "cudaStreamSynchronize failed: an illegal memory access was encountered (CUDA error 700; the last kernel "
         "launched was fill)");
}

TEST(CudaRuntime, ALaunchThatIsRefusedNamesItsKernel) {
  Gpu gpu(Order::forward);
  std::vector<float> v(3);
  cuda_on_host::fail_next("cudaLaunchKernelEx", cudaErrorInvalidConfiguration);
  expect(error_of([&] { gpu.kernels.fill(gpu.place(v), 1.0F); }), ExitStatus::failed,
         "fill failed: invalid configuration argument (CUDA error 9; the last kernel launched was fill)");
}

}  // namespace
}  // namespace zero
