// The promises on the CUDA backend at N = this program's number of ranks: in every stage, with offload and without, the
// bits of the CPU's baseline and of its own, the bytes held and sent that the formulas say. On the host streams run in
// every order that events allow, and NCCL goes over MPI; on GPUs the same program runs as it is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/cuda/adversary.h"
#include "tests/exactness/matrix.h"
#include "tests/golden/golden.h"
#include "tests/support/mpi_main.h"
#include "tests/support/stage_run.h"

namespace zero::test {
namespace {

int world() { return testing::world_size(); }
int rank() { return testing::world_rank(); }

RunSetting shape() {
  RunSetting setting;
  setting.config = {.layers = 2, .heads = 2, .width = 6, .context = 9, .vocab = 61};
  setting.data = ZERO_TEST_DATA "/bytes_below_61.txt";
  setting.steps = 3;
  setting.world = world();
  return setting;
}

/// What decides a baseline's bits.
std::string arithmetic_key(const RunSetting& s) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", s.gpu, s.tiles, s.delay_after.value_or(-1), s.dropout,
                     static_cast<int>(s.dtype), s.micro_batch, s.micro_steps, s.clip, static_cast<int>(s.accumulation),
                     static_cast<int>(s.products)) +
         (s.checkpoint_activations && s.products == ProductKind::library ? " recomputed" : "");
}

/// The baseline's record of a setting on one backend; computed once, by rank 0, and told to all.
const std::vector<StepRecord>& baseline(RunSetting setting, bool gpu) {
  static std::map<std::string, std::vector<StepRecord>> known;
  setting.gpu = gpu;
  const auto [found, inserted] = known.try_emplace(arithmetic_key(setting));
  std::vector<StepRecord>& steps = found->second;
  if (!inserted) return steps;
  setting.stage = Stage::baseline;
  setting.wrap = 1;
  setting.shard_group = 0;
  setting.transport = TransportKind::automatic;
  setting.optimizer_tier = setting.parameters_tier = Tier::device;
  steps.resize(static_cast<std::size_t>(setting.steps));
  if (rank() == 0) {
    const RunRecord record = run(setting, MPI_COMM_SELF);
    EXPECT_EQ(differences(record, expected(setting)), "") << setting.describe();
    steps = record.steps;
  }
  MPI_Bcast(steps.data(), static_cast<int>(steps.size() * sizeof(StepRecord)), MPI_BYTE, 0, MPI_COMM_WORLD);
  return steps;
}

void expect_same(const std::vector<StepRecord>& got, const std::vector<StepRecord>& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t t = 0; t < got.size(); ++t) {
    EXPECT_EQ(std::memcmp(&got[t].loss, &wanted[t].loss, sizeof got[t].loss), 0)
        << what << ", step " << t + 1 << ": loss " << got[t].loss << " and " << wanted[t].loss;
    EXPECT_EQ(std::memcmp(&got[t].norm, &wanted[t].norm, sizeof got[t].norm), 0)
        << what << ", step " << t + 1 << ": norm " << got[t].norm << " and " << wanted[t].norm;
    for (std::size_t k = 0; k < kStateKinds; ++k) {
      ASSERT_EQ(to_hex(got[t].digests[k]), to_hex(wanted[t].digests[k]))
          << what << ", step " << t + 1 << ": " << name(static_cast<StateKind>(k));
    }
  }
}

/// Whether library products have the CPU's bits: those of the fake do.
bool library_is_the_cpus() { return adversaries() > 1; }

void expect_promises(RunSetting setting) {
  setting.gpu = true;
  const RunRecord record = run(setting, MPI_COMM_WORLD);
  const std::string what = setting.describe();
  expect_same(record.steps, baseline(setting, true), what + ", beside its own baseline");
  if (setting.products == ProductKind::canonical || library_is_the_cpus()) {
    expect_same(record.steps, baseline(setting, false), what + ", beside the CPU's baseline");
  }
  EXPECT_EQ(differences(record, expected(setting)), "") << what << ", rank " << rank();
}

/// Whether a rank has failed: one that went on alone would wait for the others.
bool any_failed() {
  int failed = ::testing::Test::HasFailure() ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return failed != 0;
}

TEST(StagesOnGpus, TheMatrixGivesTheBaselinesBitsAndHoldsAndSendsItsFormula) {
  std::vector<std::size_t> counts;
  for (const Factor& factor : matrix_factors()) counts.push_back(factor.values.size());
  std::size_t ran = 0;
  for (const Row& row : covering_array(counts, 2, matrix_together)) {
    const RunSetting setting = matrix_setting(row, shape());
    if (setting.world != world()) continue;
    pretend_gpus(ran % 4 == 3 ? 1 : world());  // now and then all ranks share a GPU
    const std::string adversary = choose_adversary(ran);
    if (rank() == 0) fmt::print("{}; {}\n", matrix_names(row), adversary);
    expect_promises(setting);
    if (any_failed()) return;
    ++ran;
  }
  if (rank() == 0) fmt::print("{} settings that meet every 2 values of the options at N = {}\n", ran, world());
}

TEST(StagesOnGpus, EveryStageKeepsThePromisesInEveryOrder) {
  for (std::size_t a = 0; a < adversaries(); ++a) {
    for (const bool shared_gpu : {false, true}) {
      if (shared_gpu && world() == 1) continue;
      if (!pretend_gpus(shared_gpu ? 1 : world()) && shared_gpu) continue;
      const std::string adversary = choose_adversary(a);
      for (const Stage stage : {Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
        SCOPED_TRACE(adversary);
        RunSetting setting = shape();
        setting.stage = stage;
        setting.steps = 2;
        setting.micro_steps = 2;
        setting.dtype = shared_gpu ? Dtype::bf16 : Dtype::fp32;
        expect_promises(setting);
        if (any_failed()) return;
        if (stage != Stage::parameters) continue;
        setting.optimizer_tier = setting.parameters_tier = Tier::host;
        expect_promises(setting);
        setting.optimizer_tier = setting.parameters_tier = Tier::nvme;
        expect_promises(setting);
        if (any_failed()) return;
      }
    }
  }
}

// What every student gets on a CPU. On the host the larger run is left to GPUs.
TEST(StagesOnGpus, PowersOfTwoRanksGiveTheGoldenDigests) {
  if ((world() & (world() - 1)) != 0) GTEST_SKIP() << "other numbers of ranks add in an order of their own";
  pretend_gpus(world());
  const std::vector<std::string> lines = golden_lines();
  for (const Golden& golden : golden_runs()) {
    if (adversaries() > 1 && golden.setting.config.width > 16) continue;
    for (const Stage stage : {Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
      choose_adversary(static_cast<std::size_t>(stage));
      RunSetting setting = golden.setting;
      setting.gpu = true;
      setting.stage = stage;
      setting.world = world();
      setting.micro_steps = golden.setting.micro_steps / world();
      const std::string line = golden_line(golden.name, run(setting, MPI_COMM_WORLD).steps.back());
      EXPECT_NE(std::find(lines.begin(), lines.end(), line), lines.end())
          << setting.describe() << ": not in tests/golden/golden.txt: " << line;
    }
  }
}

TEST(StagesOnGpus, RingGivesOneResultInEveryStage) {
  pretend_gpus(world());
  std::vector<StepRecord> first;
  for (const Stage stage : {Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
    choose_adversary(static_cast<std::size_t>(stage));
    RunSetting setting = shape();
    setting.gpu = true;
    setting.stage = stage;
    setting.collectives = CollectiveKind::ring;
    const RunRecord record = run(setting, MPI_COMM_WORLD);
    EXPECT_EQ(differences(record, expected(setting)), "") << setting.describe();
    setting.gpu = false;
    expect_same(record.steps, run(setting, MPI_COMM_WORLD).steps, setting.describe() + " beside the CPU's ring");
    if (first.empty()) first = record.steps;
    expect_same(record.steps, first, setting.describe() + " beside stage 0");
    if (any_failed()) return;
  }
}

}  // namespace
}  // namespace zero::test
