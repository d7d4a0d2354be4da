// A value that is not finite, planted on one rank, is seen by all ranks in the same step, which none of them takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/train/digests.h"
#include "tests/support/mpi_main.h"
#include "tests/support/poisoned_device.h"
#include "tests/support/stage_run.h"

namespace zero::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Index kWidth = 11, kContext = 20;
constexpr ProductShape kQkvActivation{kContext, 3 * kWidth, kWidth};   // the first is block 0's
constexpr ProductShape kExpandGradient{4 * kWidth, kWidth, kContext};  // the first is the last block's
constexpr ProductShape kTokenTableGradient{61, kWidth, kContext};      // of the tied embedding

RunSetting setting(Stage stage, Dtype dtype) {
  RunSetting setting;
  setting.config = {.layers = 2, .heads = 1, .width = kWidth, .context = kContext, .vocab = 61};
  setting.data = ZERO_TEST_DATA "/bytes_below_61.txt";
  setting.steps = 3;
  setting.world = testing::world_size();
  setting.stage = stage;
  setting.dtype = dtype;
  return setting;
}

std::array<Digest, kStateKinds> digests(Run& run) {
  return digest_state(run.trainer(), run.context().device, run.context().comm, run.context().group);
}

/// The step that meets the poison: what every rank says of it, after checking that all say the same, that it changed
/// nothing and that the next step is what it would have been without this one.
StepResult poisoned_step(const RunSetting& setting, ProductShape where, float value, int rank) {
  Poison poison{where, value};
  Run run(setting, MPI_COMM_WORLD, make_poisoned_device(testing::world_rank() == rank ? &poison : nullptr));
  Run healthy(setting, MPI_COMM_WORLD);
  const auto before = digests(run);
  const StepResult result = run.trainer().train_step(1);
  EXPECT_EQ(poison.spent, testing::world_rank() == rank) << setting.describe();
  EXPECT_EQ(result.verdict, Verdict::not_finite) << setting.describe();
  EXPECT_EQ(digests(run), before) << setting.describe() << ": a step that is not finite changed the state";

  const std::string said = fmt::format("{} {} {}", result.loss, result.norm.value, result.not_finite);
  std::vector<char> rank0(4096, '\0');
  std::copy(said.begin(), said.end(), rank0.begin());
  MPI_Bcast(rank0.data(), static_cast<int>(rank0.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  EXPECT_EQ(said, std::string(rank0.data())) << setting.describe() << ": ranks judge the step differently";

  const StepResult next = run.trainer().train_step(2);
  const StepResult expected = healthy.trainer().train_step(2);
  EXPECT_EQ(next.loss, expected.loss) << setting.describe();
  EXPECT_EQ(next.norm.value, expected.norm.value) << setting.describe();
  EXPECT_EQ(digests(run), digests(healthy)) << setting.describe();
  return result;
}

template <typename Check>
void in_every_stage(const Check& check) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    for (const Stage stage : {Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
      for (const int rank : {0, testing::world_size() - 1}) check(setting(stage, dtype), rank);
    }
    for (const Tier tier : {Tier::host, Tier::nvme}) {
      for (const Index wrap : {1, 2}) {  // the gradient that was not applied is overwritten, in as many chunks as there
                                         // are buffers of the swap file and in fewer
        RunSetting offload = setting(Stage::parameters, dtype);
        offload.optimizer_tier = offload.parameters_tier = tier;
        offload.wrap = wrap;
        check(offload, testing::world_size() - 1);
      }
    }
  }
}

TEST(NotFinite, ANaNInOneGradientOnOneRankIsNamedByAllRanks) {
  in_every_stage([](const RunSetting& setting, int rank) {
    const StepResult result = poisoned_step(setting, kExpandGradient, kNaN, rank);
    EXPECT_TRUE(std::isfinite(result.loss)) << setting.describe();
    EXPECT_TRUE(std::isnan(result.norm.value)) << setting.describe();
    EXPECT_EQ(result.not_finite, "the gradient of block 1 mlp.expand.weight") << setting.describe();
  });
}

// R044: an infinite norm stays infinite, since nothing multiplies it by zero.
TEST(NotFinite, AnInfinityInOneGradientOnOneRankGivesAnInfiniteNorm) {
  in_every_stage([](const RunSetting& setting, int rank) {
    const StepResult result = poisoned_step(setting, kTokenTableGradient, -kInfinity, rank);
    EXPECT_TRUE(std::isfinite(result.loss)) << setting.describe();
    EXPECT_EQ(result.norm.value, std::numeric_limits<double>::infinity()) << setting.describe();
    EXPECT_EQ(result.not_finite, "the gradient of embedding.token.weight") << setting.describe();
  });
}

TEST(NotFinite, AnInfinityInOneActivationOnOneRankStopsTheStepOnAllRanks) {
  in_every_stage([](const RunSetting& setting, int rank) {
    const StepResult result = poisoned_step(setting, kQkvActivation, kInfinity, rank);
    EXPECT_FALSE(std::isfinite(result.norm.value)) << setting.describe();
  });
}

}  // namespace
}  // namespace zero::test
