#include "tools/run_setting.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "common/base/error.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(const json& options, const json& otherwise) : options_(options), otherwise_(otherwise) {}

  [[nodiscard]] std::optional<std::string> text(const char* name) const {
    const auto own = option_text(options_, name);
    return own ? own : option_text(otherwise_, name);
  }
  [[nodiscard]] Index count(const char* name, Index least, std::optional<Index> absent = std::nullopt) const {
    const auto value = text(name);
    if (!value && absent) return *absent;
    constexpr Index kMost = Index{1} << 40;  // times as many ranks fits an Index
    char* end = nullptr;
    const long long number = value ? std::strtoll(value->c_str(), &end, 10) : -1;
    if (!value || value->empty() || *end != '\0' || number < least || number > kMost) {
      throw UnusableInput(fmt::format("the options of a run do not say a usable --{}: {}", name,
                                      value ? harmless(*value, 40) : "it is missing"));
    }
    return number;
  }
  [[nodiscard]] bool is(const char* name, const char* value) const { return text(name) == value; }

 private:
  const json& options_;
  const json& otherwise_;
};

}  // namespace

std::optional<std::string> option_text(const json& options, const char* name) {
  const auto found = options.find(name);
  if (found == options.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  return found->dump();
}

formula::Setting setting_of(const json& options, const json& otherwise, Index ranks) {
  const Reader read(options, otherwise);
  formula::Setting s;
  s.world = ranks;
  s.layers = read.count("layers", 0);
  s.heads = read.count("heads", 1);
  s.width = read.count("width", 1);
  s.context = read.count("context", 1);
  s.vocab = read.count("vocab", 1);
  s.micro_batch = read.count("micro-batch", 1);
  const Index per_micro_step = s.micro_batch * ranks;
  const Index global = read.count("global-batch", 1, per_micro_step);
  if (global % per_micro_step != 0) {
    throw UnusableInput(
        fmt::format("the options of a run say --global-batch {}, which is not a multiple of --micro-batch {} times {}",
                    global, s.micro_batch, counted(ranks, "rank")));
  }
  s.micro_steps = global / per_micro_step;
  s.bf16 = read.is("precision", "bf16");
  s.local_first = read.is("accumulation", "local-first");
  s.checkpoint_activations = read.is("checkpoint-activations", "true");
  const std::optional<std::string> dropout = read.text("dropout");
  s.dropout = dropout && std::strtod(dropout->c_str(), nullptr) > 0;
  s.ring = read.is("collectives", "ring");
  s.shard_group = read.count("shard-group", 1, 0);
  if (s.shard_group > 0 && s.world % s.shard_group != 0) {
    throw UnusableInput(fmt::format("the options of a run say --shard-group {}, which does not divide {}",
                                    s.shard_group, counted(s.world, "rank")));
  }
  s.wrap = read.count("wrap", 1, 1);
  s.bucket = read.count("bucket", 1, 0);
  s.native = read.is("collectives", "native");
  s.gpu = read.is("backend", "cuda");
  s.library_products = read.text("products").value_or(s.gpu ? "library" : "canonical") == "library";
  s.threads = static_cast<int>(std::min<Index>(read.count("threads", 1, 1), 4096));
  s.prefetch = read.count("prefetch", 0, 1);
  s.reshard_after_forward = !read.is("reshard-after-forward", "off") && !read.is("reshard-after-forward", "false");
  s.delayed_update = read.is("delayed-update", "true");
  s.tiles = read.count("tile", 1, 1);
  if (!formula::countable(s)) throw UnusableInput("the options of a run describe a model that is too large to count");
  return s;
}

const Stage* stage_of_run(const std::string& executable, const json& options) {
  const Stage* stage = stage_of_program(executable);
  if (stage == nullptr || !stage->offload) return stage;
  const std::string number = option_text(options, "stage").value_or(""),
                    optimizer = option_text(options, "offload-optimizer").value_or("host"),
                    parameters = option_text(options, "offload-params").value_or("none");
  stage = offload_stage(number, optimizer, parameters);
  if (stage != nullptr) return stage;
  throw UnusableInput(fmt::format(
      "offload has no --stage {} with --offload-optimizer {} and --offload-params {}; 2, host and none would do",
      number.empty() ? "by default" : harmless(number, 40), harmless(optimizer, 40), harmless(parameters, 40)));
}

}  // namespace zero::tools
