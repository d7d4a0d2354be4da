// An evaluation between two steps leaves no trace: neither in the bits of the next steps nor in what they move.

#include <array>

#include "common/train/digests.h"
#include "tests/offload/promises.h"

namespace zero::test {
namespace {

/// What a step did.
struct Seen {
  StepRecord record;
  Transfers moved;
  Index sent = 0;
};

/// The steps of a run that evaluates `evaluations` times after each.
std::vector<Seen> steps_with(const RunSetting& setting, int evaluations) {
  Run run(setting, MPI_COMM_WORLD);
  Context& context = run.context();
  std::vector<Seen> seen;
  for (Index t = 1; t <= setting.steps; ++t) {
    run.groups().clear_traffic();
    context.device.clear_transfers();
    const StepResult result = run.trainer().train_step(t);
    Seen step;
    step.moved = context.device.transfers();
    step.sent = run.groups().traffic(Purpose::parameters).sent;
    step.record = {result.loss, result.norm.value, result.verdict,
                   digest_state(run.trainer(), context.device, context.comm, context.group)};
    seen.push_back(step);
    for (int i = 0; i < evaluations; ++i) run.trainer().evaluate(context.sampler, 7 * t + i);
    EXPECT_EQ(context.device.ledger().current(Tier::device, Category::gathered), 0) << setting.describe();
  }
  return seen;
}

void expect_no_trace(const RunSetting& setting) {
  const std::vector<Seen> without = steps_with(setting, 0);
  for (const int evaluations : {1, 2}) {
    const std::vector<Seen> with = steps_with(setting, evaluations);
    for (std::size_t t = 0; t < without.size(); ++t) {
      EXPECT_EQ(with[t].record, without[t].record) << setting.describe() << ", step " << t + 1;
      EXPECT_EQ(with[t].sent, without[t].sent) << setting.describe() << ", step " << t + 1;
      const auto all = [](const Transfers& moved) {
        return std::array{moved.down, moved.up, moved.read, moved.written};
      };
      EXPECT_EQ(all(with[t].moved), all(without[t].moved)) << setting.describe() << ", step " << t + 1;
    }
  }
}

RunSetting small(const Places& places) {
  RunSetting setting = with(offloaded({.layers = 3, .heads = 1, .width = 11, .context = 20, .vocab = 61}), places);
  setting.steps = 4;
  setting.micro_steps = 2;
  return setting;
}

TEST(Evaluation, BetweenStepsLeavesNoTraceWhereverTheParametersLive) {
  for (const Tier optimizer : {Tier::host, Tier::nvme}) {
    for (const Tier parameters : {Tier::device, Tier::host, Tier::nvme}) {
      for (const Index prefetch : {0, 1, 2, 100}) {
        if (parameters == Tier::device && prefetch > 0) continue;  // stage 2 gathers nothing
        RunSetting setting = small({optimizer, parameters});
        setting.prefetch = prefetch;
        expect_no_trace(setting);
      }
    }
  }
}

TEST(Evaluation, BetweenStepsLeavesNoTraceWhereUnitsStayGathered) {
  for (const Index prefetch : {0, 2}) {
    RunSetting setting = small({Tier::nvme, Tier::nvme});
    setting.reshard_after_forward = false;
    setting.prefetch = prefetch;
    setting.dropout = 0.25;
    expect_no_trace(setting);
  }
}

TEST(Evaluation, WhileAnUpdateIsPutOffLeavesNoTrace) {
  for (const Tier parameters : {Tier::device, Tier::host, Tier::nvme}) {
    RunSetting setting = small({Tier::host, parameters});
    setting.delay_after = 1;
    expect_no_trace(setting);
  }
}

}  // namespace
}  // namespace zero::test
