// The ledger's bytes beside those that the allocator of the GPU counts for itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/device/cuda/cuda_device.h"
#include "tests/support/stage_run.h"

namespace zero::test {
namespace {

/// What the pool makes a multiple of (cuda_device.h).
constexpr Index kGranule = 512;

Index rounded_up(Index bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

cudaMemPool_t pool_of(const CudaDevice& device) {
  cudaMemPool_t pool = nullptr;
  cuda::check(cudaDeviceGetDefaultMemPool(&pool, device.ordinal()), "cudaDeviceGetDefaultMemPool");
  return pool;
}

Index count(const CudaDevice& device, cudaMemPoolAttr which) {
  std::uint64_t bytes = 0;
  cuda::check(cudaMemPoolGetAttribute(pool_of(device), which, &bytes), "cudaMemPoolGetAttribute");
  return static_cast<Index>(bytes);
}

/// Bytes in use when all that was queued on Queue::compute is done; memory comes and goes there.
Index used(CudaDevice& device) {
  device.synchronize(device.mark());
  return count(device, cudaMemPoolAttrUsedMemCurrent);
}

TEST(GpuMemory, IsBookedToTheByteAndAllocatedToTheNextMultipleOf512) {
  CudaDevice device(ProductKind::canonical, 0);
  const Index before = used(device), booked_before = device.ledger().current(Tier::device);
  std::vector<Buffer> buffers;
  Index booked = 0, allocated = 0;
  for (const Index elements : {1, 127, 128, 129, 1000, 4096, 1 << 20, 12345677}) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
      buffers.push_back(device.allocate(Category::activations, elements, dtype));
      booked += elements * size_of(dtype);
      allocated += rounded_up(elements * size_of(dtype));
      EXPECT_EQ(device.ledger().current(Tier::device) - booked_before, booked);
      // Whether a smaller granule is enough is the driver's business.
      EXPECT_GE(used(device) - before, booked) << "after " << elements << " elements";
      EXPECT_LE(used(device) - before, allocated) << "after " << elements << " elements";
    }
  }
  fmt::print("{} bytes booked, {} in use, {} by multiples of {}\n", booked, used(device) - before, allocated, kGranule);
  buffers.clear();
  EXPECT_EQ(used(device), before);
  EXPECT_EQ(device.ledger().current(Tier::device), booked_before);
}

TEST(GpuMemory, OfEveryStageIsWhatTheLedgerHolds) {
  constexpr Index kMostBlocks = 300;  // of these small models, each rounded up
  RunSetting setting;
  setting.config = {.layers = 2, .heads = 2, .width = 64, .context = 32, .vocab = 256};
  setting.data = ZERO_TEST_DATA "/bytes_below_61.txt";
  setting.steps = 3;
  setting.micro_batch = 2;
  setting.gpu = true;
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    for (const Tier tier : {Tier::device, Tier::host}) {
      for (const Stage stage : {Stage::baseline, Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
        if (tier == Tier::host && stage < Stage::gradients) continue;  // offload is of stages 2 and 3
        setting.stage = stage;
        setting.dtype = dtype;
        setting.optimizer_tier = tier;
        setting.parameters_tier = stage == Stage::parameters ? tier : Tier::device;
        SCOPED_TRACE(setting.describe());
        auto made = std::make_unique<CudaDevice>(ProductKind::library, 0);
        CudaDevice& device = *made;
        std::uint64_t zero = 0;
        cuda::check(cudaMemPoolSetAttribute(pool_of(device), cudaMemPoolAttrUsedMemHigh, &zero),
                    "cudaMemPoolSetAttribute");
        test::Run training(setting, MPI_COMM_SELF, std::move(made));
        const MemoryLedger& ledger = device.ledger();
        Index in_use = 0;
        for (Index t = 1; t <= setting.steps; ++t) {
          training.trainer().train_step(t);
          in_use = used(device);
          EXPECT_GE(in_use, ledger.current(Tier::device)) << "step " << t;
          EXPECT_LE(in_use, ledger.current(Tier::device) + kMostBlocks * (kGranule - 1)) << "step " << t;
        }
        const Index most = count(device, cudaMemPoolAttrUsedMemHigh);
        EXPECT_GE(most, ledger.peak(Tier::device));
        fmt::print("{}: {} bytes booked, {} in use; at most {} booked, {} in use\n", setting.describe(),
                   ledger.current(Tier::device), in_use, ledger.peak(Tier::device), most);
      }
    }
  }
}

}  // namespace
}  // namespace zero::test
