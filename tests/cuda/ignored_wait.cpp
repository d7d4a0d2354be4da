// A stage on pretended GPUs in which one wait for an event is left out on every rank:
// ignored_wait STAGE OPTIMIZER PARAMETERS STEPS MICRO_STEPS WAIT. With WAIT -1 prints how many waits there are. Else
// status 3 when the fault shows (in the results, or as a fault of the work on the GPU), 0 when nothing shows it.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <exception>

#include "common/comm/process.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/support/stage_run.h"

namespace {

using zero::test::RunRecord;
using zero::test::RunSetting;

constexpr int kCaught = 3;

bool same(const RunRecord& a, const RunRecord& b) {
  return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(), [](const auto& x, const auto& y) {
    return x.loss == y.loss && x.norm == y.norm && x.digests == y.digests;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const zero::MpiProcess process(argc, argv);
  if (argc != 7) return 1;
  RunSetting setting;
  setting.config = {.layers = 3, .heads = 1, .width = 4, .context = 3, .vocab = 61};
  setting.data = ZERO_TEST_DATA "/bytes_below_61.txt";
  setting.steps = std::atoi(argv[4]);
  setting.micro_steps = std::atoi(argv[5]);
  setting.world = process.size();
  setting.stage = static_cast<zero::test::Stage>(std::atoi(argv[1]));
  setting.optimizer_tier = static_cast<zero::Tier>(std::atoi(argv[2]));
  setting.parameters_tier = static_cast<zero::Tier>(std::atoi(argv[3]));
  const int wait = std::atoi(argv[6]);
  const RunRecord right = zero::test::run(setting, MPI_COMM_WORLD);
  setting.gpu = true;
  cuda_on_host::set_device_count(process.size());
  if (wait >= 0) cuda_on_host::ignore_wait(static_cast<std::uint64_t>(wait));
  try {
    const bool equal = same(right, zero::test::run(setting, MPI_COMM_WORLD));
    if (wait < 0 && process.rank() == 0) fmt::print("{}\n", cuda_on_host::waits());
    int all_equal = equal ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &all_equal, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all_equal == 1) return 0;
    if (process.rank() == 0) fmt::print("caught: other bits\n");
    return kCaught;
  } catch (const std::exception& error) {
    fmt::print("caught: {}\n", error.what());
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, kCaught);
  }
}
