#include "tests/support/stage_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "common/base/error.h"
#include "common/train/digests.h"
#include "stage0_ddp/baseline.h"
#include "stage0_ddp/formula.h"
#include "stage0_ddp/trainer.h"
#include "stage1_optimizer/formula.h"
#include "stage1_optimizer/trainer.h"
#include "stage2_gradients/formula.h"
#include "stage2_gradients/trainer.h"
#include "stage3_params/formula.h"
#include "stage3_params/trainer.h"

namespace zero::test {
namespace {

constexpr double kTimeout = 60;

std::unique_ptr<Trainer> make_trainer(Stage stage, const Context& context) {
  switch (stage) {
    case Stage::baseline: return std::make_unique<stage0_ddp::Baseline>(context);
    case Stage::ddp: return std::make_unique<stage0_ddp::Trainer>(context);
    case Stage::optimizer: return std::make_unique<stage1_optimizer::Trainer>(context);
    case Stage::gradients: return std::make_unique<stage2_gradients::Trainer>(context);
    case Stage::parameters: return std::make_unique<stage3_params::Trainer>(context);
  }
  return nullptr;
}

std::map<std::string, formula::Sent> sent(const RankGroups& comm) {
  std::map<std::string, formula::Sent> sent;
  for (const Purpose purpose : {Purpose::gradients, Purpose::gradients_across, Purpose::parameters, Purpose::scalars}) {
    const Traffic traffic = comm.traffic(purpose);
    if (traffic.sent > 0) sent[std::string(name(purpose))] = {traffic.collective, traffic.sent, traffic.calls};
  }
  return sent;
}

bool same(const formula::Sent& a, const formula::Sent& b) {
  return a.collective == b.collective && a.bytes == b.bytes && a.calls == b.calls;
}

}  // namespace

std::string name(Stage stage) {
  switch (stage) {
    case Stage::baseline: return "baseline";
    case Stage::ddp: return "stage 0";
    case Stage::optimizer: return "stage 1";
    case Stage::gradients: return "stage 2";
    case Stage::parameters: return "stage 3";
  }
  return "";
}

std::string RunSetting::describe() const {
  std::string text = fmt::format("{} N={} width={} layers={}", name(stage), world, config.width, config.layers);
  const auto note = [&text](bool differs, const std::string& what) {
    if (differs) text += " " + what;
  };
  note(micro_steps != 1, fmt::format("k={}", micro_steps));
  note(clip != 1, fmt::format("clip={}", clip));
  note(accumulation == Accumulation::local_first, "local-first");
  note(wrap != 1, fmt::format("wrap={}", wrap));
  note(bucket_bytes != 0, fmt::format("bucket={}", bucket_bytes));
  note(dtype == Dtype::bf16, "bf16");
  note(checkpoint_activations, "checkpointed");
  note(dropout > 0, fmt::format("dropout={}", dropout));
  note(shard_group != 0, fmt::format("shard group={}", shard_group));
  note(prefetch != 1, fmt::format("prefetch={}", prefetch));
  note(!reshard_after_forward, "no reshard");
  note(products == ProductKind::library, "library products");
  note(collectives == CollectiveKind::ring, "ring");
  note(collectives == CollectiveKind::native, "native");
  note(transport == TransportKind::messages, "messages");
  note(transport == TransportKind::shared, "shared");
  return text;
}

Run::Run(const RunSetting& setting, MPI_Comm ranks, std::unique_ptr<Device> device)
    : device_(device ? std::move(device) : make_cpu_device(setting.products, 1)) {
  const bool alone = setting.stage == Stage::baseline;
  GroupSetting groups;
  groups.shard_group = setting.shard_group;
  groups.collectives = setting.collectives;
  groups.transport = setting.transport;
  groups.timeout_seconds = kTimeout;
  groups.dtype = setting.dtype;
  groups.bucket_bytes = setting.bucket_bytes;
  const Index slices = alone ? 1 : setting.shard_group == 0 ? setting.world : setting.shard_group;
  groups_ = std::make_unique<RankGroups>(alone ? MPI_COMM_SELF : ranks, groups,
                                         model_units(setting.config, setting.wrap, slices), *device_);
  file_ = std::make_unique<TokenFile>(setting.data, setting.config.context, setting.config.vocab);
  sampler_ = std::make_unique<Sampler>(*file_, setting.config.context, 1);
  context_ = std::make_unique<Context>(Context{.device = *device_,
                                               .comm = groups_->world(),
                                               .group = groups_->group(),
                                               .across = groups_->across(),
                                               .sampler = *sampler_,
                                               .timers = timers_,
                                               .config = setting.config,
                                               .model = {.dtype = setting.dtype,
                                                         .checkpoint_activations = setting.checkpoint_activations,
                                                         .dropout = setting.dropout}});
  context_->optimizer.clip = setting.clip;
  context_->optimizer.learning_rate = setting.learning_rate;
  context_->optimizer.steps = setting.steps;
  context_->micro_batch = setting.micro_batch;
  context_->micro_steps = setting.micro_steps;
  context_->world = setting.world;
  context_->accumulation = setting.accumulation;
  context_->wrap = setting.wrap;
  context_->bucket_bytes = setting.bucket_bytes;
  context_->prefetch = setting.prefetch;
  context_->reshard_after_forward = setting.reshard_after_forward;
  trainer_ = make_trainer(setting.stage, *context_);
}

RunRecord run(const RunSetting& setting, MPI_Comm ranks) {
  Run run(setting, ranks);
  RunRecord record;
  for (Index t = 1; t <= setting.steps; ++t) {
    run.groups().clear_traffic();
    const StepResult result = run.trainer().train_step(t);
    const auto this_step = sent(run.groups());
    if (t > 1 &&
        !std::equal(this_step.begin(), this_step.end(), record.sent.begin(), record.sent.end(),
                    [](const auto& a, const auto& b) { return a.first == b.first && same(a.second, b.second); })) {
      throw ResultFailure(fmt::format("step {} sent other bytes than the step before", t));
    }
    record.sent = this_step;
    record.steps.push_back(
        {result.loss, result.norm.value, result.verdict,
         digest_state(run.trainer(), run.context().device.kernels(), run.context().comm, run.context().group)});
  }
  const MemoryLedger& ledger = run.context().device.ledger();
  for (int c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    const Index peak = ledger.peak(Tier::device, category);
    if (peak > 0) record.held_peak[std::string(name(category))] = peak;
    if (category <= Category::optimizer) {
      record.held_after[std::string(name(category))] = ledger.current(Tier::device, category);
    }
  }
  return record;
}

formula::Formula expected(const RunSetting& setting) {
  formula::Setting s;
  s.layers = setting.config.layers;
  s.heads = setting.config.heads;
  s.width = setting.config.width;
  s.context = setting.config.context;
  s.vocab = setting.config.vocab;
  s.micro_batch = setting.micro_batch;
  s.world = setting.world;
  s.micro_steps = setting.micro_steps;
  s.local_first = setting.accumulation == Accumulation::local_first;
  s.wrap = setting.wrap;
  s.bucket = setting.bucket_bytes;
  s.bf16 = setting.dtype == Dtype::bf16;
  s.checkpoint_activations = setting.checkpoint_activations;
  s.dropout = setting.dropout > 0;
  s.shard_group = setting.shard_group;
  s.ring = setting.collectives == CollectiveKind::ring;
  s.native = setting.collectives == CollectiveKind::native;
  s.library_products = setting.products == ProductKind::library;
  s.prefetch = setting.prefetch;
  s.reshard_after_forward = setting.reshard_after_forward;
  switch (setting.stage) {
    case Stage::baseline: return stage0_ddp::baseline_formula(s);
    case Stage::ddp: return stage0_ddp::formula(s);
    case Stage::optimizer: return stage1_optimizer::formula(s);
    case Stage::gradients: return stage2_gradients::formula(s);
    case Stage::parameters: return stage3_params::formula(s);
  }
  return {};
}

std::string differences(const RunRecord& record, const formula::Formula& formula) {
  std::string text;
  const auto value = [](const auto& map, const std::string& key) {
    const auto found = map.find(key);
    return found == map.end() ? Index{0} : found->second;
  };
  for (int c = 0; c < kCategories; ++c) {
    const std::string category(name(static_cast<Category>(c)));
    const Index says = value(formula.memory, category);
    const Index held = value(record.held_peak, category);
    if (says != held) text += fmt::format("{}: formula {} bytes, held {}\n", category, says, held);
    if (record.held_after.contains(category) && record.held_after.at(category) != says) {
      text += fmt::format("{}: formula {} bytes, held after the last step {}\n", category, says,
                          record.held_after.at(category));
    }
  }
  for (const std::string purpose : {"gradients", "gradients_across", "parameters", "scalars"}) {
    const auto says = formula.communication.find(purpose);
    const auto sent = record.sent.find(purpose);
    const formula::Sent expected_sent = says == formula.communication.end() ? formula::Sent{} : says->second;
    const formula::Sent really_sent = sent == record.sent.end() ? formula::Sent{} : sent->second;
    if (expected_sent.bytes == 0 && really_sent.bytes == 0) continue;
    if (!same(expected_sent, really_sent)) {
      text += fmt::format("{}: formula {} bytes by {} in {} calls, sent {} by {} in {}\n", purpose, expected_sent.bytes,
                          expected_sent.collective, expected_sent.calls, really_sent.bytes, really_sent.collective,
                          really_sent.calls);
    }
  }
  return text;
}

}  // namespace zero::test
