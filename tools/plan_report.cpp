#include "tools/plan_report.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/largest_fit.h"
#include "tools/surprises.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

std::string separated(Index value) {  // 124,439,808
  std::string digits = std::to_string(value);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

const char* products_of(const formula::Setting& s) { return s.library_products ? "library" : "canonical"; }

std::string heading(const PlanOptions& options) {
  const formula::Setting& s = options.setting;
  std::string model = fmt::format("{} parameters", separated(formula::parameters(s)));
  if (s.bare_parameters == 0) {
    model = fmt::format("{}: {} layers, {} heads, width {}, context {}, vocabulary {}, {}", options.model, s.layers,
                        s.heads, s.width, s.context, s.vocab, model);
  }
  std::string batch;
  if (s.bare_parameters == 0)
    batch = fmt::format(", micro-batch {}, global batch {}", s.micro_batch, options.global_batch);
  if (s.checkpoint_activations) batch += ", activations checkpointed";
  if (s.dropout) batch += fmt::format(", dropout {:g}", options.dropout);
  std::string ranks = counted(s.world, "rank");
  if (s.shard_group > 0) ranks += fmt::format(" in groups of {} for stage 3", s.shard_group);
  if (s.gpu && s.bare_parameters == 0) ranks += fmt::format(", on GPUs with {} products", products_of(s));
  return wrapped(fmt::format("{}; {}, {}{}, {}", model, ranks, s.bf16 ? "bf16" : "fp32", batch,
                             counted(s.micro_steps, "micro-step")));
}

std::vector<Row> rows_of(const PlanOptions& options) {
  std::vector<Row> rows;
  for (const Stage* stage : options.stages) rows.push_back(formula_row(*stage, options.setting));
  return rows;
}

Table table_of(const std::vector<Row>& rows, const formula::Setting& s, ByteUnit unit) {
  const Index reference = formula_row(*stage_of_label("0"), s).model_states();
  Table table({"", "parameters", "gradients", "optimizer", "states", "smaller", "rest", "total", "sent/step"});
  for (const Row& row : rows) {
    table.add_row({row.program, unit.format(row.held("parameters")), unit.format(row.held("gradients")),
                   unit.format(row.held("optimizer")), unit.format(row.model_states()),
                   times_smaller(reference, row.model_states()), unit.format(row.total("device") - row.model_states()),
                   unit.format(row.total("device")), unit.format(row.sent_per_step())});
  }
  return table;
}

/// Whether anything moves between tiers in a step.
bool any_moves(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.moved.empty(); });
}

/// What each tier holds, and what moves between them in a step.
Table tier_table(const std::vector<Row>& rows, ByteUnit unit) {
  const bool moves = any_moves(rows);
  std::vector<std::string> headers = {"", "device", "host", "nvme"};
  if (moves) headers.insert(headers.end(), kDirections.begin(), kDirections.end());
  Table table(std::move(headers));
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.program, unit.format(row.total("device"))};
    for (const std::string_view tier : kLowerTiers) cells.push_back(unit.format(row.total(tier)));
    for (const char* direction : kDirections) {
      if (moves) cells.push_back(unit.format(row.moved_in(direction)));
    }
    table.add_row(std::move(cells));
  }
  return table;
}

/// Everything on the device but model states, by category.
Table rest_table(const std::vector<Row>& rows, ByteUnit unit) {
  constexpr std::array kCategories = {"activations",  "workspace",          "buckets",
                                      "partial_sums", "gradient_in_flight", "gathered"};
  std::vector<std::string> headers = {""};
  headers.insert(headers.end(), kCategories.begin(), kCategories.end());
  Table table(std::move(headers));
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.program};
    for (const char* category : kCategories) cells.push_back(unit.format(row.held(category)));
    table.add_row(std::move(cells));
  }
  return table;
}

/// What a forward pass keeps, layer by layer.
Table activations_table(const formula::Activations& a) {
  Table table({"", "each", "kept", "all"});
  const auto add = [&](const char* name, Index each, Index kept) {
    table.add_row({name, separated(each), separated(kept), separated(kept * each)});
  };
  add("a layer's input", a.layer_input, a.layers);
  add("the rest of a layer", a.layer_rest, a.rests);
  add("outside the layers", a.outside, 1);
  table.add_row({"total", "", "", separated(a.total())});
  return table;
}

/// The paper's formulas of the stages that are shown (ZeRO, figure 1).
std::string states_sentence(const std::vector<Row>& rows, const formula::Setting& s) {
  const Index p = formula::parameter_bytes(s), g = formula::gradient_bytes(s), o = formula::optimizer_bytes(s);
  const auto states_of = [&](std::string_view label) {
    const std::string all = fmt::format("{}P", p + g + o), slices = s.shard_group > 0 ? "S" : "N";
    return label == "1"   ? fmt::format("{}P + {}P/N", p + g, o)
           : label == "2" ? fmt::format("{}P + {}P/N", p, g + o)
           : label == "3" ? all + "/" + slices
                          : all;
  };
  const auto offloaded = [&](const offload::Offload& moved) {
    const auto tier = [](offload::Place place) {
      return place == offload::Place::device ? "on the device"
             : place == offload::Place::host ? "in host memory"
                                             : "in files";
    };
    const std::string parameters = fmt::format("{}P{}", p, moved.stage == 3 ? "/N" : ""),
                      optimizer = fmt::format("{}P/N", g + 12);  // fp32 weights of their own in fp32, too
    if (moved.optimizer == moved.parameters) return fmt::format("{}P/N {}", p + g + 12, tier(moved.optimizer));
    return fmt::format("{} {} and {} {}", parameters, tier(moved.parameters), optimizer, tier(moved.optimizer));
  };
  std::string stages;
  for (const Row& row : rows) {
    stages +=
        fmt::format("{}{} in {}", stages.empty() ? "" : ", ",
                    row.stage->offload ? offloaded(*row.stage->offload) : states_of(row.stage->label), row.program);
  }
  return fmt::format("states without padding, in bytes, for P = {} and N = {}{}: {}", separated(formula::parameters(s)),
                     s.world, s.shard_group > 0 ? fmt::format(", S = {}", s.shard_group) : "", stages);
}

Table fit_table(const PlanOptions& options, const std::vector<Row>& rows, ByteUnit unit) {
  const formula::Setting& s = options.setting;
  const bool bare = s.bare_parameters > 0;
  const bool lower = any_offload(rows);
  std::vector<std::string> headers = {"", "device"};
  if (lower) headers.insert(headers.end(), {"host", "nvme"});
  headers.insert(headers.end(), {"fits", bare ? "largest that fits: parameters" : "largest that fits: layers",
                                 bare ? "" : "parameters"});
  Table table(headers);
  for (const Row& row : rows) {
    const Index largest = largest_that_fits(*row.stage, s, options.caps);
    formula::Setting grown = s;
    grown.layers = std::max<Index>(largest, 0);
    const std::string parameters = largest < 0 || bare ? "" : separated(formula::parameters(grown));
    std::vector<std::string> cells = {row.program, unit.format(row.total("device"))};
    for (const std::string_view tier : kLowerTiers) {
      if (lower) cells.push_back(unit.format(row.total(tier)));
    }
    cells.insert(cells.end(),
                 {fits(row, options.caps) ? "yes" : "no", largest < 0 ? "none" : separated(largest), parameters});
    table.add_row(std::move(cells));
  }
  return table;
}

}  // namespace

std::string plan_text(const PlanOptions& options) {
  const formula::Setting& s = options.setting;
  const std::vector<Row> rows = rows_of(options);
  Index largest = 0;
  for (const Row& row : rows) {
    largest = std::max({largest, row.total("device"), row.sent_per_step(), row.total("host"), row.total("nvme")});
  }
  const ByteUnit unit = unit_for(largest);

  std::string text = heading(options);
  text += fmt::format("What a rank holds at most and sends in a step, in {} (1 {} = {} bytes):\n\n", unit.name,
                      unit.name, separated(unit.bytes));
  const auto printed = [&](const Table& table) { return options.markdown ? table.markdown() : table.text(); };
  text += printed(table_of(rows, s, unit)) + "\n";
  if (any_offload(rows)) {
    text +=
        fmt::format("What it holds in each tier{}:\n\n{}\n",
                    any_moves(rows) ? ", and what moves between tiers in a step" : "", printed(tier_table(rows, unit)));
  }
  if (s.bare_parameters == 0) text += "The rest by category:\n\n" + printed(rest_table(rows, unit)) + "\n";
  if (s.bare_parameters == 0) {
    text += "Activations by layer, in bytes:\n\n" + printed(activations_table(formula::activations(s))) + "\n";
  }
  if (options.caps.any()) {
    const auto& [device, host] = options.caps;
    text += fmt::format("Into {}{}{}, if all categories reach their peaks together:\n\n",
                        device ? in_words(*device) + " of device memory" : "", device && host ? " and " : "",
                        host ? in_words(*host) + " of host memory" : "");
    text += printed(fit_table(options, rows, unit)) + "\n";
  }
  text += wrapped("- " + states_sentence(rows, s));
  if (s.bare_parameters > 0) {
    text += wrapped("- model states only, without padding: --model and its parts plan the rest");
  } else if (s.bf16) {
    text += wrapped("- bf16 means parameters, gradients and activations; master weights, moments and sums are fp32");
  }
  for (const std::string& sentence : surprises(rows, s)) text += wrapped("- " + sentence);
  if (s.local_first && rows.size() > 1)
    text += wrapped(fmt::format("- stages 2 and 3 are left out: {}", kWhyNoLocalFirst));
  if (s.delayed_update) {
    text += wrapped(
        "- with a delayed update the baseline holds two gradients, and offload two slices of them and, in host memory, "
        "the new parameters; the programs that do not have it are left out");
  }
  return text;
}

std::string plan_json(const PlanOptions& options) {
  const formula::Setting& s = options.setting;
  const Index reference = formula_row(*stage_of_label("0"), s).model_states();
  nlohmann::ordered_json json = {{"schema", 1}, {"world", s.world}};
  nlohmann::ordered_json& given = json["options"];
  if (s.bare_parameters == 0) {
    given = {{"model", options.model},
             {"layers", s.layers},
             {"heads", s.heads},
             {"width", s.width},
             {"context", s.context},
             {"vocab", s.vocab},
             {"micro-batch", s.micro_batch}};
    given["global-batch"] = options.global_batch;
  }
  if (s.bare_parameters == 0) {
    given["checkpoint-activations"] = s.checkpoint_activations;
    given["dropout"] = options.dropout;
  }
  given["backend"] = s.gpu ? "cuda" : "cpu";
  given["products"] = products_of(s);
  given["precision"] = s.bf16 ? "bf16" : "fp32";
  given["accumulation"] = s.local_first ? "local-first" : "ranks-first";
  given["micro-steps"] = s.micro_steps;
  given["shard-group"] = s.shard_group > 0 ? s.shard_group : s.world;
  json["parameters"] = formula::parameters(s);
  if (s.bare_parameters == 0) {
    const formula::Activations a = formula::activations(s);
    json["activations"] = {{"layers", a.layers}, {"layer_input", a.layer_input}, {"layer_rest", a.layer_rest},
                           {"rests", a.rests},   {"outside", a.outside},         {"total", a.total()}};
  }
  json["stages"] = nlohmann::ordered_json::array();
  for (const Row& row : rows_of(options)) {
    formula::Setting padded_for = setting_for(*row.stage, s);
    const formula::Formula f = row.stage->formula(padded_for);
    if (row.stage->single_process) padded_for.world = 1;
    nlohmann::ordered_json stage = {{"stage", row.stage->label}, {"program", row.program}};
    stage["padded_parameters"] = formula::padded_parameters(padded_for);
    stage["memory"] = nlohmann::ordered_json::object();
    for (const auto& [name, bytes] : row.memory) {
      const std::size_t space = name.find(' ');
      if (space == std::string::npos)
        stage["memory"][name] = bytes;
      else
        stage[name.substr(0, space) + "_memory"][name.substr(space + 1)] = bytes;
    }
    stage["model_states"] = row.model_states();
    stage["times_smaller"] =
        row.model_states() == 0
            ? nlohmann::ordered_json()
            : nlohmann::ordered_json(static_cast<double>(reference) / static_cast<double>(row.model_states()));
    stage["total"] = row.total("device");
    if (row.stage->offload || s.gpu) stage["host_total"] = row.total("host");
    if (row.stage->offload) {
      stage["nvme_total"] = row.total("nvme");
      stage["offload"] = row.moved;
    }
    stage["communication"] = nlohmann::ordered_json::object();
    for (const auto& [purpose, bytes] : row.sent) {
      const formula::Sent& sent = f.communication.at(purpose);
      stage["communication"][purpose] = {{"collective", sent.collective}, {"formula", bytes}, {"calls", sent.calls}};
    }
    stage["sent"] = row.sent_per_step();
    if (options.caps.any()) {
      stage["fits"] = fits(row, options.caps);
      const Index largest = largest_that_fits(*row.stage, s, options.caps);
      stage[s.bare_parameters > 0 ? "largest_parameters" : "largest_layers"] =
          largest < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(largest);
    }
    json["stages"].push_back(std::move(stage));
  }
  return json.dump(1) + "\n";
}

}  // namespace zero::tools
