// Slices of several chunks, and slices whose sizes stand around the limits of blocks and chunks: the baseline's bits,
// and the bytes of the formula.

#include "offload/slices.h"
#include "tests/offload/promises.h"

namespace zero::test {
namespace {

const std::vector<Places> kEverywhere = {{Tier::host, Tier::device, 1}, {Tier::host, Tier::device, 3},
                                         {Tier::host, Tier::host, 3},   {Tier::host, Tier::nvme, 1},
                                         {Tier::nvme, Tier::device, 3}, {Tier::nvme, Tier::nvme, 1}};

TEST(Slices, OfSeveralChunksKeepThePromises) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    RunSetting setting = offloaded({.layers = 3, .heads = 2, .width = 160, .context = 8, .vocab = 61});
    setting.wrap = 3;  // 927,360 elements in a unit: several chunks on three ranks, too
    setting.dtype = dtype;
    const std::vector<StepRecord> reference = baseline_steps(setting);
    for (const Places& places : kEverywhere) expect_promises(with(setting, places), reference);
  }
}

TEST(Slices, OfSeveralChunksKeepThePromisesWithReadsAheadAndMicroSteps) {
  RunSetting setting = offloaded({.layers = 3, .heads = 2, .width = 160, .context = 8, .vocab = 61});
  setting.micro_steps = 3;
  const std::vector<StepRecord> reference = baseline_steps(setting);
  for (const Index prefetch : {0, 1, 2, 100}) {
    for (const bool reshard : {true, false}) {
      RunSetting one = with(setting, {Tier::nvme, Tier::nvme});
      one.prefetch = prefetch;
      one.reshard_after_forward = reshard;
      expect_promises(one, reference);
    }
  }
}

/// A model whose embedding unit has slices of `elements`, a multiple of 32: with width 32 every row of every tensor of
/// that unit is 32 elements.
RunSetting with_embedding_slice(Index elements) {
  const Index rows = elements / 32 * testing::world_size(), context = 8, norm = 2;
  return offloaded({.layers = 1, .heads = 1, .width = 32, .context = context, .vocab = rows - context - norm});
}

TEST(Slices, OfSizesAroundBlocksAndChunksKeepThePromises) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    for (const Index limit : {3 * kBlockBytes / size_of(dtype), offload::kChunkElements}) {
      for (const Index more : {-32, 0, 32}) {
        RunSetting setting = with_embedding_slice(limit + more);
        setting.dtype = dtype;
        ASSERT_EQ(model_units(setting.config, 1, setting.world)[0].slice_size(), limit + more);
        const std::vector<StepRecord> reference = baseline_steps(setting);
        for (const Places& places : {Places{Tier::host, Tier::host, 3}, Places{Tier::nvme, Tier::device, 1},
                                     Places{Tier::nvme, Tier::nvme, 1}}) {
          expect_promises(with(setting, places), reference);
        }
      }
    }
  }
}

}  // namespace
}  // namespace zero::test
