// CUDA on the host honours the order of each stream and its events and nothing else, and catches who relies on more.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/gpu.h"
#include "tests/fakes/cuda_on_host/control.h"

namespace zero {
namespace {

using cuda_on_host::Fault;
using cuda_on_host::Schedule;

constexpr Schedule kSchedules[] = {Schedule::lazy, Schedule::eager_others, Schedule::shuffled};
constexpr Index kSize = 5;
constexpr std::size_t kBytes = kSize * sizeof(float);

void ok(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

__global__ void add_to(float* out, const float* in, float value) { out[threadIdx.x] = in[threadIdx.x] + value; }

/// Two streams and an event; each test begins with nothing queued.
class CudaStreams : public ::testing::Test {
 protected:
  CudaStreams() {
    cuda_on_host::set_schedule(Schedule::lazy);
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  ~CudaStreams() override {
    cuda_on_host::set_schedule(Schedule::lazy);
    for (const cudaStream_t stream : {a(), b()}) {
      try {
        cudaStreamSynchronize(stream);
      } catch (const Fault&) {  // the test's own
      }
    }
    cudaEventDestroy(event);
  }

  [[nodiscard]] cudaStream_t a() const { return first.handle(); }
  [[nodiscard]] cudaStream_t b() const { return second.handle(); }

  /// out = in + value, elementwise.
  static void add(cudaStream_t stream, void* out, const void* in, float value) {
    cuda::launch("add_to", add_to, {1, kSize}, stream, static_cast<float*>(out), static_cast<const float*>(in), value);
  }
  static void zero(cudaStream_t stream, void* memory) { ok(cudaMemsetAsync(memory, 0, kBytes, stream)); }
  static float read(cudaStream_t stream, const void* memory) {
    float value[kSize] = {};
    cuda::read_back(value, memory, kBytes, stream);
    return value[kSize - 1];
  }
  static void* pinned() {
    void* memory = nullptr;
    ok(cudaHostAlloc(&memory, kBytes, cudaHostAllocDefault));
    return memory;
  }
  static void* from_pool(cudaStream_t stream) {
    void* memory = nullptr;
    ok(cudaMallocAsync(&memory, kBytes, stream));
    return memory;
  }
  static std::string fault_of(cudaStream_t stream) {
    try {
      cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "no fault";
  }
  /// Runs what is left, while the memory that it uses is there. Gives `result` back.
  float finish(float result) const {
    EXPECT_EQ(fault_of(a()), "no fault");
    EXPECT_EQ(fault_of(b()), "no fault");
    return result;
  }
  void b_waits_for_a() {
    ok(cudaEventRecord(event, a()));
    ok(cudaStreamWaitEvent(b(), event));
  }

  cuda::Stream first, second;
  cudaEvent_t event = nullptr;
};

TEST_F(CudaStreams, AnEventOrdersTwoStreamsInEverySchedule) {
  for (const Schedule schedule : kSchedules) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      cuda_on_host::set_schedule(schedule);
      cuda_on_host::set_seed(seed);
      const test::DeviceMemory x(kBytes), y(kBytes);
      zero(a(), x.data());
      for (int i = 0; i < 4; ++i) add(a(), x.data(), x.data(), 1.0F);
      b_waits_for_a();
      add(b(), y.data(), x.data(), 10.0F);
      EXPECT_EQ(read(b(), y.data()), 14.0F);
    }
  }
}

TEST_F(CudaStreams, AMissingWaitReadsWhatIsNotThereYet) {
  const test::DeviceMemory x(kBytes), y(kBytes);
  zero(a(), x.data());
  add(b(), y.data(), x.data(), 1.0F);
  EXPECT_TRUE(std::isnan(finish(read(b(), y.data()))));  // lazy: nobody waited for the first stream
}

TEST_F(CudaStreams, AMissingWaitBeforeMemoryIsWrittenAgainReadsWhatComesAfter) {
  const auto reader_before_writer = [&](Schedule schedule) {
    cuda_on_host::set_schedule(schedule);
    const test::DeviceMemory x(kBytes), y(kBytes);
    zero(a(), x.data());
    b_waits_for_a();
    add(b(), y.data(), x.data(), 0.0F);
    add(a(), x.data(), x.data(), 5.0F);  // should wait for the reader
    return finish(read(b(), y.data()));
  };
  EXPECT_EQ(reader_before_writer(Schedule::lazy), 0.0F);
  EXPECT_EQ(reader_before_writer(Schedule::eager_others), 5.0F);
}

TEST_F(CudaStreams, AShuffledScheduleIsDrawnBySeedAndShowsBothOrdersOfARace) {
  cuda_on_host::set_schedule(Schedule::shuffled);
  const auto race = [&](unsigned seed) {
    cuda_on_host::set_seed(seed);
    const test::DeviceMemory x(kBytes), y(kBytes);
    zero(a(), x.data());
    b_waits_for_a();
    add(b(), y.data(), x.data(), 0.0F);
    add(a(), x.data(), x.data(), 5.0F);
    return finish(read(b(), y.data()));
  };
  int early = 0, late = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const float got = race(seed);
    EXPECT_EQ(got, race(seed));
    (got == 0.0F ? early : late) += 1;
  }
  EXPECT_GT(early, 0);
  EXPECT_GT(late, 0);
}

TEST_F(CudaStreams, AWaitIsForTheRecordingBeforeItAndNotForALaterOne) {
  const test::DeviceMemory x(kBytes), y(kBytes);
  zero(a(), x.data());
  b_waits_for_a();
  add(a(), x.data(), x.data(), 1.0F);
  ok(cudaEventRecord(event, a()));
  add(b(), y.data(), x.data(), 0.0F);
  EXPECT_EQ(finish(read(b(), y.data())), 0.0F);
}

TEST_F(CudaStreams, AnEventThatWasNeverRecordedIsDone) {
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(a(), event), cudaSuccess);
  EXPECT_EQ(fault_of(a()), "no fault");
}

TEST_F(CudaStreams, AQueryIsNotReadyBeforeTheWorkAndReadyAfterIt) {
  const test::DeviceMemory x(kBytes);
  EXPECT_EQ(cudaStreamQuery(a()), cudaSuccess);
  zero(a(), x.data());
  ok(cudaEventRecord(event, a()));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(a()), cudaSuccess);
  zero(a(), x.data());
  EXPECT_EQ(cudaStreamQuery(a()), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(a()), cudaSuccess);
  cudaGetLastError();
}

TEST_F(CudaStreams, AnEventIsWaitedForWithoutTheWorkAfterIt) {
  const test::DeviceMemory x(kBytes);
  zero(a(), x.data());
  ok(cudaEventRecord(event, a()));
  zero(a(), x.data());
  const std::uint64_t before = cuda_on_host::counts().work;
  ok(cudaEventSynchronize(event));
  EXPECT_EQ(cuda_on_host::counts().work - before, 2U);
}

TEST_F(CudaStreams, PageableMemoryIsTakenAtTheCallAndPinnedMemoryWhenTheCopyRuns) {
  const test::DeviceMemory x(kBytes), y(kBytes);
  std::vector<float> pageable(kSize, 1.0F);
  auto* const source = static_cast<float*>(pinned());
  std::fill_n(source, kSize, 1.0F);
  ok(cudaMemcpyAsync(x.data(), pageable.data(), kBytes, cudaMemcpyHostToDevice, a()));
  ok(cudaMemcpyAsync(y.data(), source, kBytes, cudaMemcpyDefault, a()));
  std::fill(pageable.begin(), pageable.end(), 2.0F);
  std::fill_n(source, kSize, 2.0F);
  EXPECT_EQ(read(a(), x.data()), 1.0F);
  EXPECT_EQ(read(a(), y.data()), 2.0F);
  ok(cudaFreeHost(source));
}

TEST_F(CudaStreams, ACopyToPageableMemoryIsDoneAtReturnAndOneToPinnedMemoryIsNot) {
  const test::DeviceMemory x(kBytes);
  std::vector<float> pageable(kSize, 1.0F);
  auto* const target = static_cast<float*>(pinned());
  EXPECT_TRUE(std::isnan(target[0]));
  zero(a(), x.data());
  ok(cudaMemcpyAsync(target, x.data(), kBytes, cudaMemcpyDeviceToHost, a()));
  EXPECT_TRUE(std::isnan(target[0]));
  ok(cudaMemcpyAsync(pageable.data(), x.data(), kBytes, cudaMemcpyDefault, a()));
  EXPECT_EQ(pageable[kSize - 1], 0.0F);
  EXPECT_EQ(target[kSize - 1], 0.0F);
  ok(cudaFreeHost(target));
}

TEST_F(CudaStreams, MemoryOfThePoolIsUsedInAnotherStreamOnlyAfterAnEvent) {
  for (const bool wait : {true, false}) {
    void* const x = from_pool(a());
    if (wait) b_waits_for_a();
    zero(b(), x);
    EXPECT_EQ(fault_of(b()), wait ? "no fault"
                                  : "cudaMemsetAsync: it uses device memory before the cudaMallocAsync that it waits "
                                    "for in another stream");
    ok(cudaFreeAsync(x, a()));
    EXPECT_EQ(fault_of(a()), "no fault");
  }
}

TEST_F(CudaStreams, MemoryFreedWhileAnotherStreamUsesItIsCaught) {
  const auto use_and_free = [&](Schedule schedule, bool wait) {
    cuda_on_host::set_schedule(schedule);
    void* const x = from_pool(a());
    const test::DeviceMemory y(kBytes);
    zero(a(), x);
    b_waits_for_a();
    add(b(), y.data(), x, 1.0F);
    if (wait) {
      ok(cudaEventRecord(event, b()));
      ok(cudaStreamWaitEvent(a(), event));
    }
    ok(cudaFreeAsync(x, a()));
    const std::string fault = fault_of(b());
    EXPECT_EQ(fault_of(a()), "no fault");
    return fault;
  };
  EXPECT_EQ(use_and_free(Schedule::eager_others, true), "no fault");
  EXPECT_EQ(use_and_free(Schedule::lazy, true), "no fault");
  EXPECT_EQ(use_and_free(Schedule::eager_others, false), "kernel add_to: it uses device memory that was freed");
}

/// Of a struct with padding: whatever stood there before must not look like an address.
struct Scalars {
  void* pointer;
  float value;
};
__global__ void take_scalars(Scalars) {}

TEST_F(CudaStreams, AStructArgumentIsSearchedForPointersAndItsNumbersAreNoPointers) {
  const test::DeviceMemory x(kBytes);
  for (const float value : {0.0F, 1e-8F, 3e-4F, 0.9F, -1.0F, 65504.0F}) {
    alignas(Scalars) unsigned char room[sizeof(Scalars)];
    void* const old = x.data();
    std::memcpy(room + sizeof(void*), &old, sizeof old);  // its upper half stays, in the padding
    auto* const scalars = reinterpret_cast<Scalars*>(room);
    scalars->pointer = x.data();
    scalars->value = value;
    cuda::launch("take_scalars", take_scalars, {1, 1}, a(), *scalars);
  }
  EXPECT_EQ(fault_of(a()), "no fault");
  void* const freed = from_pool(a());
  ok(cudaFreeAsync(freed, a()));
  cuda::launch("take_scalars", take_scalars, {1, 1}, a(), Scalars{freed, 0.0F});
  EXPECT_EQ(fault_of(a()), "kernel take_scalars: it uses device memory that was freed");
}

TEST_F(CudaStreams, MemoryIsNotHandedOutAgainBeforeItsFreeHasRun) {
  std::vector<void*> freed;
  for (int i = 0; i < 200; ++i) {
    void* const x = from_pool(a());
    EXPECT_EQ(std::find(freed.begin(), freed.end(), x), freed.end());
    freed.push_back(x);
    ok(cudaFreeAsync(x, a()));
  }
  EXPECT_EQ(fault_of(a()), "no fault");
  void* const again = from_pool(b());  // the first of them, watched no longer
  EXPECT_NE(std::find(freed.begin(), freed.end(), again), freed.end());
  EXPECT_TRUE(std::isnan(read(b(), again)));
  ok(cudaFreeAsync(again, b()));
}

TEST_F(CudaStreams, WhatTheHostHasFreedItMayNotUseAgain) {
  void* const x = from_pool(a());
  ok(cudaFreeAsync(x, a()));
  EXPECT_EQ(cudaMemsetAsync(x, 0, kBytes, a()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(x, a()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(x), cudaErrorInvalidValue);
  EXPECT_EQ(fault_of(a()), "no fault");
  cudaGetLastError();
}

TEST_F(CudaStreams, ThePoolCountsItsBytesInUnitsOf512) {
  cudaMemPool_t pool = nullptr;
  ok(cudaDeviceGetDefaultMemPool(&pool, 0));
  const auto attribute = [&](cudaMemPoolAttr which) {
    std::uint64_t value = 0;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool, which, &value), cudaSuccess);
    return value;
  };
  const std::uint64_t before = attribute(cudaMemPoolAttrUsedMemCurrent);
  std::uint64_t none = 0;
  ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &none));
  void* x = nullptr;
  void* y = nullptr;
  ok(cudaMallocAsync(&x, 513, a()));
  ok(cudaMallocAsync(&y, 1, a()));
  EXPECT_EQ(attribute(cudaMemPoolAttrUsedMemCurrent) - before, 1536U);
  ok(cudaFreeAsync(x, a()));
  ok(cudaFreeAsync(y, a()));
  EXPECT_EQ(attribute(cudaMemPoolAttrUsedMemCurrent), before);
  EXPECT_EQ(attribute(cudaMemPoolAttrUsedMemHigh) - before, 1536U);
  EXPECT_EQ(cuda_on_host::used_of_pool().most, attribute(cudaMemPoolAttrUsedMemHigh));
}

TEST_F(CudaStreams, MemoryEndsWhereTheGpusDoes) {
  std::size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  cuda_on_host::set_device_memory(total - free + 1024);
  void* x = nullptr;
  void* y = nullptr;
  EXPECT_EQ(cudaMallocAsync(&x, 1025, a()), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocAsync(&x, 1024, a()), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&y, 1), cudaErrorMemoryAllocation);
  ok(cudaFreeAsync(x, a()));
  cuda_on_host::set_device_memory(total);
  cudaGetLastError();
}

TEST_F(CudaStreams, HostCodeThatTouchesDeviceMemoryEndsTheProgram) {
  const test::DeviceMemory x(kBytes);
  zero(a(), x.data());
  EXPECT_EQ(fault_of(a()), "no fault");
  volatile float* const device = static_cast<float*>(x.data());
  EXPECT_DEATH(static_cast<void>(device[0]), "host code touched device memory at ");
  EXPECT_DEATH(device[0] = 1.0F, "host code touched device memory at ");
}

TEST_F(CudaStreams, AKernelMayWriteToPinnedMemoryButNotPastItsEnd) {
  const auto run = [&](std::size_t bytes) {
    void* memory = nullptr;
    ok(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    const test::DeviceMemory x(kBytes);
    zero(a(), x.data());
    add(a(), memory, x.data(), 1.0F);
    const std::string fault = fault_of(a());
    ok(cudaFreeHost(memory));
    return fault;
  };
  EXPECT_EQ(run(kBytes), "no fault");
  if (cuda_on_host::kAddressSanitizer) {
    EXPECT_DEATH(run(kBytes - 4), "use-after-poison");
  } else {
    EXPECT_EQ(run(kBytes - 4), "kernel add_to: a write past the end of an allocation of 16 bytes");
  }
}

TEST_F(CudaStreams, PinnedMemoryFreedBeforeItsCopyHasRunIsCaught) {
  const test::DeviceMemory x(kBytes);
  void* const source = pinned();
  ok(cudaMemcpyAsync(x.data(), source, kBytes, cudaMemcpyHostToDevice, a()));
  ok(cudaFreeHost(source));
  EXPECT_EQ(fault_of(a()), "cudaMemcpyAsync: it uses pinned memory that was freed");
}

TEST_F(CudaStreams, TheWorkOfADestroyedStreamRunsWhenAnotherWaitsForIt) {
  const test::DeviceMemory x(kBytes);
  cudaStream_t brief = nullptr;
  ok(cudaStreamCreateWithPriority(&brief, cudaStreamNonBlocking, -1));
  zero(brief, x.data());
  ok(cudaEventRecord(event, brief));
  ok(cudaStreamDestroy(brief));
  EXPECT_EQ(cudaStreamSynchronize(brief), cudaErrorInvalidResourceHandle);
  ok(cudaStreamWaitEvent(a(), event));
  EXPECT_EQ(read(a(), x.data()), 0.0F);
  cudaGetLastError();
}

TEST_F(CudaStreams, ASecondThreadIsRefused) {
  std::string fault;
  std::thread([&] { fault = fault_of(a()); }).join();
  EXPECT_EQ(fault, "cudaStreamSynchronize: called from a second thread; this backend calls CUDA from one");
}

TEST(CudaDevices, AreCountedNamedAndChosen) {
  cuda_on_host::set_device_count(3);
  int count = 0, device = -1, major = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 3);
  char one[16] = "", other[16] = "";
  EXPECT_EQ(cudaDeviceGetPCIBusId(one, sizeof one, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetPCIBusId(other, sizeof other, 2), cudaSuccess);
  EXPECT_STREQ(one, "0000:01:00.0");
  EXPECT_STREQ(other, "0000:03:00.0");
  EXPECT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 2), cudaSuccess);
  EXPECT_EQ(major, 9);
  const cuda::Stream of_first;
  EXPECT_EQ(cudaSetDevice(2), cudaSuccess);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 2);
  EXPECT_EQ(cudaStreamSynchronize(of_first.handle()), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  cuda_on_host::set_device_count(0);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  cuda_on_host::set_device_count(1);
  cudaGetLastError();
}

}  // namespace
}  // namespace zero
