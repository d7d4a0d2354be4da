#include "tests/support/stage_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <memory>

#include "common/base/error.h"
#include "common/train/digests.h"
#include "offload/formula.h"
#include "offload/stage2.h"
#include "offload/stage3.h"
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

std::unique_ptr<Trainer> make_trainer(const RunSetting& setting, const Context& context) {
  if (setting.optimizer_tier != Tier::device) {
    offload::Settings offload;
    offload.optimizer = setting.optimizer_tier;
    offload.parameters = setting.parameters_tier;
    offload.threads = setting.offload_threads;
    offload.open_file = setting.open_file;
    if (!setting.open_file) {
      offload.open_file = [rank = context.comm.rank()](Index bytes) {
        return open_swap_file(std::filesystem::temp_directory_path(), rank, bytes, offload::kSwapDepth);
      };
    }
    if (setting.stage == Stage::gradients) return std::make_unique<offload::stage2::Trainer>(context, offload);
    return std::make_unique<offload::stage3::Trainer>(context, offload);
  }
  switch (setting.stage) {
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

/// "optimizer", "host optimizer": the device tier goes unnamed.
std::string key(Tier tier, std::string_view category) {
  return tier == Tier::device ? std::string(category) : fmt::format("{} {}", name(tier), category);
}

offload::Place place(Tier tier) {
  return tier == Tier::device ? offload::Place::device
         : tier == Tier::host ? offload::Place::host
                              : offload::Place::nvme;
}

std::map<std::string, Index> moved(const Device& device) {
  const Transfers& t = device.transfers();
  std::map<std::string, Index> moved;
  for (const auto& [direction, bytes] : std::initializer_list<std::pair<const char*, Index>>{
           {"down", t.down}, {"up", t.up}, {"read", t.read}, {"written", t.written}}) {
    if (bytes > 0) moved[direction] = bytes;
  }
  return moved;
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
  note(tiles != 1, fmt::format("tiles={}", tiles));
  note(wrap != 1, fmt::format("wrap={}", wrap));
  note(bucket_bytes != 0, fmt::format("bucket={}", bucket_bytes));
  note(dtype == Dtype::bf16, "bf16");
  note(checkpoint_activations, "checkpointed");
  note(dropout > 0, fmt::format("dropout={}", dropout));
  note(shard_group != 0, fmt::format("shard group={}", shard_group));
  note(prefetch != 1, fmt::format("prefetch={}", prefetch));
  note(!reshard_after_forward, "no reshard");
  note(gpu, "gpu");
  note(products == ProductKind::library, "library products");
  note(collectives == CollectiveKind::ring, "ring");
  note(collectives == CollectiveKind::native, "native");
  note(transport == TransportKind::messages, "messages");
  note(transport == TransportKind::shared, "shared");
  note(optimizer_tier != Tier::device, fmt::format("optimizer on {}", zero::name(optimizer_tier)));
  note(delay_after.has_value(), fmt::format("delayed after {}", delay_after.value_or(0)));
  note(parameters_tier != Tier::device, fmt::format("parameters on {}", zero::name(parameters_tier)));
  return text;
}

namespace {

std::unique_ptr<Device> make_device(const RunSetting& setting, MPI_Comm ranks) {
  if (!setting.gpu) return make_cpu_device(setting.products, 1);
  int rank = 0;
  if (ranks != MPI_COMM_SELF) check_mpi(MPI_Comm_rank(ranks, &rank), "MPI_Comm_rank");
  return make_cuda_device(setting.products, rank);
}

}  // namespace

Run::Run(const RunSetting& setting, MPI_Comm ranks, std::unique_ptr<Device> device)
    : device_(device ? std::move(device) : make_device(setting, ranks)) {
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
                                         model_units(setting.config, setting.wrap, slices, setting.tiles), *device_);
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
                                                         .dropout = setting.dropout,
                                                         .tiles = setting.tiles}});
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
  context_->delay_after = setting.delay_after;
  trainer_ = make_trainer(setting, *context_);
}

RunRecord run(const RunSetting& setting, MPI_Comm ranks) {
  Run run(setting, ranks);
  RunRecord record;
  bool recorded = false;
  for (Index t = 1; t <= setting.steps; ++t) {
    run.groups().clear_traffic();
    run.context().device.clear_transfers();
    const StepResult result = run.trainer().train_step(t);
    if (result.updates == 1) {  // else, with a delayed update, parameters go up and out never or twice
      const auto this_step = sent(run.groups());
      const auto alike = [](const auto& a, const auto& b) { return a.first == b.first && same(a.second, b.second); };
      if (recorded && !std::equal(this_step.begin(), this_step.end(), record.sent.begin(), record.sent.end(), alike)) {
        throw ResultFailure(fmt::format("step {} sent other bytes than the step before", t));
      }
      const std::map<std::string, Index> moved_now = moved(run.context().device);
      if (recorded && moved_now != record.moved) {
        throw ResultFailure(fmt::format("step {} moved other bytes between tiers than the step before", t));
      }
      record.sent = this_step;
      record.moved = moved_now;
      recorded = true;
    }
    record.steps.push_back(
        {result.loss, result.norm.value, result.verdict,
         digest_state(run.trainer(), run.context().device, run.context().comm, run.context().group)});
  }
  const MemoryLedger& ledger = run.context().device.ledger();
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    for (int c = 0; c < kCategories; ++c) {
      const auto category = static_cast<Category>(c);
      const Index peak = ledger.peak(tier, category);
      if (peak == 0) continue;
      record.held_peak[key(tier, name(category))] = peak;
      if (category <= Category::optimizer)
        record.held_after[key(tier, name(category))] = ledger.current(tier, category);
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
  s.gpu = setting.gpu;
  s.library_products = setting.products == ProductKind::library;
  s.tiles = setting.tiles;
  s.delayed_update = setting.delay_after.has_value();
  s.prefetch = setting.prefetch;
  s.reshard_after_forward = setting.reshard_after_forward;
  if (setting.optimizer_tier != Tier::device) {
    return offload::formula(
        s, {setting.stage == Stage::gradients ? 2 : 3, place(setting.optimizer_tier), place(setting.parameters_tier)});
  }
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
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const auto& by_formula = tier == Tier::device ? formula.memory
                             : tier == Tier::host ? formula.host_memory
                                                  : formula.nvme_memory;
    for (int c = 0; c < kCategories; ++c) {
      const std::string category(name(static_cast<Category>(c)));
      const std::string where = key(tier, category);
      const Index says = value(by_formula, category);
      const Index held = value(record.held_peak, where);
      if (says != held) text += fmt::format("{}: formula {} bytes, held {}\n", where, says, held);
      if (record.held_after.contains(where) && record.held_after.at(where) != says) {
        text += fmt::format("{}: formula {} bytes, held after the last step {}\n", where, says,
                            record.held_after.at(where));
      }
    }
  }
  for (const char* direction : {"down", "up", "read", "written"}) {
    const Index says = value(formula.offload, direction), really = value(record.moved, direction);
    if (says != really) text += fmt::format("moved {}: formula {} bytes, moved {}\n", direction, says, really);
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
