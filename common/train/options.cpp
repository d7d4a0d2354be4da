#include "common/train/options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/bytes.h"
#include "common/base/command_line.h"
#include "common/base/error.h"
#include "common/train/evaluation.h"
#include "common/train/option_types.h"

namespace zero {
namespace {

constexpr Index kMost = 1'000'000'000;  ///< of steps and batches: their products stay far below 2^63
constexpr Index kMostBytes = Index{1} << 50;

const std::vector<Choice<Schedule>> kSchedules = {{"constant", Schedule::constant}, {"cosine", Schedule::cosine}};
const std::vector<Choice<ProductKind>> kProducts = {{"canonical", ProductKind::canonical},
                                                    {"library", ProductKind::library}};
const std::vector<Choice<CollectiveKind>> kCollectives = {
    {"canonical", CollectiveKind::canonical}, {"native", CollectiveKind::native}, {"ring", CollectiveKind::ring}};
const std::vector<Choice<TransportKind>> kTransports = {{"auto", TransportKind::automatic},
                                                        {"shared", TransportKind::shared},
                                                        {"messages", TransportKind::messages},
                                                        {"nccl", TransportKind::nccl}};
const std::vector<Choice<Accumulation>> kAccumulations = {{"ranks-first", Accumulation::ranks_first},
                                                          {"local-first", Accumulation::local_first}};
const std::vector<Choice<Backend>> kBackends = {
    {"cpu", Backend::cpu}, {"cuda", Backend::cuda}, {"auto", Backend::automatic}};
const std::vector<std::string_view> kPrecisions = {"fp32", "bf16"};
const std::vector<Choice<bool>> kOnNotFinite = {{"stop", false}, {"skip", true}};

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> all;
  for (const ModelPreset& preset : model_presets()) all.push_back(preset.name);
  return all;
}

void add_text(CLI::App& app, const std::string& option, std::string& target, const char* what, const OptionText& text) {
  add_value(app, option, text, [option, &target, what](const std::string& value) {
    if (value.empty()) throw UnusableInput(fmt::format("{} '' is not {}", option, what));
    target = value;
  });
}

void add_model_options(CLI::App& app, Options& options) {
  const char* group = option_group::kModel;
  add_value(app, "--model", {group, "NAME", fmt::format("{}", fmt::join(preset_names(), ", ")), options.model},
            [&options](const std::string& value) {
              const std::vector<std::string_view> all = preset_names();
              options.model = all[read_choice("--model", value, all)];
            });
  const std::string preset = "the preset's";
  add_whole(app, "--layers", options.config.layers, 1, 10'000, {group, "L", "transformer blocks", preset});
  add_whole(app, "--heads", options.config.heads, 1, 10'000,
            {group, "H", "attention heads; they divide --width", preset});
  add_whole(app, "--width", options.config.width, 1, 1'000'000, {group, "C", "size of the residual stream", preset});
  add_whole(app, "--context", options.config.context, 1, 1'000'000, {group, "T", "tokens in a sequence", preset});
  add_whole(app, "--vocab", options.config.vocab, 1, 1'000'000,
            {group, "V", "tokens in the vocabulary; every byte or token of the data is below it", preset});
  add_text(app, "--data", options.data, "the name of a file",
           {group, "FILE", "a text file, whose bytes are the tokens, or a token file that ends in .bin", options.data});
}

void add_training_options(CLI::App& app, Options& options) {
  const char* group = option_group::kTraining;
  add_whole(app, "--steps", options.steps, 1, kMost, {group, "N", "optimizer steps", ""});
  add_value(app, "--seed",
            {group, "N", "the one seed of initial weights, data order and dropout", std::to_string(options.seed)},
            [&options](const std::string& value) {
              options.seed = static_cast<std::uint64_t>(read_whole("--seed", value, 0, INT64_MAX));
            });
  add_whole(app, "--micro-batch", options.micro_batch, 1, 1'000'000,
            {group, "B", "sequences in one forward and backward pass of a rank", "the preset's"});
  add_whole(app, "--global-batch", options.global_batch, 1, kMost,
            {group, "N",
             "sequences in one step over all ranks; micro-steps k = global batch / (micro-batch * ranks) must be whole",
             "--micro-batch * ranks"});
  add_choice(
      app, "--accumulation", options.accumulation, kAccumulations,
      {group, "ORDER",
       "ranks-first adds over ranks in every micro-step, local-first over a rank's micro-steps and then once over "
       "ranks",
       ""});
}

void add_regularization_options(CLI::App& app, Options& options) {
  const char* group = option_group::kTraining;
  add_real(
      app, "--dropout", options.dropout, {0, 1, false, true},
      {group, "P", "share of activations dropped: after the embedding, in attention, at the end of sub-layers", ""});
  add_whole(app, "--eval-every", options.eval_every, 0, kMost,
            {group, "N",
             fmt::format("steps between evaluations, also after the last step, on the last tenth of the data (at most "
                         "{} sequences of it), which is then held out; 0: none",
                         HeldOut::kMostSequences),
             ""});
  add_choice(app, "--on-nonfinite", options.skip_not_finite, kOnNotFinite,
             {group, "WHAT",
              fmt::format("a step whose loss or gradient norm is not finite is never taken; stop: the run ends there; "
                          "skip: it goes on, unless {} in a row were such",
                          kMostNotTaken),
              ""});
}

void add_optimizer_options(CLI::App& app, Options& options) {
  const char* group = option_group::kOptimizer;
  AdamWOptions& adamw = options.optimizer;
  add_real(app, "--lr", adamw.learning_rate, {1e-30, 1e10}, {group, "X", "learning rate", ""});
  add_choice(app, "--lr-schedule", adamw.schedule, kSchedules,
             {group, "NAME", "constant, or cosine: from --lr down to --min-lr at the last step", ""});
  add_whole(app, "--warmup", adamw.warmup, 0, kMost,
            {group, "N", "steps in which the rate rises linearly to --lr", ""});
  add_real(app, "--min-lr", adamw.min_learning_rate, {0, 1e10}, {group, "X", "where the cosine ends", ""});
  add_real(app, "--beta1", adamw.beta1, {0, 1, false, true}, {group, "X", "decay of the momentum", ""});
  add_real(app, "--beta2", adamw.beta2, {0, 1, false, true}, {group, "X", "decay of the variance", ""});
  add_real(app, "--eps", adamw.epsilon, {1e-30, 1}, {group, "X", "added to the root of the variance", ""});
  add_real(app, "--weight-decay", adamw.weight_decay, {0, 1000},
           {group, "X", "decoupled weight decay, on matrices only", ""});
  add_real(app, "--clip", adamw.clip, {0, 1e10},
           {group, "X", "largest norm of the gradient; 0 turns clipping off", ""});
}

void add_arithmetic_options(CLI::App& app, Options& options) {
  const char* group = option_group::kArithmetic;
  add_value(
      app, "--precision",
      {group, "NAME",
       "fp32: everything in 4 bytes; bf16: parameters, gradients and activations in 2, master weights and moments in 4",
       options.precision},
      [&options](const std::string& value) {
        options.precision = kPrecisions[read_choice("--precision", value, kPrecisions)];
      });
  add_value(app, "--products",
            {group, "KIND",
             "matrix products: canonical, in our own order, with the same bits on every machine, or library (oneDNN, "
             "cuBLAS)",
             "canonical; with CUDA library"},
            [&options](const std::string& value) {
              options.products = kProducts[read_choice("--products", value, names(kProducts))].value;
              options.products_given = true;
            });
  add_value(app, "--threads", {group, "N", "threads of a rank's matrix products", std::to_string(options.threads)},
            [&options](const std::string& value) {
              options.threads = static_cast<int>(read_whole("--threads", value, 1, 1024));
            });
}

void add_communication_options(CLI::App& app, Options& options) {
  const char* group = option_group::kCommunication;
  add_choice(app, "--collectives", options.collectives, kCollectives,
             {group, "KIND",
              "canonical: additions in an order that does not depend on the transport; ring: the textbook algorithm; "
              "native: the library's, for comparison of speed",
              ""});
  add_choice(app, "--transport", options.transport, kTransports,
             {group, "KIND",
              "how bytes move between ranks: shared memory windows, messages, nccl (between GPUs), or auto: NCCL where "
              "every rank has its own GPU, windows where all ranks are on one machine",
              ""});
  add_value(
      app, "--bucket",
      {group, "SIZE", "largest collective over all ranks' slices, such as 4MiB; its size never changes a result",
       "one unit"},
      [&options](const std::string& value) { options.bucket_bytes = read_size("--bucket", value, 1, kMostBytes); });
  add_whole(app, "--wrap", options.wrap, 1, 10'000,
            {group, "N", "transformer blocks in a unit: what is gathered and reduced as one", ""});
  add_real(app, "--timeout", options.timeout_seconds, {0.1, 1e6},
           {group, "SECONDS", "without progress in a collective before the job ends", ""});
}

void add_memory_options(CLI::App& app, Options& options) {
  const char* group = option_group::kMemory;
  add_value(app, "--backend",
            {group, "NAME", "cpu, cuda, or auto: cuda where this build has it and there is a GPU", "auto"},
            [&options](const std::string& value) {
              options.backend = kBackends[read_choice("--backend", value, names(kBackends))].value;
            });
  const auto add_cap = [&](const char* option, std::optional<Index>& target, const char* meaning) {
    add_value(app, option, {group, "SIZE", meaning, "none"},
              [option, &target](const std::string& value) { target = read_size(option, value, 1, kMostBytes); });
  };
  add_cap("--device-memory", options.device_memory,
          "cap on what a rank holds on its device, such as 512MiB; an allocation past it ends the run");
  add_flag(app, "--checkpoint-activations", options.checkpoint_activations,
           {group, "", "keep only each block's input and compute its activations again in backward", "off"});
  add_cap("--host-memory", options.host_memory, "cap on what a rank holds in host memory outside the device");
}

void add_output_options(CLI::App& app, Options& options) {
  const char* group = option_group::kOutput;
  add_flag(app, "--verify", options.verify,
           {group, "", "also run the unsharded baseline on rank 0 and compare every byte after every step", "off"});
  add_whole(app, "--digest-every", options.digest_every, 0, kMost,
            {group, "N", "steps between digests in metrics.jsonl; 0: the last step only", ""});
  add_text(app, "--out", options.out, "the name of a directory",
           {group, "DIR", "where summary.json and metrics.jsonl are written; made if it does not exist", "none"});
}

}  // namespace

void add_common_options(CLI::App& app, Options& options) {
  add_model_options(app, options);
  add_training_options(app, options);
  add_regularization_options(app, options);
  add_optimizer_options(app, options);
  add_arithmetic_options(app, options);
  add_communication_options(app, options);
  add_memory_options(app, options);
  add_output_options(app, options);
}

void add_gather_options(CLI::App& app, Options& options) {
  add_whole(app, "--prefetch", options.prefetch, 0, 10'000,
            {option_group::kMemory, "N", "units gathered ahead of the one in use", ""});
  add_on_off(
      app, "--reshard-after-forward", options.reshard_after_forward,
      {option_group::kMemory, "", "on: free gathered units after forward and gather them again in backward", ""});
}

void add_shard_group_option(CLI::App& app, Options& options) {
  add_whole(app, "--shard-group", options.shard_group, 1, 1'000'000,
            {option_group::kMemory, "S", "ranks in a sharding group: a power of two that divides the ranks, or all",
             "all ranks"});
}

void add_as_world_option(CLI::App& app, Options& options) {
  add_whole(app, "--as-world", options.as_world, 1, 4096,
            {option_group::kArithmetic, "N", "follow the order of additions of N ranks", ""});
}

void add_delay_options(CLI::App& app, Options& options) {
  add_flag(app, "--delayed-update", options.delayed_update,
           {option_group::kOptimizer, "",
            "apply each gradient one step late, so that the host updates beside the next step", "off"});
  add_value(
      app, "--delay-after",
      {option_group::kOptimizer, "STEPS", "with --delayed-update: steps that are updated at once first", "40"},
      [&options](const std::string& value) { options.delay_after = read_whole("--delay-after", value, 0, kMost); });
}

void add_tile_option(CLI::App& app, Options& options) {
  add_whole(app, "--tile", options.tiles, 1, 10'000,
            {option_group::kMemory, "T", "compute a block's large products in T parts, each a unit of its own", ""});
}

std::optional<Options> parse_options(const Program& program, int argc, const char* const* argv, int world,
                                     std::string& text) {
  Options options;
  CLI::App app(program.description, program.name);
  app.set_help_flag("-h,--help", "this text")->group(option_group::kOutput);
  app.set_version_flag("--version", ZERO_VERSION, "the version")->group(option_group::kOutput);
  add_common_options(app, options);
  program.add_options(app, options);

  const std::vector<std::string> given(argv + std::min(argc, 1), argv + argc);
  const std::string valueless = option_without_value(given, [&app](const std::string& argument) {
    const CLI::Option* option = argument.starts_with("-") ? app.get_option_no_throw(argument) : nullptr;
    return option != nullptr && option->get_items_expected_min() > 0;
  });
  if (!valueless.empty()) throw UnusableInput(fmt::format("{} needs a value; --help says which", valueless));
  std::vector<std::string> arguments;  // as CLI11 takes them: the last one first
  for (int i = argc - 1; i > 0; --i) {
    std::string argument = argv[i];
    // CLI11 would read "--steps= --lr 1" as --steps with the value "--lr".
    if (argument.size() > 3 && argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      arguments.emplace_back();
      argument.pop_back();
    }
    arguments.push_back(std::move(argument));
  }
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    text = help_text(program, app);
    return std::nullopt;
  } catch (const CLI::CallForVersion&) {
    text = fmt::format("{} {}\n", program.name, ZERO_VERSION);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UnusableInput(command_line_error(program, app, error));
  }
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_lnames().empty() && !is_offered_elsewhere(*option))
      options.offered.push_back(option->get_lnames()[0]);
  }
  derive(program, options, world);
  program.check(options, world);
  return options;
}

nlohmann::json to_json(const Options& options) {
  const auto or_null = [](const std::optional<Index>& value) { return value ? nlohmann::json(*value) : nullptr; };
  const AdamWOptions& adamw = options.optimizer;
  nlohmann::json all = {
      {"model", options.model},
      {"layers", options.config.layers},
      {"heads", options.config.heads},
      {"width", options.config.width},
      {"context", options.config.context},
      {"vocab", options.config.vocab},
      {"data", options.data},
      {"steps", options.steps},
      {"seed", options.seed},
      {"micro-batch", options.micro_batch},
      {"global-batch", options.global_batch},
      {"accumulation", name_of(kAccumulations, options.accumulation)},
      {"lr", adamw.learning_rate},
      {"lr-schedule", name_of(kSchedules, adamw.schedule)},
      {"warmup", adamw.warmup},
      {"min-lr", adamw.min_learning_rate},
      {"beta1", adamw.beta1},
      {"beta2", adamw.beta2},
      {"eps", adamw.epsilon},
      {"weight-decay", adamw.weight_decay},
      {"clip", adamw.clip},
      {"precision", options.precision},
      {"dropout", options.dropout},
      {"eval-every", options.eval_every},
      {"on-nonfinite", name_of(kOnNotFinite, options.skip_not_finite)},
      {"checkpoint-activations", options.checkpoint_activations},
      {"shard-group", options.shard_group},
      {"products", name_of(kProducts, options.products)},
      {"threads", options.threads},
      {"collectives", name_of(kCollectives, options.collectives)},
      {"transport", name_of(kTransports, options.transport)},
      {"bucket", options.bucket_bytes == 0 ? nullptr : nlohmann::json(options.bucket_bytes)},
      {"wrap", options.wrap},
      {"timeout", options.timeout_seconds},
      {"prefetch", options.prefetch},
      {"reshard-after-forward", options.reshard_after_forward ? "on" : "off"},
      {"as-world", options.as_world},
      {"delayed-update", options.delayed_update},
      {"delay-after", options.delay_after},
      {"tile", options.tiles},
      {"backend", name_of(kBackends, options.backend)},
      {"device-memory", or_null(options.device_memory)},
      {"host-memory", or_null(options.host_memory)},
      {"verify", options.verify},
      {"digest-every", options.digest_every},
      {"out", options.out.empty() ? nullptr : nlohmann::json(options.out)},
  };
  if (options.offered.empty()) return all;
  nlohmann::json offered = nlohmann::json::object();
  for (const std::string& option : options.offered) {
    if (all.contains(option)) offered[option] = all[option];
  }
  return offered;
}

}  // namespace zero
