// NCCL with one rank, which any GPU has: its collectives leave what they are given. That it starts, takes our streams
// and events and ends is what this shows; more ranks need as many GPUs.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/comm/cuda/nccl_comm.h"
#include "common/device/cuda/cuda_device.h"

namespace zero {
namespace {

constexpr Index kSize = 100003;
constexpr std::size_t kFloats = kSize, kBytes = sizeof(float) * kFloats;

class NcclOfOneRank : public ::testing::Test {
 protected:
  NcclOfOneRank() {
    ncclUniqueId id = {};
    cuda::check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    nccl_ = std::make_unique<cuda::NcclComm>(id, 1, 0);
    numbers_.resize(kFloats);
    std::iota(numbers_.begin(), numbers_.end(), -50000.0F);
    from_ = device_.allocate(Category::workspace, kSize);
    to_ = device_.allocate(Category::workspace, kSize);
    device_.upload(from_.array(), numbers_.data());
  }

  /// Queues calls of NCCL as one group beside computing, which waits for them; what is then in to_.
  template <class Calls>
  std::vector<float> after(Calls calls) {
    device_.kernels().fill(to_.array(), -1.0F);
    {
      const OnQueue queue(device_, Queue::communication);
      cuda::check(ncclGroupStart(), "ncclGroupStart");
      calls(nccl_->get(), device_.stream());
      cuda::check(ncclGroupEnd(), "ncclGroupEnd");
      const Mark done = device_.mark();
      const OnQueue compute(device_, Queue::compute);
      device_.wait(done);
    }
    std::vector<float> result(kFloats);
    device_.download(result.data(), to_.array());
    EXPECT_EQ(nccl_->asynchronous_error(), ncclSuccess);
    return result;
  }

  CudaDevice device_{ProductKind::canonical, 0};
  std::unique_ptr<cuda::NcclComm> nccl_;
  std::vector<float> numbers_;
  Buffer from_, to_;
};

TEST_F(NcclOfOneRank, ReduceScatterIsTheIdentity) {
  EXPECT_EQ(after([&](ncclComm_t nccl, cudaStream_t stream) {
              cuda::check(
                  ncclReduceScatter(from_.array().data, to_.array().data, kFloats, ncclFloat, ncclSum, nccl, stream),
                  "ncclReduceScatter");
            }),
            numbers_);
}

TEST_F(NcclOfOneRank, AllGatherIsTheIdentity) {
  EXPECT_EQ(after([&](ncclComm_t nccl, cudaStream_t stream) {
              cuda::check(ncclAllGather(from_.array().data, to_.array().data, kBytes, ncclUint8, nccl, stream),
                          "ncclAllGather");
            }),
            numbers_);
}

TEST_F(NcclOfOneRank, ASendToItselfIsReceived) {
  EXPECT_EQ(after([&](ncclComm_t nccl, cudaStream_t stream) {
              cuda::check(ncclSend(from_.array().data, kBytes, ncclUint8, 0, nccl, stream), "ncclSend");
              cuda::check(ncclRecv(to_.array().data, kBytes, ncclUint8, 0, nccl, stream), "ncclRecv");
            }),
            numbers_);
}

TEST_F(NcclOfOneRank, AbortsWithoutWaitingAndLeavesTheGpuUsable) {
  after([&](ncclComm_t nccl, cudaStream_t stream) {
    cuda::check(ncclAllGather(from_.array().data, to_.array().data, kBytes, ncclUint8, nccl, stream), "ncclAllGather");
  });
  nccl_->abort();
  EXPECT_EQ(nccl_->get(), nullptr);
  std::vector<float> result(kFloats);
  device_.download(result.data(), from_.array());
  EXPECT_EQ(result, numbers_);
}

}  // namespace
}  // namespace zero
