#pragma once
/// \file
/// A run of the offload trainers held against the unsharded baseline and against its formula.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/mpi_main.h"
#include "tests/support/stage_run.h"

namespace zero::test {

/// A setting on all ranks of this program, with the optimizer in host memory.
inline RunSetting offloaded(const ModelConfig& config) {
  RunSetting setting;
  setting.stage = Stage::parameters;
  setting.config = config;
  setting.data = ZERO_TEST_DATA "/bytes_below_61.txt";
  setting.steps = 2;
  setting.world = testing::world_size();
  setting.optimizer_tier = Tier::host;
  return setting;
}

/// What the baseline records of the setting, computed by rank 0 and told to all.
inline std::vector<StepRecord> baseline_steps(const RunSetting& setting) {
  RunSetting alone = setting;
  alone.stage = Stage::baseline;
  alone.wrap = 1;
  alone.optimizer_tier = alone.parameters_tier = Tier::device;
  std::vector<StepRecord> steps(static_cast<std::size_t>(setting.steps));
  if (testing::world_rank() == 0) steps = run(alone, MPI_COMM_SELF).steps;
  MPI_Bcast(steps.data(), static_cast<int>(steps.size() * sizeof(StepRecord)), MPI_BYTE, 0, MPI_COMM_WORLD);
  return steps;
}

/// The run has these bits after every step, and holds, sends and moves the bytes of its formula.
inline void expect_promises(const RunSetting& setting, const std::vector<StepRecord>& reference) {
  const RunRecord record = run(setting, MPI_COMM_WORLD);
  for (std::size_t t = 0; t < reference.size(); ++t) {
    EXPECT_EQ(record.steps[t], reference[t]) << setting.describe() << ", step " << t + 1;
  }
  EXPECT_EQ(differences(record, expected(setting)), "") << setting.describe() << ", rank " << testing::world_rank();
}

/// A setting's places, threads and type, for the loops of tests.
struct Places {
  Tier optimizer;
  Tier parameters;
  int threads = 1;
};

inline RunSetting with(RunSetting setting, const Places& places) {
  setting.stage = places.parameters == Tier::device ? Stage::gradients : Stage::parameters;
  setting.optimizer_tier = places.optimizer;
  setting.parameters_tier = places.parameters;
  setting.offload_threads = places.threads;
  return setting;
}

}  // namespace zero::test
