// NCCL over MPI moves and adds what NCCL does, for any ranks of the job, and catches who touches buffers in between.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "common/device/scalar_math.h"
#include "tests/cuda/gpu.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/fakes/nccl_over_mpi/control.h"
#include "tests/support/mpi_main.h"

namespace zero {
namespace {

using cuda_on_host::Fault;
using cuda_on_host::Schedule;
using testing::world_rank;
using testing::world_size;

void ok(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }
void ok(ncclResult_t result) {
  ASSERT_EQ(result, ncclSuccess) << ncclGetErrorString(result) << ": " << ncclGetLastError(nullptr);
}

/// A communicator of some ranks of the world; made and destroyed by all of them.
class Comm {
 public:
  /// `ranks` of the world, this one among them; the id is made by the one at `maker`.
  explicit Comm(std::vector<int> ranks, std::size_t maker = 0) {
    size = static_cast<int>(ranks.size());
    rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), world_rank()) - ranks.begin());
    ncclUniqueId id = {};
    if (ranks[maker] == world_rank()) {
      ok(ncclGetUniqueId(&id));
      for (const int r : ranks) {
        if (r != world_rank()) MPI_Send(&id, sizeof id, MPI_BYTE, r, 7, MPI_COMM_WORLD);
      }
    } else {
      MPI_Recv(&id, sizeof id, MPI_BYTE, ranks[maker], 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    result = ncclCommInitRank(&handle, size, id, rank);
  }
  ~Comm() { EXPECT_EQ(ncclCommDestroy(handle), ncclSuccess); }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  ncclComm_t handle = nullptr;
  ncclResult_t result = ncclSuccess;
  int rank = 0, size = 0;
};

std::vector<int> all_ranks() {
  std::vector<int> ranks(static_cast<std::size_t>(world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Each rank has a GPU of its own, a stream for computing and one for communication.
class NcclFake : public ::testing::Test {
 protected:
  NcclFake() {
    cuda_on_host::set_schedule(Schedule::lazy);
    cuda_on_host::set_device_count(world_size());
    ok(cudaSetDevice(world_rank()));
    streams = std::make_unique<Streams>();
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  ~NcclFake() override {
    cuda_on_host::set_schedule(Schedule::lazy);
    cudaEventDestroy(event);
  }

  struct Streams {
    cuda::Stream compute, comm;
  };
  [[nodiscard]] cudaStream_t compute() const { return streams->compute.handle(); }
  [[nodiscard]] cudaStream_t stream() const { return streams->comm.handle(); }

  template <class T>
  void upload(const test::DeviceMemory& to, const std::vector<T>& values) const {
    ok(cudaMemcpyAsync(to.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, compute()));
  }
  template <class T = float>
  std::vector<T> read(const test::DeviceMemory& from, std::size_t n, cudaStream_t by) const {
    std::vector<T> values(n);
    cuda::read_back(values.data(), from.data(), n * sizeof(T), by);
    return values;
  }
  void then(cudaStream_t before, cudaStream_t after) const {
    ok(cudaEventRecord(event, before));
    ok(cudaStreamWaitEvent(after, event));
  }
  static std::string fault_of(cudaStream_t stream) {
    try {
      cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "no fault";
  }
  /// Element i of rank r: whole numbers, so that sums are exact in any order.
  static std::vector<float> values_of(int rank, std::size_t n) {
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(100 * rank) + static_cast<float>(i);
    return values;
  }

  std::unique_ptr<Streams> streams;
  cudaEvent_t event = nullptr;
};

constexpr std::size_t kEach = 3;
constexpr std::size_t kEachBytes = kEach * sizeof(float);

TEST_F(NcclFake, CollectivesOfAllRanksInEverySchedule) {
  const Comm comm(all_ranks(), static_cast<std::size_t>(world_size() - 1));
  ok(comm.result);
  const auto n = static_cast<std::size_t>(comm.size);
  for (const Schedule schedule : {Schedule::lazy, Schedule::eager_others, Schedule::shuffled}) {
    cuda_on_host::set_schedule(schedule);
    const test::DeviceMemory mine(kEachBytes), all(n * kEachBytes), scattered(kEachBytes);
    upload(mine, values_of(comm.rank, kEach));
    then(compute(), stream());
    ok(ncclAllGather(mine.data(), all.data(), kEach, ncclFloat32, comm.handle, stream()));
    ok(ncclReduceScatter(all.data(), scattered.data(), kEach, ncclFloat32, ncclSum, comm.handle, stream()));
    ok(ncclAllReduce(mine.data(), mine.data(), kEach, ncclFloat32, ncclSum, comm.handle, stream()));
    then(stream(), compute());
    const std::vector<float> gathered = read(all, n * kEach, compute());
    const std::vector<float> summed = read(scattered, kEach, compute()), reduced = read(mine, kEach, compute());
    for (std::size_t i = 0; i < kEach; ++i) {
      float sum = 0;
      for (int r = 0; r < comm.size; ++r) {
        EXPECT_EQ(gathered[static_cast<std::size_t>(r) * kEach + i], values_of(r, kEach)[i]);
        sum += values_of(r, kEach)[i];
      }
      EXPECT_EQ(reduced[i], sum);
      EXPECT_EQ(summed[i], static_cast<float>(comm.size) * values_of(comm.rank, kEach)[i]);
    }
  }
}

TEST_F(NcclFake, SumsOfBf16RoundAtEachHopAndBytesWrap) {
  const Comm comm(all_ranks());
  ok(comm.result);
  const test::DeviceMemory bytes(2), halves(2 * sizeof(Bf16));
  upload(bytes, std::vector<unsigned char>{200, 1});
  // 256 + 1 is 256 in bf16 (even): rounded at each hop, nothing is ever added.
  upload(halves, std::vector<Bf16>{from_float<Bf16>(comm.rank == 0 ? 256.0F : 1.0F), from_float<Bf16>(0.5F)});
  then(compute(), stream());
  ok(ncclGroupStart());
  ok(ncclAllReduce(bytes.data(), bytes.data(), 2, ncclUint8, ncclSum, comm.handle, stream()));
  ok(ncclAllReduce(halves.data(), halves.data(), 2, ncclBfloat16, ncclSum, comm.handle, stream()));
  ok(ncclGroupEnd());
  const auto sums = read<unsigned char>(bytes, 2, stream());
  EXPECT_EQ(sums[0], static_cast<unsigned char>(200 * comm.size));
  EXPECT_EQ(sums[1], comm.size);
  const auto rounded = read<Bf16>(halves, 2, stream());
  EXPECT_EQ(to_float(rounded[0]), 256.0F);
  EXPECT_EQ(to_float(rounded[1]), 0.5F * static_cast<float>(comm.size));
}

TEST_F(NcclFake, GroupedMessagesGoAllWaysAtOnceInPlaceAndToOneself) {
  const Comm comm(all_ranks());
  ok(comm.result);
  const auto n = static_cast<std::size_t>(comm.size);
  const test::DeviceMemory from(n * kEachBytes), to(n * kEachBytes);
  upload(from, values_of(comm.rank, n * kEach));
  then(compute(), stream());
  ok(ncclGroupStart());
  for (int r = 0; r < comm.size; ++r) {
    const auto at = static_cast<std::size_t>(r) * kEach;
    ok(ncclSend(static_cast<const float*>(from.data()) + at, kEach, ncclFloat32, r, comm.handle, stream()));
    ok(ncclRecv(static_cast<float*>(to.data()) + at, kEach, ncclFloat32, r, comm.handle, stream()));
  }
  ok(ncclGroupEnd());
  const std::vector<float> got = read(to, n * kEach, stream());
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < kEach; ++i) {
      EXPECT_EQ(got[r * kEach + i],
                values_of(static_cast<int>(r), n * kEach)[static_cast<std::size_t>(comm.rank) * kEach + i]);
    }
  }
}

TEST_F(NcclFake, SomeRanksFormACommunicatorWhileOthersFormAnother) {
  std::vector<int> mine;
  for (int r = world_size() - 1; r >= 0; --r) {  // ranks of a communicator need not rise
    if (r % 2 == world_rank() % 2) mine.push_back(r);
  }
  const Comm comm(mine, mine.size() - 1);
  ok(comm.result);
  const test::DeviceMemory one(sizeof(float));
  upload(one, std::vector<float>{static_cast<float>(world_rank())});
  then(compute(), stream());
  ok(ncclAllReduce(one.data(), one.data(), 1, ncclFloat32, ncclSum, comm.handle, stream()));
  EXPECT_EQ(read(one, 1, stream())[0], static_cast<float>(std::accumulate(mine.begin(), mine.end(), 0)));
}

TEST_F(NcclFake, TwoRanksOnOneGpuAreRefusedInAllRanks) {
  ok(cudaSetDevice(world_rank() == world_size() - 1 ? 0 : world_rank()));
  const Comm comm(all_ranks());
  EXPECT_EQ(comm.result, ncclInvalidUsage);
  EXPECT_EQ(comm.handle, nullptr);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU detected : rank 0 and rank "),
            std::string::npos);
  ok(cudaSetDevice(world_rank()));
}

TEST_F(NcclFake, AConsumerThatDoesNotWaitReadsPoison) {
  const Comm comm(all_ranks());
  ok(comm.result);
  const auto n = static_cast<std::size_t>(comm.size);
  const test::DeviceMemory mine(kEachBytes), all(n * kEachBytes);
  upload(mine, values_of(comm.rank, kEach));
  upload(all, std::vector<float>(n * kEach, 1.0F));
  then(compute(), stream());
  ok(ncclAllGather(mine.data(), all.data(), kEach, ncclFloat32, comm.handle, stream()));
  for (const float x : read(all, n * kEach, compute())) EXPECT_TRUE(std::isnan(x));
  EXPECT_EQ(fault_of(stream()), "no fault");
}

TEST_F(NcclFake, ABufferThatIsTouchedBeforeTheCollectiveEndsIsCaught) {
  const Comm comm(all_ranks());
  ok(comm.result);
  const auto reduce_scatter = [&](auto touch) {
    const auto n = static_cast<std::size_t>(comm.size);
    test::DeviceMemory to(kEachBytes);
    void* from = nullptr;
    ok(cudaMallocAsync(&from, n * kEachBytes, compute()));
    ok(cudaMemsetAsync(from, 0, n * kEachBytes, compute()));
    then(compute(), stream());
    ok(ncclReduceScatter(from, to.data(), kEach, ncclFloat32, ncclSum, comm.handle, stream()));
    touch(from, to.data());
    EXPECT_EQ(fault_of(compute()), "no fault");
    const std::string fault = fault_of(stream());
    cudaFreeAsync(from, compute());
    return fault;
  };
  EXPECT_EQ(reduce_scatter([](void*, void*) {}), "no fault");
  EXPECT_EQ(reduce_scatter([&](void* from, void*) { ok(cudaFreeAsync(from, compute())); }),
            "ncclReduceScatter before it ended: it uses device memory that was freed");
  EXPECT_EQ(reduce_scatter([&](void* from, void*) { ok(cudaMemsetAsync(from, 1, 4, compute())); }),
            "ncclReduceScatter: what it sends was written before it ended");
  EXPECT_EQ(reduce_scatter([&](void*, void* to) { ok(cudaMemsetAsync(to, 1, 4, compute())); }),
            "ncclReduceScatter: where it receives was written before it ended");
  EXPECT_EQ(reduce_scatter([&](void* from, void*) {
              then(stream(), compute());
              ok(cudaFreeAsync(from, compute()));
            }),
            "no fault");
}

TEST_F(NcclFake, RanksThatCallDifferentThingsAreFound) {
  const Comm comm(all_ranks());
  ok(comm.result);
  if (comm.size == 1) return;
  const test::DeviceMemory from(8 * kEachBytes), to(8 * kEachBytes);
  ok(cudaMemsetAsync(from.data(), 0, 8 * kEachBytes, stream()));
  if (comm.rank == 0) {
    ok(ncclAllGather(from.data(), to.data(), kEach, ncclFloat32, comm.handle, stream()));
  } else {
    ok(ncclAllReduce(from.data(), to.data(), kEach, ncclFloat32, ncclSum, comm.handle, stream()));
  }
  EXPECT_NE(fault_of(stream()).find(": the ranks do not agree: "), std::string::npos);
}

TEST_F(NcclFake, HostMemoryAndUnknownTypesAreRefused) {
  const Comm comm(all_ranks());
  ok(comm.result);
  float host = 0;
  const test::DeviceMemory one(sizeof(float));
  EXPECT_EQ(ncclAllReduce(&host, one.data(), 1, ncclFloat32, ncclSum, comm.handle, stream()), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(one.data(), one.data(), 2, ncclFloat32, ncclSum, comm.handle, stream()), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(one.data(), one.data(), 1, ncclInt8, ncclSum, comm.handle, stream()), ncclInvalidArgument);
  ok(ncclGroupStart());
  EXPECT_EQ(ncclSend(&host, 1, ncclFloat32, 0, comm.handle, stream()), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

TEST_F(NcclFake, ACollectiveThatHangsIsNeverReadyUntilItIsAborted) {
  Comm comm(all_ranks());
  ok(comm.result);
  const test::DeviceMemory one(sizeof(float));
  ok(cudaMemsetAsync(one.data(), 0, sizeof(float), stream()));
  nccl_over_mpi::hang_next();
  ok(ncclAllReduce(one.data(), one.data(), 1, ncclFloat32, ncclSum, comm.handle, stream()));
  ok(ncclAllReduce(one.data(), one.data(), 1, ncclFloat32, ncclSum, comm.handle, stream()));  // behind it
  for (int i = 0; i < 5; ++i) EXPECT_EQ(cudaStreamQuery(stream()), cudaErrorNotReady);
  EXPECT_EQ(fault_of(stream()), "cudaStreamSynchronize would wait forever for ncclAllReduce");
  then(stream(), compute());
  EXPECT_EQ(fault_of(compute()), "cudaStreamSynchronize would wait forever for ncclAllReduce");
  ok(ncclCommAbort(comm.handle));
  comm.handle = nullptr;
  EXPECT_EQ(fault_of(compute()), "no fault");
  cudaGetLastError();
}

TEST_F(NcclFake, FailuresThatATestAsksForAreReported) {
  const Comm comm(all_ranks());
  ok(comm.result);
  const test::DeviceMemory one(sizeof(float));
  nccl_over_mpi::fail_next("ncclAllReduce", ncclSystemError);
  EXPECT_EQ(ncclAllReduce(one.data(), one.data(), 1, ncclFloat32, ncclSum, comm.handle, stream()), ncclSystemError);
  ncclResult_t error = ncclInternalError;
  ok(ncclCommGetAsyncError(comm.handle, &error));
  EXPECT_EQ(error, ncclSuccess);
  nccl_over_mpi::set_async_error(ncclRemoteError);
  ok(ncclCommGetAsyncError(comm.handle, &error));
  EXPECT_EQ(error, ncclRemoteError);
  nccl_over_mpi::set_async_error(ncclSuccess);
}

TEST_F(NcclFake, BytesToOtherRanksAreCounted) {
  const Comm comm(all_ranks());
  ok(comm.result);
  const auto n = static_cast<std::size_t>(comm.size);
  const test::DeviceMemory mine(kEachBytes), all(n * kEachBytes);
  const nccl_over_mpi::Counts before = nccl_over_mpi::counts();
  ok(ncclAllGather(mine.data(), all.data(), kEach, ncclFloat32, comm.handle, stream()));
  EXPECT_EQ(nccl_over_mpi::counts().operations - before.operations, 1U);
  EXPECT_EQ(nccl_over_mpi::counts().bytes_sent - before.bytes_sent, (n - 1) * kEachBytes);
  EXPECT_EQ(fault_of(stream()), "no fault");
}

}  // namespace
}  // namespace zero
