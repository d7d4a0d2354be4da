#include <fmt/format.h>

#include "common/base/error.h"
#include "common/train/machine.h"
#include "common/train/options.h"

namespace zero {
namespace {

// Beyond these the counts of bytes would leave 64 bits; every machine has less.
constexpr double kMostParameters = 1e12;
constexpr double kMostActivations = 1e13;  ///< elements

void check_model(const ModelConfig& c) {
  if (c.width % c.heads != 0) {
    Index below = c.heads;
    while (c.width % below != 0) --below;
    throw UnusableInput(fmt::format("--heads {} does not divide --width {}; {} head{} or a width of {} would do",
                                    c.heads, c.width, below, below == 1 ? "" : "s", round_up(c.width, c.heads)));
  }
  const auto L = static_cast<double>(c.layers), C = static_cast<double>(c.width), T = static_cast<double>(c.context),
             V = static_cast<double>(c.vocab);
  const double parameters = (V + T + 2) * C + L * (12 * C * C + 13 * C);
  if (parameters > kMostParameters) {
    throw UnusableInput(
        fmt::format("--layers {} --width {} --context {} --vocab {} make {:.1e} parameters; up to {:.0e} "
                    "are possible",
                    c.layers, c.width, c.context, c.vocab, parameters, kMostParameters));
  }
}

void check_batch(const ModelConfig& c, Index micro_batch) {
  const auto L = static_cast<double>(c.layers), C = static_cast<double>(c.width), T = static_cast<double>(c.context),
             V = static_cast<double>(c.vocab), H = static_cast<double>(c.heads), B = static_cast<double>(micro_batch);
  const double activations = B * T * (L * (16 * C + H * T) + V);
  if (activations > kMostActivations) {
    throw UnusableInput(
        fmt::format("--micro-batch {} --context {} --layers {} --width {} make {:.1e} activations; up to "
                    "{:.0e} are possible",
                    micro_batch, c.context, c.layers, c.width, activations, kMostActivations));
  }
}

/// `auto` becomes what it means here; a backend that cannot be had is refused.
void derive_backend(Options& options) {
  options.backend_chosen = options.backend == Backend::automatic;
  if (options.backend_chosen) options.backend = why_no_cuda() ? Backend::cpu : Backend::cuda;
  const bool cuda = options.backend == Backend::cuda;
  if (cuda) {
    if (const auto why = why_no_cuda()) throw UnusableInput(*why);
  }
  if (cuda && !options.products_given) options.products = ProductKind::library;
  if (!cuda && options.transport == TransportKind::nccl) {
    throw UnusableInput("--transport nccl moves memory of GPUs and this run is on the CPU; --transport auto would do");
  }
}

}  // namespace

void derive(const Program& program, Options& options, Index world) {
  derive_backend(options);
  const ModelPreset preset = find_preset(options.model).value();
  ModelConfig& config = options.config;
  for (Index ModelConfig::*size :
       {&ModelConfig::layers, &ModelConfig::heads, &ModelConfig::width, &ModelConfig::context, &ModelConfig::vocab}) {
    if (config.*size == 0) config.*size = preset.config.*size;
  }
  check_model(config);

  const Index N = options.order_world(world);
  if (options.micro_batch == 0) options.micro_batch = preset.micro_batch;
  check_batch(config, options.micro_batch);
  const Index per_micro_step = options.micro_batch * N;
  if (options.global_batch == 0) options.global_batch = per_micro_step;
  if (options.global_batch % per_micro_step != 0) {
    const std::string ranks =
        program.single_process ? fmt::format("--as-world {}", N) : fmt::format("{} rank{}", N, N == 1 ? "" : "s");
    throw UnusableInput(fmt::format("--global-batch {} is not a multiple of --micro-batch {} times {}; {} would do",
                                    options.global_batch, options.micro_batch, ranks,
                                    round_up(options.global_batch, per_micro_step)));
  }
  options.micro_steps = options.global_batch / per_micro_step;

  if (options.shard_group == 0) options.shard_group = world;
  const Index S = options.shard_group;
  if (S != world && ((S & (S - 1)) != 0 || world % S != 0)) {
    Index fits = 1;
    while (fits * 2 <= S && world % (fits * 2) == 0) fits *= 2;
    throw UnusableInput(fmt::format(
        "--shard-group {} is neither a power of two that divides {} rank{} nor all of them, so that its groups "
        "would not be parts of the sum's tree; {} would do",
        S, world, world == 1 ? "" : "s", fits));
  }

  if (options.delay_after >= 0 && !options.delayed_update) {
    throw UnusableInput(fmt::format("--delay-after {} has no meaning without --delayed-update", options.delay_after));
  }
  if (options.delay_after < 0) options.delay_after = 40;  // the paper's
  if (options.delayed_update && options.delay_after == 0 && options.steps == 2) {
    throw UnusableInput(
        "--steps 2 with --delay-after 0 has no step that updates once, so bytes sent could not be judged; 3 would do");
  }

  if (options.tiles > config.width) {
    throw UnusableInput(
        fmt::format("--tile {} is more than the {} outputs of a product of --width {}; at most {} would do",
                    options.tiles, config.width, config.width, config.width));
  }
  if (options.tiles > 1 && options.wrap > 1) {
    throw UnusableInput(
        fmt::format("--tile {} makes units smaller than a block, and --wrap {} larger; one of them would do",
                    options.tiles, options.wrap));
  }
  if (options.tiles > 1 && options.checkpoint_activations) {
    throw UnusableInput(fmt::format(
        "--tile {} with --checkpoint-activations would need all parts of a block at once to compute it again; "
        "one of them would do",
        options.tiles));
  }

  AdamWOptions& adamw = options.optimizer;
  adamw.steps = options.steps;
  if (adamw.min_learning_rate > 0 && adamw.schedule == Schedule::constant) {
    throw UnusableInput(fmt::format("--min-lr {:g} has no meaning with --lr-schedule constant; cosine would do",
                                    adamw.min_learning_rate));
  }
  if (adamw.min_learning_rate > adamw.learning_rate) {
    throw UnusableInput(fmt::format("--min-lr {:g} is above --lr {:g}; at most {:g} would do", adamw.min_learning_rate,
                                    adamw.learning_rate, adamw.learning_rate));
  }
  if (options.accumulation == Accumulation::local_first && !program.offers_accumulation) {
    throw UnusableInput(fmt::format("--accumulation local-first is not offered by {}: {}; ranks-first would do",
                                    program.name, program.why_no_local_first));
  }
}

std::unique_ptr<Device> make_device(const Options& options) {
  if (options.backend != Backend::cuda) return make_cpu_device(options.products, options.threads);
  return make_cuda_device(options.products,
                          launched({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}).value_or(0));
}

GroupSetting group_setting(const Options& options) {
  return {.shard_group = options.shard_group,
          .collectives = options.collectives,
          .transport = options.transport,
          .timeout_seconds = options.timeout_seconds,
          .dtype = options.dtype(),
          .bucket_bytes = options.bucket_bytes};
}

Context make_context(const Options& options, Index world, Device& device, RankGroups& groups, const Sampler& sampler,
                     Timers& timers) {
  return {.device = device,
          .comm = groups.world(),
          .group = groups.group(),
          .across = groups.across(),
          .sampler = sampler,
          .timers = timers,
          .config = options.config,
          .optimizer = options.optimizer,
          .model = {.dtype = options.dtype(),
                    .checkpoint_activations = options.checkpoint_activations,
                    .dropout = options.dropout,
                    .seed = options.seed,
                    .tiles = options.tiles},
          .seed = options.seed,
          .micro_batch = options.micro_batch,
          .micro_steps = options.micro_steps,
          .world = world,
          .accumulation = options.accumulation,
          .wrap = options.wrap,
          .bucket_bytes = options.bucket_bytes,
          .prefetch = options.prefetch,
          .reshard_after_forward = options.reshard_after_forward,
          .delay_after = options.delayed_update ? std::optional(options.delay_after) : std::nullopt};
}

formula::Setting formula_setting(const Options& options, Index world) {
  formula::Setting setting;
  setting.layers = options.config.layers;
  setting.heads = options.config.heads;
  setting.width = options.config.width;
  setting.context = options.config.context;
  setting.vocab = options.config.vocab;
  setting.micro_batch = options.micro_batch;
  setting.world = world;
  setting.micro_steps = options.micro_steps;
  setting.bf16 = options.dtype() == Dtype::bf16;
  setting.checkpoint_activations = options.checkpoint_activations;
  setting.dropout = options.dropout > 0;
  setting.shard_group = options.shard_group;
  setting.ring = options.collectives == CollectiveKind::ring;
  setting.local_first = options.accumulation == Accumulation::local_first;
  setting.wrap = options.wrap;
  setting.bucket = options.bucket_bytes;
  setting.native = options.collectives == CollectiveKind::native;
  setting.library_products = options.products == ProductKind::library;
  setting.threads = options.threads;
  setting.gpu = options.backend == Backend::cuda;
  setting.delayed_update = options.delayed_update;
  setting.tiles = options.tiles;
  setting.prefetch = options.prefetch;
  setting.reshard_after_forward = options.reshard_after_forward;
  return setting;
}

}  // namespace zero
