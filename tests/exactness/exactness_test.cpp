// The promises, proven at N = this program's number of ranks: every stage in every setting gives the baseline's bits
// after every step, holds the bytes of its formula and sends the bytes of its formula.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/exactness/matrix.h"
#include "tests/golden/golden.h"
#include "tests/support/mpi_main.h"
#include "tests/support/stage_run.h"

namespace zero::test {
namespace {

int world() { return testing::world_size(); }
int rank() { return testing::world_rank(); }

RunSetting odd_shape() {  // 4,103 parameters: a remainder on 2, 3, 5 and 7 ranks
  RunSetting setting;
  setting.config = {.layers = 2, .heads = 1, .width = 11, .context = 20, .vocab = 61};
  setting.data = ZERO_TEST_DATA "/bytes_below_61.txt";
  setting.steps = 10;
  setting.world = world();
  return setting;
}

RunSetting tiny_shape() {
  RunSetting setting;
  setting.config = {.layers = 4, .heads = 4, .width = 128, .context = 128, .vocab = 256};
  setting.data = ZERO_TEST_DATA "/../../docs/corpus.txt";
  setting.steps = 3;
  setting.world = world();
  return setting;
}

/// What decides a baseline's bits.
std::string arithmetic_key(const RunSetting& s) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", s.tiles, s.delay_after.value_or(-1),
                     s.checkpoint_activations && s.products == ProductKind::library, s.dropout,
                     static_cast<int>(s.dtype), s.config.width, s.config.layers, s.steps, s.micro_batch, s.micro_steps,
                     s.clip, static_cast<int>(s.accumulation), static_cast<int>(s.products));
}

/// The baseline's record of a setting; computed once, by rank 0, and told to all.
const RunRecord& baseline(const RunSetting& setting) {
  static std::map<std::string, RunRecord> known;
  const auto [found, inserted] = known.try_emplace(arithmetic_key(setting));
  RunRecord& record = found->second;
  if (!inserted) return record;
  RunSetting alone = setting;
  alone.stage = Stage::baseline;
  alone.wrap = 1;
  alone.shard_group = 0;
  alone.optimizer_tier = alone.parameters_tier = Tier::device;
  record.steps.resize(static_cast<std::size_t>(setting.steps));
  if (rank() == 0) {
    record = run(alone, MPI_COMM_SELF);
    EXPECT_EQ(differences(record, expected(alone)), "") << alone.describe();
  }
  MPI_Bcast(record.steps.data(), static_cast<int>(record.steps.size() * sizeof(StepRecord)), MPI_BYTE, 0,
            MPI_COMM_WORLD);
  return record;
}

void expect_promises(const RunSetting& setting) {
  const RunRecord& reference = baseline(setting);
  const RunRecord record = run(setting, MPI_COMM_WORLD);
  ASSERT_EQ(record.steps.size(), reference.steps.size());
  for (std::size_t t = 0; t < record.steps.size(); ++t) {
    const auto& [loss, norm, verdict, digests] = record.steps[t];
    EXPECT_EQ(std::memcmp(&loss, &reference.steps[t].loss, sizeof loss), 0)
        << setting.describe() << ", step " << t + 1 << ": loss " << loss << ", baseline " << reference.steps[t].loss;
    EXPECT_EQ(std::memcmp(&norm, &reference.steps[t].norm, sizeof norm), 0)
        << setting.describe() << ", step " << t + 1 << ": norm " << norm << ", baseline " << reference.steps[t].norm;
    EXPECT_EQ(verdict, reference.steps[t].verdict) << setting.describe() << ", step " << t + 1;
    for (std::size_t k = 0; k < kStateKinds; ++k) {
      ASSERT_EQ(to_hex(digests[k]), to_hex(reference.steps[t].digests[k]))
          << setting.describe() << ", step " << t + 1 << ": " << name(static_cast<StateKind>(k));
    }
  }
  EXPECT_EQ(differences(record, expected(setting)), "") << setting.describe() << ", rank " << rank();
}

/// The rows of the matrix for this number of ranks, each against its baseline.
void matrix_keeps_the_promises(const RunSetting& shape, std::size_t strength) {
  std::vector<std::size_t> counts;
  for (const Factor& factor : matrix_factors()) counts.push_back(factor.values.size());
  const std::vector<Row> rows = covering_array(counts, strength, matrix_together);
  int ran = 0;
  for (const Row& row : rows) {
    const RunSetting setting = matrix_setting(row, shape);
    if (setting.world != world()) continue;
    if (rank() == 0) fmt::print("{}\n", matrix_names(row));
    expect_promises(setting);
    int failed = ::testing::Test::HasFailure() ? 1 : 0;  // a rank that went on alone would wait for the others
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (failed != 0) return;
    ++ran;
  }
  if (rank() == 0) {
    fmt::print("{} of the {} settings that meet every {} values of the options\n", ran, rows.size(), strength);
  }
}

TEST(Exactness, TheMatrixGivesTheBaselinesBitsAndHoldsAndSendsItsFormulaOnAnOddShape) {
  matrix_keeps_the_promises(odd_shape(), 3);
}

TEST(Exactness, TheMatrixGivesTheBaselinesBitsAndHoldsAndSendsItsFormulaOnTiny) {
  matrix_keeps_the_promises(tiny_shape(), 2);
}

// The table of the ZeRO papers: figure 1 and section 5 (bf16), and what becomes of it in fp32.
TEST(Exactness, TheModelStatesHeldAreThePapersBytes) {
  const Index N = world();
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
    RunSetting setting = odd_shape();
    setting.dtype = dtype;
    setting.steps = 1;
    Index psi = 0;  // padded
    for (const FlatUnit& unit : model_units(setting.config, setting.wrap, N)) psi += unit.size();
    const bool mixed = dtype == Dtype::bf16;
    const std::map<Stage, Index> states = {
        {Stage::ddp, 16 * psi},
        {Stage::optimizer, mixed ? 4 * psi + 12 * psi / N : 8 * psi + 8 * psi / N},
        {Stage::gradients, mixed ? 2 * psi + 14 * psi / N : 4 * psi + 12 * psi / N},
        {Stage::parameters, 16 * psi / N},
    };
    for (const auto& [stage, bytes] : states) {
      setting.stage = stage;
      const RunRecord record = run(setting, MPI_COMM_WORLD);
      Index held = 0;
      for (const auto& [category, count] : record.held_after) held += count;
      EXPECT_EQ(held, bytes) << setting.describe();
    }
  }
}

// Shapes that broke other systems: few elements for many ranks, widths that leave remainders, deep models whose tied
// embedding is reduced in many small buckets.
TEST(Exactness, ShapesThatBrokeOtherSystemsKeepThePromises) {
  const std::vector<ModelConfig> shapes = {
      {.layers = 1, .heads = 1, .width = 2, .context = 3, .vocab = 61},
      {.layers = 2, .heads = 2, .width = 4, .context = 7, .vocab = 61},
      {.layers = 2, .heads = 5, .width = 35, .context = 7, .vocab = 61},
      {.layers = 2, .heads = 3, .width = 36, .context = 7, .vocab = 61},
      {.layers = 40, .heads = 1, .width = 4, .context = 5, .vocab = 61},
  };
  for (const ModelConfig& shape : shapes) {
    for (const Stage stage : {Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
      RunSetting setting = odd_shape();
      setting.config = shape;
      setting.steps = 2;
      setting.stage = stage;
      setting.bucket_bytes = 700;
      expect_promises(setting);
    }
  }
}

// Cutting the same sequences into other micro-batches is another computation, but of the same mathematics.
TEST(Exactness, MicroBatchesOfOtherSizesGiveTheSameLossesUpToRounding) {
  if (world() > 1) GTEST_SKIP() << "a property of the baseline, tried with one rank";
  RunSetting setting = odd_shape();
  setting.world = 1;
  setting.micro_batch = 12;
  const std::vector<StepRecord> whole = run(setting, MPI_COMM_SELF).steps;
  for (const Index micro_steps : {2, 3, 12}) {
    setting.micro_batch = 12 / micro_steps;
    setting.micro_steps = micro_steps;
    const std::vector<StepRecord> cut = run(setting, MPI_COMM_SELF).steps;
    for (std::size_t t = 0; t < whole.size(); ++t) {
      EXPECT_NEAR(cut[t].loss, whole[t].loss, 1e-5 * whole[t].loss) << setting.describe() << ", step " << t + 1;
      EXPECT_NEAR(cut[t].norm, whole[t].norm, 1e-3 * whole[t].norm) << setting.describe() << ", step " << t + 1;
    }
  }
}

// Tiles cut outputs, so that the forward pass keeps its bits; the input's gradient is added in another order.
TEST(Exactness, TilesKeepTheForwardPassAndTheGradientUpToRounding) {
  if (world() > 1) GTEST_SKIP() << "a property of the baseline, tried with one rank";
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    RunSetting setting = odd_shape();
    setting.steps = 1;
    setting.dtype = dtype;
    const StepRecord whole = run(setting, MPI_COMM_SELF).steps[0];
    for (const Index tiles : {2, 3, 11}) {
      setting.tiles = tiles;
      const StepRecord cut = run(setting, MPI_COMM_SELF).steps[0];
      EXPECT_EQ(cut.loss, whole.loss) << setting.describe();
      EXPECT_NEAR(cut.norm, whole.norm, (dtype == Dtype::fp32 ? 1e-5 : 1e-2) * whole.norm) << setting.describe();
    }
  }
}

TEST(Exactness, MoreRanksThanElementsInMostTensorsWorks) {
  RunSetting setting = odd_shape();
  setting.config = {.layers = 1, .heads = 1, .width = 1, .context = 1, .vocab = 61};
  setting.steps = 3;
  for (const Stage stage : {Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
    setting.stage = stage;
    expect_promises(setting);
  }
}

// At a fixed global batch the result does not depend on a power-of-two number of ranks, in any stage.
TEST(Exactness, PowersOfTwoRanksGiveTheGoldenDigestsInEveryStage) {
  if ((world() & (world() - 1)) != 0) GTEST_SKIP() << "other numbers of ranks add in an order of their own";
  for (const Golden& golden : golden_runs()) {
    for (const Stage stage : {Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
      RunSetting setting = golden.setting;
      setting.stage = stage;
      setting.world = world();
      setting.micro_steps = golden.setting.micro_steps / world();
      const std::string line = golden_line(golden.name, run(setting, MPI_COMM_WORLD).steps.back());
      const std::vector<std::string> lines = golden_lines();
      EXPECT_NE(std::find(lines.begin(), lines.end(), line), lines.end())
          << setting.describe() << ": not in tests/golden/golden.txt: " << line;
    }
  }
}

// An unsharded program that claims to be stage 1, 2 or 3 has the right bits; its bytes give it away.
TEST(Exactness, AnUnshardedProgramDressedAsAStageIsFoundOut) {
  if (world() == 1) GTEST_SKIP() << "with one rank nothing is sharded, and all stages are the same";
  RunSetting setting = odd_shape();
  setting.stage = Stage::ddp;
  setting.steps = 2;
  const RunRecord unsharded = run(setting, MPI_COMM_WORLD);
  const std::map<Stage, std::vector<std::string>> gives_away = {
      {Stage::optimizer, {"optimizer: ", "parameters: formula"}},
      {Stage::gradients, {"gradients: ", "optimizer: ", "gradient_in_flight: "}},
      {Stage::parameters, {"parameters: ", "gradients: ", "optimizer: ", "gathered: "}},
  };
  for (const auto& [stage, words] : gives_away) {
    setting.stage = stage;
    const std::string found = differences(unsharded, expected(setting));
    for (const std::string& word : words)
      EXPECT_NE(found.find(word), std::string::npos) << name(stage) << ": " << found;
  }
}

}  // namespace
}  // namespace zero::test
