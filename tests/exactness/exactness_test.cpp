// The promises, proven at N = this program's number of ranks: every stage in every setting gives the baseline's bits
// after every step, holds the bytes of its formula and sends the bytes of its formula.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

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

struct Variant {
  const char* name;
  std::function<void(RunSetting&)> apply;
};

/// Settings that change the arithmetic (each needs a baseline of its own).
const std::vector<Variant> kArithmetic = {
    {"plain", [](RunSetting&) {}},
    {"clipping off", [](RunSetting& s) { s.clip = 0; }},
    {"always clipping", [](RunSetting& s) { s.clip = 0.01; }},
    {"k=3", [](RunSetting& s) { s.micro_steps = 3; }},
    {"k=4", [](RunSetting& s) { s.micro_steps = 4; }},
    {"local-first k=3", [](RunSetting& s) { s.micro_steps = 3, s.accumulation = Accumulation::local_first; }},
    {"bf16", [](RunSetting& s) { s.dtype = Dtype::bf16; }},
    {"bf16, k=3, always clipping", [](RunSetting& s) { s.dtype = Dtype::bf16, s.micro_steps = 3, s.clip = 0.01; }},
    {"bf16, local-first k=3",
     [](RunSetting& s) { s.dtype = Dtype::bf16, s.micro_steps = 3, s.accumulation = Accumulation::local_first; }},
    {"dropout", [](RunSetting& s) { s.dropout = 0.2; }},
    {"bf16, dropout, checkpointed, k=2",
     [](RunSetting& s) { s.dtype = Dtype::bf16, s.dropout = 0.1, s.checkpoint_activations = true, s.micro_steps = 2; }},
    {"micro-batch 2, k=2", [](RunSetting& s) { s.micro_batch = 2, s.micro_steps = 2; }},
#ifdef ZERO_HAVE_DNNL
    {"library products", [](RunSetting& s) { s.products = ProductKind::library; }},
    {"bf16 library products", [](RunSetting& s) { s.products = ProductKind::library, s.dtype = Dtype::bf16; }},
#endif
};

/// Settings that must not change a bit.
const std::vector<Variant> kLayouts = {
    {"defaults", [](RunSetting&) {}},
    {"messages", [](RunSetting& s) { s.transport = TransportKind::messages; }},
    {"shared, bucket of 1000 bytes", [](RunSetting& s) { s.transport = TransportKind::shared, s.bucket_bytes = 1000; }},
    {"bucket of one element", [](RunSetting& s) { s.bucket_bytes = s.config.width < 64 ? 1 : 65536; }},
    {"bucket larger than the model", [](RunSetting& s) { s.bucket_bytes = Index{1} << 40; }},
    {"wrap 2", [](RunSetting& s) { s.wrap = 2; }},
    {"checkpointed", [](RunSetting& s) { s.checkpoint_activations = true; }},
    {"wrap 3, bucket", [](RunSetting& s) { s.wrap = 3, s.bucket_bytes = 50000; }},
};

/// Settings of stage 3 alone.
const std::vector<Variant> kGathering = {
    {"prefetch 0", [](RunSetting& s) { s.prefetch = 0; }},
    {"prefetch 2", [](RunSetting& s) { s.prefetch = 2; }},
    {"prefetch 100", [](RunSetting& s) { s.prefetch = 100; }},
    {"no reshard", [](RunSetting& s) { s.reshard_after_forward = false; }},
    {"no reshard, prefetch 0, messages, k=3",
     [](RunSetting& s) {
       s.reshard_after_forward = false, s.prefetch = 0, s.transport = TransportKind::messages, s.micro_steps = 3;
     }},
    {"checkpointed, prefetch 2", [](RunSetting& s) { s.checkpoint_activations = true, s.prefetch = 2; }},
    {"bf16, prefetch 0", [](RunSetting& s) { s.dtype = Dtype::bf16, s.prefetch = 0; }},
    {"prefetch 2, wrap 2, bucket", [](RunSetting& s) { s.prefetch = 2, s.wrap = 2, s.bucket_bytes = 3000; }},
};

/// What decides a baseline's bits.
std::string arithmetic_key(const RunSetting& s) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", s.checkpoint_activations && s.products == ProductKind::library,
                     s.dropout, static_cast<int>(s.dtype), s.config.width, s.config.layers, s.steps, s.micro_batch,
                     s.micro_steps, s.clip, static_cast<int>(s.accumulation), static_cast<int>(s.products));
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

/// `arithmetics` meet every one of `layouts`; those beyond meet one layout each, in turn.
void every_stage_keeps_the_promises(const RunSetting& shape, std::size_t arithmetics, std::size_t layouts) {
  for (std::size_t a = 0; a < kArithmetic.size(); ++a) {
    for (std::size_t l = 0; l < kLayouts.size(); ++l) {
      if (a < arithmetics ? l >= layouts : l != a % kLayouts.size()) continue;
      const std::string_view name = kArithmetic[a].name;
      if (a >= arithmetics && name.starts_with("bf16,")) continue;  // the small shape has met them with every layout
      for (const Stage stage : {Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
        RunSetting setting = shape;
        setting.stage = stage;
        kArithmetic[a].apply(setting);
        kLayouts[l].apply(setting);
        const bool whole_gradients = stage == Stage::ddp || stage == Stage::optimizer;
        if (setting.accumulation == Accumulation::local_first && !whole_gradients) continue;  // those stages refuse it
        expect_promises(setting);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  for (const Variant& gathering : kGathering) {
    RunSetting setting = shape;
    setting.stage = Stage::parameters;
    gathering.apply(setting);
    expect_promises(setting);
  }
}

TEST(Exactness, EveryStageGivesTheBaselinesBitsAndHoldsAndSendsItsFormulaOnAnOddShape) {
  every_stage_keeps_the_promises(odd_shape(), kArithmetic.size(), kLayouts.size());
}

// Hybrid sharding: groups that are subtrees of the sum leave every bit as it is.
TEST(Exactness, ShardingGroupsGiveTheBaselinesBitsAndHoldAndSendTheirFormula) {
  for (Index group = 1; group < world(); group *= 2) {
    if (world() % group != 0) continue;
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
      for (const Index micro_steps : {1, 3}) {
        for (const Index bucket : {0, 900}) {
          RunSetting setting = odd_shape();
          setting.stage = Stage::parameters;
          setting.shard_group = group;
          setting.dtype = dtype;
          setting.micro_steps = micro_steps;
          setting.bucket_bytes = bucket;
          setting.transport = bucket == 0 ? TransportKind::automatic : TransportKind::messages;
          expect_promises(setting);
        }
      }
    }
  }
}

TEST(Exactness, EveryStageGivesTheBaselinesBitsAndHoldsAndSendsItsFormulaOnTiny) {
  every_stage_keeps_the_promises(tiny_shape(), 1, kLayouts.size());
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
  if (world() > 1) return;  // a property of the baseline
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
  if ((world() & (world() - 1)) != 0) return;  // other worlds add in an order of their own
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
  if (world() == 1) return;  // with one rank nothing is sharded, and all stages are the same
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
