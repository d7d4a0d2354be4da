#include "tools/plan_report.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/surprises.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

std::string separated(Index value) {  // 124,439,808
  std::string digits = std::to_string(value);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

/// With four significant digits, or all of those before the point: 30.09, 16000.
std::string four_digits(double value) {
  return value < 1000 ? fmt::format("{:.4g}", value) : fmt::format("{:.0f}", value);
}

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
  const std::string groups =
      s.shard_group > 0 ? fmt::format(" in groups of {} for stage 3", s.shard_group) : std::string();
  return wrapped(fmt::format("{}; {}{}, {}{}, {}", model, counted(s.world, "rank"), groups, s.bf16 ? "bf16" : "fp32",
                             batch, counted(s.micro_steps, "micro-step")));
}

std::vector<Row> rows_of(const PlanOptions& options) {
  std::vector<Row> rows;
  for (const Stage* stage : options.stages) rows.push_back(formula_row(*stage, options.setting));
  if (options.setting.bare_parameters == 0) return rows;
  for (Row& row : rows) {  // what is not about parameters has no meaning without a model
    std::erase_if(row.memory, [](const auto& entry) {
      return entry.first != "parameters" && entry.first != "gradients" && entry.first != "optimizer";
    });
    row.sent.erase("scalars");
  }
  return rows;
}

Table table_of(const std::vector<Row>& rows, const formula::Setting& s, ByteUnit unit) {
  const Index reference = formula_row(*stage_of_label("0"), s).model_states();
  Table table({"", "parameters", "gradients", "optimizer", "states", "smaller", "rest", "total", "sent/step"});
  for (const Row& row : rows) {
    table.add_row({row.program, unit.format(row.held("parameters")), unit.format(row.held("gradients")),
                   unit.format(row.held("optimizer")), unit.format(row.model_states()),
                   times_smaller(reference, row.model_states()), unit.format(row.total() - row.model_states()),
                   unit.format(row.total()), unit.format(row.sent_per_step())});
  }
  return table;
}

/// Everything but model states, by category.
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
  std::string stages;
  for (const Row& row : rows) {
    stages += fmt::format("{}{} in {}", stages.empty() ? "" : ", ", states_of(row.stage->label), row.program);
  }
  return fmt::format("states without padding, in bytes, for P = {} and N = {}{}: {}", separated(formula::parameters(s)),
                     s.world, s.shard_group > 0 ? fmt::format(", S = {}", s.shard_group) : "", stages);
}

Table fit_table(const PlanOptions& options, const std::vector<Row>& rows, ByteUnit unit) {
  const formula::Setting& s = options.setting;
  const bool bare = s.bare_parameters > 0;
  Table table({"", "total", "fits", bare ? "largest that fits: parameters" : "largest that fits: layers",
               bare ? "" : "parameters"});
  for (const Row& row : rows) {
    const Index largest = largest_that_fits(*row.stage, s, *options.device_memory);
    formula::Setting grown = s;
    grown.layers = std::max<Index>(largest, 0);
    const std::string parameters = largest < 0 || bare ? "" : separated(formula::parameters(grown));
    table.add_row({row.program, unit.format(row.total()), row.total() <= *options.device_memory ? "yes" : "no",
                   largest < 0 ? "none" : separated(largest), parameters});
  }
  return table;
}

Index held(const Stage& stage, const formula::Setting& s) {
  PlanOptions one;
  one.setting = s;
  one.stages = {&stage};
  return rows_of(one)[0].total();
}

}  // namespace

Index largest_that_fits(const Stage& stage, const formula::Setting& setting, Index bytes) {
  const bool bare = setting.bare_parameters > 0;
  const auto of_size = [&](Index size) {
    formula::Setting s = setting;
    (bare ? s.bare_parameters : s.layers) = size;
    return s;
  };
  // Every size holds more than the one before. What can be counted at all is found first, which costs nothing.
  Index low = bare ? 1 : 0, high = bare ? Index{1} << 50 : formula::kMostLayers;
  for (Index beyond = high + 1, good = low; beyond - good > 1; high = good) {
    const Index middle = good + (beyond - good) / 2;
    (formula::countable(of_size(middle)) ? good : beyond) = middle;
  }
  Index held_low = held(stage, of_size(low)), held_high = held(stage, of_size(high));
  if (held_low > bytes) return -1;
  if (held_high <= bytes) return high;
  // A formula takes time in proportion to the layers. It is almost a line, which says where to look; every other look
  // is in the middle, for where it is none.
  for (bool by_line = true; high - low > 1; by_line = !by_line) {
    const double part =
        by_line ? static_cast<double>(bytes - held_low) / static_cast<double>(held_high - held_low) : 0.5;
    const Index offset = static_cast<Index>(part * static_cast<double>(high - low));
    const Index size = low + std::clamp<Index>(offset, 1, high - low - 1);
    const Index bytes_of_size = held(stage, of_size(size));
    (bytes_of_size <= bytes ? low : high) = size;
    (bytes_of_size <= bytes ? held_low : held_high) = bytes_of_size;
  }
  return low;
}

std::string plan_text(const PlanOptions& options) {
  const formula::Setting& s = options.setting;
  const std::vector<Row> rows = rows_of(options);
  Index largest = 0;
  for (const Row& row : rows) largest = std::max({largest, row.total(), row.sent_per_step()});
  const ByteUnit unit = unit_for(largest);

  std::string text = heading(options);
  text += fmt::format("What a rank holds at most and sends in a step, in {} (1 {} = {} bytes):\n\n", unit.name,
                      unit.name, separated(unit.bytes));
  const auto printed = [&](const Table& table) { return options.markdown ? table.markdown() : table.text(); };
  text += printed(table_of(rows, s, unit)) + "\n";
  if (s.bare_parameters == 0) text += "The rest by category:\n\n" + printed(rest_table(rows, unit)) + "\n";
  if (s.bare_parameters == 0) {
    text += "Activations by layer, in bytes:\n\n" + printed(activations_table(formula::activations(s))) + "\n";
  }
  if (options.device_memory) {
    text += fmt::format("Into {} of device memory, if all categories reach their peaks together:\n\n",
                        in_words(*options.device_memory));
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
    stage["memory"] = row.memory;
    stage["model_states"] = row.model_states();
    stage["times_smaller"] = static_cast<double>(reference) / static_cast<double>(row.model_states());
    stage["total"] = row.total();
    stage["communication"] = nlohmann::ordered_json::object();
    for (const auto& [purpose, bytes] : row.sent) {
      const formula::Sent& sent = f.communication.at(purpose);
      stage["communication"][purpose] = {{"collective", sent.collective}, {"formula", bytes}, {"calls", sent.calls}};
    }
    stage["sent"] = row.sent_per_step();
    if (options.device_memory) {
      stage["fits"] = row.total() <= *options.device_memory;
      const Index largest = largest_that_fits(*row.stage, s, *options.device_memory);
      stage[s.bare_parameters > 0 ? "largest_parameters" : "largest_layers"] =
          largest < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(largest);
    }
    json["stages"].push_back(std::move(stage));
  }
  return json.dump(1) + "\n";
}

std::string paper_table1(const PlanOptions& options) {
  Table table({"N", "Pos", "Pos+g", "Pos+g+p", "Pos", "Pos+g", "Pos+g+p", "Pos", "Pos+g", "Pos+g+p"});
  table.group_columns({"7.5B", "128B", "1T"});
  nlohmann::ordered_json json = {{"schema", 1}, {"unit", "GB"}, {"rows", nlohmann::ordered_json::array()}};
  for (const Index world : {1, 4, 16, 64, 256, 1024}) {
    std::vector<std::string> cells = {std::to_string(world)};
    for (const Index parameters : {Index{7500000000}, Index{128000000000}, Index{1000000000000}}) {
      for (const char* stage : {"1", "2", "3"}) {
        formula::Setting s;
        s.world = world;
        s.bf16 = true;                           // 16-bit parameters and gradients, fp32 master weights and moments
        s.bare_parameters = parameters * world;  // then every slice is whole, and the formula is linear
        const Index bytes = formula::model_states(stage_of_label(stage)->formula(s));
        constexpr Index kGiga = 1000000000;
        const double gigabytes = static_cast<double>(bytes) / static_cast<double>(world * kGiga);
        cells.push_back(four_digits(gigabytes));
        json["rows"].push_back(
            {{"parameters", parameters}, {"world", world}, {"stage", stage}, {"model_states", gigabytes}});
      }
    }
    table.add_row(std::move(cells));
  }
  if (options.json) return json.dump(1) + "\n";
  return wrapped(
             "Table 1 of the ZeRO paper, computed: GB (1e9 bytes) of model states a device, 16-bit training with fp32 "
             "master weights and moments, stages 1 (Pos), 2 (Pos+g), 3 (Pos+g+p) at N devices, for models of 7.5e9, "
             "128e9 and 1e12 parameters:") +
         "\n" + (options.markdown ? table.markdown() : table.text()) + "\n" +
         wrapped("- four significant digits; --json has all") +
         wrapped("- the paper rounds its first model's cells and cuts off the others': 513.5 is printed as 513");
}

}  // namespace zero::tools
