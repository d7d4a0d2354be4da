// How NCCL's transport fails: a sentence, on time, whatever the host waits for.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "tests/comm/comm_data.h"
#include "tests/cuda/gpu_bytes.h"
#include "tests/fakes/nccl_over_mpi/control.h"

namespace zero::testing {
namespace {

/// What making NCCL's transport throws.
std::string failure_of_making() {
  const auto device = gpu_of(world_size());
  try {
    make_transport(MPI_COMM_WORLD, TransportKind::nccl, *device, kTimeout, 4096);
    return "nothing was thrown";
  } catch (const ResourceFailure& error) {
    return error.what();
  }
}

TEST(Nccl, ThatDoesNotStartIsTheSameSentenceOnAllRanks) {
  nccl_over_mpi::fail_next("ncclCommInitRank", ncclUnhandledCudaError);
  EXPECT_EQ(failure_of_making(),
            "ncclCommInitRank failed: unhandled cuda error (run with NCCL_DEBUG=INFO for details) "
            "(ncclUnhandledCudaError); ncclCommInitRank fails because a test wants it to");
  if (world_rank() == 0) nccl_over_mpi::fail_next("ncclGetUniqueId", ncclSystemError);
  EXPECT_EQ(failure_of_making().rfind("rank 0: ncclGetUniqueId failed: ", 0), 0U);
  nccl_over_mpi::fail_next("ncclGroupEnd", ncclInternalError);
  const std::string first = "the first exchange of NCCL: on rank 0 ncclGroupEnd failed: ";
  const std::string said = failure_of_making();
  EXPECT_EQ(said.rfind("rank 0: " + first, 0), 0U) << said;
}

/// What an exchange, and a host that waits for it, throw on rank 0, where `plan` says what goes wrong; or the first of
/// `exchanges` that nobody waits for. Rank `absent` does not come in time. Whoever has not failed leaves what it shares
/// with rank 0 alone, as rank 0 does.
template <class Plan>
void expect_failure(const std::string& sentence, int absent, Plan plan, int exchanges = 1) {
  static auto& left_transports = *new std::vector<Transport*>;
  static auto& left_devices = *new std::vector<CudaDevice*>;
  auto device = gpu_of(world_size());
  auto transport = make_transport(MPI_COMM_WORLD, TransportKind::nccl, *device, 0.5, 4096);
  bool failed = false;
  if (world_rank() == absent) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  } else {
    const auto start = std::chrono::steady_clock::now();
    if (world_rank() == 0) plan();
    const OnGpu block(*device, Bytes(100));
    try {
      const OnQueue queue(*device, Queue::communication);
      for (int i = 0; i < (world_rank() == 0 ? exchanges : 1); ++i) {
        transport->exchange_same(
            block.view(), [](std::span<const ConstBytes>) {}, "all_gather of parameters");
      }
      if (world_rank() != 0 || exchanges == 1) device->synchronize(device->mark());
      EXPECT_NE(world_rank(), 0) << "nothing was thrown";
    } catch (const ResourceFailure& failure) {
      failed = true;
      if (world_rank() == 0) {
        EXPECT_EQ(failure.what(), sentence);
      }
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
  if (failed) {
    transport.reset();  // waits for nobody
    device.reset();
  } else {
    left_transports.push_back(transport.release());
    left_devices.push_back(device.release());
  }
  nccl_over_mpi::set_async_error(ncclSuccess);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Nccl, ThatHangsIsAbortedAndNamedAfterTheTimeout) {
  expect_failure("all_gather of parameters: on rank 0 NCCL made no progress within --timeout 0.5 seconds", -1,
                 [] { nccl_over_mpi::hang_next(); });
}

TEST(Nccl, ThatHangsIsNoticedByAHostThatOnlyQueues) {
  expect_failure(
      "all_gather of parameters: on rank 0 NCCL made no progress within --timeout 0.5 seconds", -1,
      [] { nccl_over_mpi::hang_next(); }, 100);
}

TEST(Nccl, WithoutARankThatNeverComesIsAbortedAndNamedAfterTheTimeout) {
  expect_failure("all_gather of parameters: on rank 0 NCCL made no progress within --timeout 0.5 seconds",
                 world_size() - 1, [] {});
}

TEST(Nccl, WithAnAsynchronousErrorIsAbortedAndSaysIt) {
  expect_failure(
      "all_gather of parameters: on rank 0 NCCL reports: remote process exited or there was a network error "
      "(ncclRemoteError)",
      -1, [] {
        nccl_over_mpi::hang_next();
        nccl_over_mpi::set_async_error(ncclRemoteError);
      });
}

TEST(Nccl, ThatRefusesACallSaysWhichAndInWhichCollective) {
  expect_failure(
      "all_gather of parameters: on rank 0 ncclSend failed: invalid usage (run with NCCL_DEBUG=WARN for details) "
      "(ncclInvalidUsage); ncclSend fails because a test wants it to",
      -1, [] { nccl_over_mpi::fail_next("ncclSend", ncclInvalidUsage); });
}

}  // namespace
}  // namespace zero::testing
