// Faults planted in kernels are caught by CUDA on the host; kernels without the fault are not accused.
#include <gtest/gtest.h>

#include <string>

#include "common/device/cuda/grid.h"
#include "tests/cuda/gpu.h"
#include "tests/fakes/cuda_on_host/control.h"

namespace zero {
namespace {

using cuda_on_host::Fault;
using test::Gpu;
using test::Order;

constexpr unsigned kThreads = 40;

/// Each thread writes its number and reads its neighbour's.
template <bool kBarrier>
__global__ void neighbours(float* out) {
  float* const number = cuda::shared_memory<float>();
  number[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = number[(threadIdx.x + 1) % blockDim.x];
}

std::vector<float> numbers_of_neighbours(Order order, bool barrier) {
  Gpu gpu(order);
  std::vector<float> out(kThreads);
  cuda::launch("neighbours", barrier ? neighbours<true> : neighbours<false>, {1, kThreads, kThreads * sizeof(float)},
               gpu.stream(), static_cast<float*>(gpu.place(out).data));
  gpu.place.finish();
  return out;
}

TEST(PlantedFaults, AMissingBarrierGivesOtherBitsInAnotherOrderOfThreads) {
  const std::vector<float> expected = numbers_of_neighbours(Order::forward, true);
  EXPECT_EQ(expected[3], 4.0F);
  for (const Order order : test::kOrders) {
    EXPECT_EQ(test::bits(numbers_of_neighbours(order, true)), test::bits(expected)) << test::name(order);
    EXPECT_NE(test::bits(numbers_of_neighbours(order, false)), test::bits(expected)) << test::name(order);
  }
}

/// What the work throws when someone waits for it.
std::string fault_of(const Gpu& gpu) {
  try {
    cuda::check(cudaStreamSynchronize(gpu.stream()), "cudaStreamSynchronize");
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "no fault";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

__global__ void barrier_for_some(unsigned some) {
  if (threadIdx.x < some) __syncthreads();
}

TEST(PlantedFaults, ABarrierThatSomeThreadsDoNotReachNamesTheKernel) {
  for (const Order order : test::kOrders) {
    Gpu gpu(order);
    cuda::launch("barrier_for_some", barrier_for_some, {2, kThreads}, gpu.stream(), 7U);
    const std::string fault = fault_of(gpu);
    EXPECT_TRUE(contains(fault, "kernel barrier_for_some: block ")) << fault;
    EXPECT_TRUE(contains(fault, "a divergent barrier: 7 threads wait at ")) << fault;
    EXPECT_TRUE(contains(fault, " and 33 have ended")) << fault;
    cuda::launch("barrier_for_some", barrier_for_some, {2, kThreads}, gpu.stream(), kThreads);
    EXPECT_EQ(fault_of(gpu), "no fault");
  }
}

__global__ void two_barriers() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST(PlantedFaults, ThreadsThatWaitAtTwoBarriersNameTheKernel) {
  Gpu gpu(Order::shuffled);
  cuda::launch("two_barriers", two_barriers, {1, kThreads}, gpu.stream());
  const std::string fault = fault_of(gpu);
  EXPECT_TRUE(contains(fault, "kernel two_barriers: block 0: a divergent barrier: threads wait at ")) << fault;
}

__global__ void write_at(float* out, Index i) { out[i] = 1.0F; }

/// Writes element `i` of an allocation of five.
void expect_out_of_bounds(Index i, const std::string& fault) {
  const auto run = [&] {
    Gpu gpu(Order::forward);
    const test::DeviceMemory five(5 * sizeof(float));
    cuda::launch("write_at", write_at, {1, 1}, gpu.stream(), static_cast<float*>(five.data()), i);
    EXPECT_EQ(fault_of(gpu), fault);
  };
  if (cuda_on_host::kAddressSanitizer) {
    EXPECT_DEATH(run(), "use-after-poison") << i;
  } else {
    run();
  }
}

TEST(PlantedFaults, AWriteOutOfBoundsIsCaughtAfterTheKernelThatMadeIt) {
  expect_out_of_bounds(5, "kernel write_at: a write past the end of an allocation of 20 bytes");
  expect_out_of_bounds(-1, "kernel write_at: a write before the begin of an allocation of 20 bytes");
}

TEST(PlantedFaults, AWriteInBoundsIsNone) {
  Gpu gpu(Order::forward);
  const test::DeviceMemory five(5 * sizeof(float));
  cuda::launch("write_at", write_at, {1, 1}, gpu.stream(), static_cast<float*>(five.data()), Index{4});
  EXPECT_EQ(fault_of(gpu), "no fault");
}

__global__ void write_shared_at(unsigned i) { cuda::shared_memory<float>()[i] = 1.0F; }

TEST(PlantedFaults, AWritePastTheSharedMemoryIsCaught) {
  const auto run = [] {
    Gpu gpu(Order::forward);
    cuda::launch("write_shared_at", write_shared_at, {1, 1, 4 * sizeof(float)}, gpu.stream(), 4U);
    EXPECT_EQ(fault_of(gpu), "kernel write_shared_at: a write past the shared memory of 16 bytes");
  };
  if (cuda_on_host::kAddressSanitizer) {
    EXPECT_DEATH(run(), "AddressSanitizer");
  } else {
    run();
  }
}

__global__ void read_all(float* out, const float* in) {
  const float* const shared = cuda::shared_memory<float>();
  out[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x + blockDim.x] = shared[threadIdx.x];
}

TEST(PlantedFaults, MemoryThatNobodyWroteReadsAsNan) {
  Gpu gpu(Order::forward);
  const test::DeviceMemory in(kThreads * sizeof(float));
  std::vector<float> out(2 * kThreads, 0.0F);
  for (int blocks = 1; blocks <= 2; ++blocks) {
    cuda::launch("read_all", read_all, {1, kThreads, kThreads * sizeof(float)}, gpu.stream(),
                 static_cast<float*>(gpu.place(out).data), static_cast<const float*>(in.data()));
    gpu.place.finish();
    for (const float x : out) EXPECT_TRUE(std::isnan(x));
  }
}

TEST(PlantedFaults, AKernelThatIsGivenFreedMemoryIsCaught) {
  Gpu gpu(Order::forward);
  {
    const test::DeviceMemory freed(4);
    cuda::launch("write_at", write_at, {1, 1}, gpu.stream(), static_cast<float*>(freed.data()), Index{0});
  }
  EXPECT_EQ(fault_of(gpu), "kernel write_at: it uses device memory that was freed");
}

TEST(PlantedFaults, AWriteThatStraysIntoFreedMemoryIsCaught) {
  const auto run = [] {
    Gpu gpu(Order::forward);
    const test::DeviceMemory live(4);
    auto* const begin = static_cast<float*>(live.data());
    Index away = 0;
    {
      const test::DeviceMemory freed(4);
      away = static_cast<float*>(freed.data()) - begin;
    }
    cuda::launch("write_at", write_at, {1, 1}, gpu.stream(), begin, away);
    EXPECT_EQ(fault_of(gpu), "kernel write_at: a write to freed memory");
  };
  if (cuda_on_host::kAddressSanitizer) {
    EXPECT_DEATH(run(), "use-after-poison");
  } else {
    run();
  }
}

TEST(PlantedFaults, AResultThatIsReadBeforeTheStreamIsDoneIsNotThere) {
  Gpu gpu(Order::forward);
  std::vector<float> v(3, 0.0F);
  gpu.kernels.fill(gpu.place(v), 1.0F);
  EXPECT_EQ(v, std::vector<float>(3, 0.0F));
  gpu.place.finish();
  EXPECT_EQ(v, std::vector<float>(3, 1.0F));
}

TEST(CudaOnHost, RefusesWhatTheRuntimeRefuses) {
  Gpu gpu(Order::forward);
  const test::DeviceMemory memory(8);
  float host[2] = {};
  EXPECT_EQ(cudaMemcpyAsync(host, memory.data(), 9, cudaMemcpyDeviceToHost, gpu.stream()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(memory.data(), host, 8, cudaMemcpyDeviceToDevice, gpu.stream()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host, 0, 8, gpu.stream()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host), cudaErrorInvalidValue);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1025);
  config.stream = gpu.stream();
  EXPECT_EQ(cudaLaunchKernelEx(&config, two_barriers), cudaErrorInvalidConfiguration);
}

TEST(CudaOnHost, EverythingAllocatedIsFreed) {
  const std::size_t before = cuda_on_host::live_allocations();
  {
    Gpu gpu(Order::forward);
    std::vector<float> v(3);
    gpu.kernels.fill(gpu.place(v), 1.0F);
    gpu.place.finish();
    EXPECT_GT(cuda_on_host::live_allocations(), before);
  }
  EXPECT_EQ(cuda_on_host::live_allocations(), before);
}

}  // namespace
}  // namespace zero
