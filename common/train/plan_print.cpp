#include "common/train/plan_print.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/bytes.h"

namespace zero {
namespace {

/// 1234567 as "1,234,567".
std::string grouped(Index value) {
  std::string text = std::to_string(value);
  for (auto at = static_cast<Index>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string counted(Index count, std::string_view what) {
  return fmt::format("{} {}{}", grouped(count), what, count == 1 ? "" : "s");
}

std::string row(std::string_view name, const std::string& text) { return fmt::format("  {:<13} {}\n", name, text); }

std::string bucket_text(const Options& options, const Context& context, const std::vector<FlatUnit>& units) {
  Index largest = 0;
  Index collectives = 0;
  for (const FlatUnit& unit : units) {
    const std::vector<Bucket> buckets = context.buckets(unit);
    collectives += static_cast<Index>(buckets.size());
    for (const Bucket& bucket : buckets) largest = std::max(largest, bucket.size);
  }
  const Index bytes = largest * units[0].slices() * size_of(context.model.dtype);
  const std::string asked =
      options.bucket_bytes == 0 ? "a unit each" : format_bytes(options.bucket_bytes) + " asked for";
  return fmt::format("{}: at most {} of each slice ({}), {} for one pass over the model", asked,
                     counted(largest, "element"), format_bytes(bytes), counted(collectives, "collective"));
}

std::string optimizer_text(const AdamWOptions& o) {
  std::string rate = fmt::format("lr {:g}", o.learning_rate);
  if (o.schedule == Schedule::cosine) rate += fmt::format(" on a cosine to {:g}", o.min_learning_rate);
  if (o.warmup > 0) rate += fmt::format(" after {} of warm-up", counted(o.warmup, "step"));
  return fmt::format("AdamW, {}, betas {:g} {:g}, eps {:g}, decay {:g} on matrices, {}", rate, o.beta1, o.beta2,
                     o.epsilon, o.weight_decay, o.clip > 0 ? fmt::format("clip {:g}", o.clip) : "no clipping");
}

std::string formula_text(const formula::Formula& formula) {
  const auto line = [](std::string_view name, Index bytes) {
    return fmt::format("  {:<18} {:>17}  {:>12}\n", name, grouped(bytes), format_bytes(bytes));
  };
  const auto tier = [&line](const std::string& head, const std::map<std::string, Index>& memory) {
    std::string rows = head;
    Index total = 0;
    for (int c = 0; c < kCategories; ++c) {  // in the ledger's order: the model states first
      const auto found = memory.find(std::string(name(static_cast<Category>(c))));
      if (found == memory.end()) continue;
      rows += line(found->first, found->second);
      total += found->second;
    }
    return rows + line("total", total);
  };
  const bool one_tier = formula.host_memory.empty() && formula.nvme_memory.empty();
  std::string text =
      tier(one_tier ? "memory of each rank, by formula\n" : "device memory of each rank, by formula\n", formula.memory);
  if (!formula.host_memory.empty()) text += tier("host memory of each rank, by formula\n", formula.host_memory);
  if (!formula.nvme_memory.empty()) text += tier("swap file of each rank, by formula\n", formula.nvme_memory);
  text += "sent by each rank in a step, by formula\n";
  bool any = false;
  for (const auto& [purpose, sent] : formula.communication) {
    if (sent.bytes == 0 && sent.calls == 0) continue;
    any = true;
    text += fmt::format("  {:<18} {:>17}  {:>12}  {} x {}\n", purpose, grouped(sent.bytes), format_bytes(sent.bytes),
                        sent.calls, sent.collective);
  }
  if (!any) text += "  nothing\n";
  if (!formula.offload.empty()) text += "moved between tiers by each rank in a step, by formula\n";
  for (const char* direction : {"down", "up", "read", "written"}) {
    const auto found = formula.offload.find(direction);
    if (found != formula.offload.end()) text += line(found->first, found->second);
  }
  return text;
}

}  // namespace

std::string plan_text(const Program& program, const Options& options, const Context& context,
                      const std::vector<FlatUnit>& units, const PlanFacts& facts) {
  const ModelConfig& config = options.config;
  const formula::Setting setting = formula_setting(options, context.world);
  Index padded = 0;
  for (const FlatUnit& unit : units) padded += unit.size();
  const std::string ranks =
      program.single_process ? fmt::format("one process, additions in the order of N = {}", context.world)
      : facts.ranks == 1     ? "N = 1: one rank shards nothing and sends nothing; tools/run -n 2 PROGRAM starts two"
                             : fmt::format("N = {}", facts.ranks);
  std::string text = "plan\n";
  text += row("program", program.name);
  text += row("model", fmt::format("{}: {}, {}, width {}, context {}, vocabulary {}", options.model,
                                   counted(config.layers, "layer"), counted(config.heads, "head"), config.width,
                                   config.context, config.vocab));
  text +=
      row("parameters", fmt::format("{}, padded {}, in {} (--wrap {})", grouped(formula::parameters(setting)),
                                    grouped(padded), counted(static_cast<Index>(units.size()), "unit"), options.wrap));
  text += row("ranks", ranks);
  text += row("batch", fmt::format("{} = micro-batch {} x {} x k = {}; {} tokens in a step",
                                   counted(options.global_batch, "sequence"), options.micro_batch,
                                   counted(context.world, "rank"), options.micro_steps,
                                   grouped(options.global_batch * config.context)));
  text += row("data", fmt::format("{}: {} tokens, {}; seed {}", options.data, grouped(facts.tokens),
                                  counted(facts.sequences, "sequence"), options.seed));
  if (options.eval_every > 0) {
    text += row("evaluation",
                fmt::format("every {}: {} of the data's last tenth are held out, {} of them evaluated",
                            counted(options.eval_every, "step"), counted(facts.held_out, "sequence"), facts.evaluated));
  }
  text += row("optimizer", optimizer_text(options.optimizer));
  text +=
      row("arithmetic", fmt::format("{}, {} products, accumulation {}", options.precision, facts.products,
                                    options.accumulation == Accumulation::ranks_first ? "ranks-first" : "local-first"));
  if (options.checkpoint_activations || options.dropout > 0) {
    text +=
        row("activations",
            fmt::format("{}{}",
                        options.checkpoint_activations ? "checkpointed: a block's are computed again in backward" : "",
                        options.dropout > 0
                            ? fmt::format("{}dropout {:g}", options.checkpoint_activations ? ", " : "", options.dropout)
                            : ""));
  }
  const std::string threads = options.backend == Backend::cuda ? "" : ", " + counted(options.threads, "product thread");
  for (std::size_t r = 0; r < facts.devices.size(); ++r) {
    const std::string rank = facts.devices.size() > 1 ? fmt::format("; rank {}", r) : "";
    text += row(r == 0 ? "device" : "",
                fmt::format("{}{}{}{}", options.backend_chosen ? "auto: " : "", facts.devices[r], threads, rank));
  }
  if (options.shard_group != facts.ranks) {
    text += row("sharding", fmt::format("in groups of {}, {} of them", counted(options.shard_group, "rank"),
                                        facts.ranks / options.shard_group));
  }
  if (!program.single_process) {
    text += row("collectives", facts.collectives);
    text += row("buckets", bucket_text(options, context, units));
  }
  for (const auto& [word, what] : program.plan_rows()) text += row(word, what);
  if (options.delayed_update) {
    // The last step's gradient is applied at once.
    const Index late = std::max<Index>(0, options.steps - 1 - options.delay_after);
    text += row("update", fmt::format("delayed: after {} a gradient is applied one step late, {} of this run's {}",
                                      counted(options.delay_after, "step"), late == 0 ? "none" : grouped(late),
                                      counted(options.steps, "step")));
  }
  return text + formula_text(program.formula(setting));
}

}  // namespace zero
