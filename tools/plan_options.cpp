#include "tools/plan_options.h"

#include <limits>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "common/base/error.h"
#include "common/model/config.h"
#include "tools/command_line.h"
#include "tools/plan_values.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

struct Given {
  Value world, model = "tiny", layers, heads, width, context, vocab;
  Value micro_batch, global_batch, precision = "fp32", stage = "all", parameters;
  Value wrap, tile, bucket, prefetch, reshard = "on", accumulation = "ranks-first", products, backend = "cpu",
                                      collectives = "canonical", threads, device_memory, host_memory, shard_group,
                                      dropout;
  bool delayed_update = false;
};

/// What a run takes by default depends on its machine, and that may be another than this one.
bool on_gpus(const std::string& backend) {
  if (backend != "auto") return one_of_two("--backend", backend, "cpu", "cuda");
  throw UnusableInput(
      "--backend auto is decided where a run starts, which may be another machine; cpu or cuda would do");
}

/// Groups are subtrees of the sum over ranks.
void set_shard_group(const Given& given, formula::Setting& s) {
  const Index S = whole_number("--shard-group", given.shard_group, 1, s.world, formula::kMostRanks);
  if (S != s.world && ((S & (S - 1)) != 0 || s.world % S != 0)) {
    Index fits = 1;
    while (fits * 2 <= S && s.world % (fits * 2) == 0) fits *= 2;
    throw UnusableInput(fmt::format(
        "--shard-group {} is neither a power of two that divides {} nor all of them, so that its groups would not be "
        "parts of the sum's tree; {} would do",
        S, counted(s.world, "rank"), fits));
  }
  s.shard_group = S == s.world ? 0 : S;
}

void set_model(const Given& given, PlanOptions& options) {
  formula::Setting& s = options.setting;
  if (given.parameters) {
    s.bare_parameters = bare_parameters(*given.parameters);
    s.micro_batch = whole_number("--micro-batch", given.micro_batch, 1, 1);
    return;
  }
  const std::optional<ModelPreset> preset = find_preset(*given.model);
  if (!preset) {
    std::string names;
    for (const ModelPreset& known : model_presets())
      names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
    throw UnusableInput(
        fmt::format("--model '{}' is not known; these would do: {}", harmless(*given.model, 40), names));
  }
  options.model = *given.model;
  s.layers = whole_number("--layers", given.layers, 0, preset->config.layers, formula::kMostLayers);
  s.heads = whole_number("--heads", given.heads, 1, preset->config.heads);
  s.width = whole_number("--width", given.width, 1, preset->config.width);
  s.context = whole_number("--context", given.context, 1, preset->config.context);
  s.vocab = whole_number("--vocab", given.vocab, 1, preset->config.vocab);
  s.micro_batch = whole_number("--micro-batch", given.micro_batch, 1, preset->micro_batch);
  if (s.width % s.heads != 0) {
    Index near = std::min(s.heads, s.width);
    while (s.width % near != 0) --near;
    throw UnusableInput(fmt::format("--heads {} does not divide --width {}; {} would do", s.heads, s.width, near));
  }
}

void set_batch(const Given& given, PlanOptions& options) {
  formula::Setting& s = options.setting;
  if (s.micro_batch > std::numeric_limits<Index>::max() / s.world) {
    throw UnusableInput("--micro-batch times --world is too large to count");
  }
  const Index least = s.micro_batch * s.world;
  options.global_batch = whole_number("--global-batch", given.global_batch, 1, least);
  if (options.global_batch % least != 0) {
    const Index near = options.global_batch > std::numeric_limits<Index>::max() - least
                           ? least
                           : round_up(options.global_batch, least);
    throw UnusableInput(fmt::format("--global-batch {} is not a multiple of --micro-batch {} times {}; {} would do",
                                    options.global_batch, s.micro_batch, counted(s.world, "rank"), near));
  }
  s.micro_steps = options.global_batch / least;
}

/// The rows that a word of `--stage` stands for.
std::vector<const Stage*> stages_named(const std::string& word) {
  std::vector<const Stage*> all;
  for (const Stage& stage : stages()) {
    if (word == "all" ? !stage.offload : word == "offload" && stage.offload) all.push_back(&stage);
  }
  if (const Stage* one = stage_named(word); all.empty() && one != nullptr) all.push_back(one);
  if (!all.empty()) return all;
  throw UnusableInput(
      fmt::format("--stage '{}' is not known; all, baseline, 0, 1, 2, 3, offload, the name of a program or {} would do",
                  harmless(word, 40), stage_of_program("offload")->label));
}

void set_stages(const Given& given, PlanOptions& options) {
  const formula::Setting& s = options.setting;
  std::string words = *given.stage + ",";
  bool some_have_groups = false;
  for (std::size_t end; (end = words.find(',')) != std::string::npos; words.erase(0, end + 1)) {
    const std::string word = words.substr(0, end);
    const bool several = word == "all" || word == "offload";
    for (const Stage* stage : stages_named(word)) {
      some_have_groups = some_have_groups || stage->sharding_groups;
      if (s.shard_group > 0 && !several && !stage->sharding_groups) {
        throw UnusableInput(
            fmt::format("--shard-group {} is not for --stage {}, which has no sharding groups; --stage 3 would do",
                        s.shard_group, word));
      }
      if (s.local_first && !stage->local_first) {
        if (word == "all") continue;
        throw UnusableInput(fmt::format("--accumulation local-first is not for --stage {}: {}; ranks-first would do",
                                        word, kWhyNoLocalFirst));
      }
      if (s.delayed_update && !stage->delays_updates) {
        if (several) continue;
        throw UnusableInput(
            fmt::format("--delayed-update is not for --stage {}; baseline or offload-2-host would do", word));
      }
      options.stages.push_back(stage);
    }
  }
  if (s.shard_group > 0 && !some_have_groups) {
    throw UnusableInput(fmt::format(
        "--shard-group {} is for stage 3, which is not among the stages; --stage 3 would do", s.shard_group));
  }
}

PlanOptions checked(const Given& given, PlanOptions options) {
  formula::Setting& s = options.setting;
  if (!given.world && !options.paper_table1)
    throw UnusableInput("--world is missing: the number of ranks; --world 4 would do");
  s.world = whole_number("--world", given.world, 1, 4, formula::kMostRanks);
  s.bf16 = one_of_two("--precision", *given.precision, "fp32", "bf16");
  s.local_first = one_of_two("--accumulation", *given.accumulation, "ranks-first", "local-first");
  s.reshard_after_forward = one_of_two("--reshard-after-forward", *given.reshard, "off", "on");
  s.gpu = on_gpus(*given.backend);
  const std::string products = given.products.value_or(s.gpu ? "library" : "canonical");
  s.library_products = one_of_two("--products", products, "canonical", "library");
  s.ring = given.collectives == "ring";
  if (!s.ring) s.native = one_of_two("--collectives", *given.collectives, "canonical", "native");
  if (given.dropout) options.dropout = probability("--dropout", *given.dropout);
  s.dropout = options.dropout > 0;
  set_shard_group(given, s);
  s.wrap = whole_number("--wrap", given.wrap, 1, 1);
  s.tiles = whole_number("--tile", given.tile, 1, 1, 10'000);
  if (s.tiles > 1 && (s.wrap > 1 || s.checkpoint_activations)) {
    throw UnusableInput(
        fmt::format("--tile {} goes with neither --wrap nor --checkpoint-activations; 1 would do", s.tiles));
  }
  s.prefetch = whole_number("--prefetch", given.prefetch, 0, 1);
  const Index threads = whole_number("--threads", given.threads, 1, 1, 1024);
  s.threads = static_cast<int>(threads);
  if (given.bucket) s.bucket = positive_size("--bucket", *given.bucket);
  if (given.device_memory) options.caps.device = positive_size("--device-memory", *given.device_memory);
  if (given.host_memory) options.caps.host = positive_size("--host-memory", *given.host_memory);
  s.delayed_update = given.delayed_update;
  set_model(given, options);
  if (s.bare_parameters == 0 && s.tiles > s.width) {
    throw UnusableInput(
        fmt::format("--tile {} is more than the {} outputs of a product of --width {}; at most {} would do", s.tiles,
                    s.width, s.width, s.width));
  }
  set_batch(given, options);
  set_stages(given, options);
  if (!formula::countable(s)) {
    throw UnusableInput(
        "the sizes of the model, the batch and --world together are too large to count; smaller ones would do");
  }
  return options;
}

/// The paper's table has its models and ranks already.
void check_paper_options(const CLI::App& app) {
  for (const CLI::Option* option : app.parse_order()) {
    const std::string name = "--" + option->get_lnames()[0];
    if (name == "--paper-table1" || name == "--json" || name == "--markdown") continue;
    throw UnusableInput(fmt::format(
        "{} has no meaning with --paper-table1, whose models and ranks are the paper's; --json or --markdown would do",
        name));
  }
}

}  // namespace

std::optional<PlanOptions> parse_plan_options(int argc, const char* const* argv, std::string& text) {
  CLI::App app(
      "plan: what each stage of ZeRO holds and sends, on paper. Prints what one of N ranks holds at most, by category, "
      "and "
      "what it sends in a step. Sizes are exact and include padding; MB are 1e6 bytes.",
      "plan");
  app.get_formatter()->column_width(34);
  Given given;
  PlanOptions options;
  // CLI11 makes an empty text nothing where it fills an optional itself.
  const auto add = [&](const char* group, const char* name, Value& value, const char* what, const char* type) {
    return app
        .add_option_function<std::string>(
            name, [&value](const std::string& given_text) { value = given_text; }, what)
        ->type_name(type)
        ->group(group);
  };
  add("What to plan", "-n,--world", given.world,
      "ranks N; of the baseline, the ranks whose order of additions it follows", "N");
  add("What to plan", "--stage", given.stage,
      "a list with commas of baseline, 0, 1, 2, 3, all (of these), offload (all ways to run it), the name of a "
      "program, "
      "or offload-STAGE-OPTIMIZER[-PARAMS], such as offload-3-nvme-host (default all)",
      "STAGE");
  add("What to plan", "--device-memory", given.device_memory,
      "says what fits into a rank's memory of that SIZE, such as 512MiB or 16GB, and how many layers would", "SIZE");
  add("What to plan", "--host-memory", given.host_memory, "the same of host memory, which --stage offload needs",
      "SIZE");
  app.add_flag("--paper-table1", options.paper_table1, "Table 1 of the ZeRO paper (Rajbhandari et al. 2020), computed")
      ->group("What to plan");
  add("Model", "--model", given.model, "tiny, small, gpt2, gpt2-medium, gpt2-large or gpt2-xl (default tiny)",
      "PRESET");
  CLI::Option* shapes[] = {
      add("Model", "--layers", given.layers, "transformer blocks (default the preset's, as below)", "N"),
      add("Model", "--heads", given.heads, "attention heads; divide the width", "N"),
      add("Model", "--width", given.width, "elements of a token's vector", "N"),
      add("Model", "--context", given.context, "tokens of a sequence", "N"),
      add("Model", "--vocab", given.vocab, "tokens of the vocabulary", "N"),
      app.get_option("--model"),
  };
  add("Model", "--parameters", given.parameters,
      "model states of that many parameters, such as 7.5e9, without a model and without padding", "NUMBER");
  add("Training", "--micro-batch", given.micro_batch, "sequences of one forward and backward (default the preset's)",
      "N");
  add("Training", "--global-batch", given.global_batch,
      "sequences of a step over all ranks (default micro-batch times N)", "N");
  add("Training", "--precision", given.precision, "fp32 or bf16 (default fp32)", "TYPE");
  add("Training", "--dropout", given.dropout, "share of activations dropped (default 0)", "P");
  CLI::Option* checkpoint =
      app.add_flag("--checkpoint-activations", options.setting.checkpoint_activations,
                   "keeps only each layer's input of a forward pass, and computes the rest again in backward")
          ->group("Training");
  add("Training", "--accumulation", given.accumulation, "ranks-first or local-first (default ranks-first)", "ORDER");
  app.add_flag("--delayed-update", given.delayed_update,
               "offload and the baseline: a second gradient, and with offload the new parameters in host memory")
      ->group("Training");
  add("Training", "--backend", given.backend,
      "cpu or cuda: what a run with that --backend holds; plan asks no machine, so that it refuses auto (default cpu)",
      "NAME");
  add("Training", "--products", given.products, "canonical or library (default canonical, with --backend cuda library)",
      "KIND");
  add("Training", "--threads", given.threads, "threads for products, on the CPU (default 1)", "N");
  add("Sharding", "--wrap", given.wrap, "transformer blocks of a unit (default 1)", "N");
  add("Sharding", "--tile", given.tile,
      "offload and the baseline: parts of a block's products, each a unit of its own (default 1)", "T");
  add("Sharding", "--bucket", given.bucket, "largest collective, a SIZE (default one unit)", "SIZE");
  add("Sharding", "--collectives", given.collectives, "canonical, ring or native (default canonical)", "KIND");
  add("Sharding", "--prefetch", given.prefetch, "stage 3 and offload: units gathered ahead (default 1)", "N");
  add("Sharding", "--reshard-after-forward", given.reshard, "stage 3 and offload: on or off (default on)", "SWITCH");
  add("Sharding", "--shard-group", given.shard_group,
      "stage 3: ranks in a sharding group, a power of two that divides the ranks, or all (default all)", "S");
  app.add_flag("--json", options.json, "prints JSON, in bytes, with the names of summary.json")->group("Output");
  app.get_help_ptr()->group("Output");
  app.add_flag("--markdown", options.markdown, "prints the table as Markdown")->group("Output");
  try {
    parse(app, argc, argv);
  } catch (const CLI::CallForHelp&) {
    text = app.help();
    return std::nullopt;
  }
  if (options.paper_table1) check_paper_options(app);
  for (const CLI::Option* shape : shapes) {
    if (!given.parameters || shape->count() == 0) continue;
    throw UnusableInput(fmt::format(
        "--parameters plans without a model and {} is a part of one; one of the two would do", shape->get_name()));
  }
  for (const CLI::Option* option : {app.get_option("--dropout"), checkpoint}) {
    if (!given.parameters || option->count() == 0) continue;
    throw UnusableInput(fmt::format(
        "--parameters plans model states and {} changes activations; one of the two would do", option->get_name()));
  }
  if (options.json && options.markdown)
    throw UnusableInput("--json and --markdown are two forms of one output; one would do");
  return checked(given, std::move(options));
}

}  // namespace zero::tools
