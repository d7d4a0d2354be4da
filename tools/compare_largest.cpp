#include "tools/compare_largest.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/model/config.h"
#include "tools/compare_run.h"
#include "tools/program_options.h"
#include "tools/run_setting.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

Index size_of(const std::string& option, const std::string& text) {
  try {
    return parse_bytes(text);
  } catch (const UnusableInput& error) {
    throw UnusableInput(fmt::format("{}: {}", option, error.what()));
  }
}

/// The options of the command line as a summary would name them.
nlohmann::json as_options(const Arguments& arguments) {
  nlohmann::json options = {{"layers", 1}};
  for (const std::string_view name : kProgramOptions) {
    const std::string option = fmt::format("--{}", name);
    const std::optional<std::string> value = arguments.value(option);
    if (!value) continue;
    if (name == "bucket") {
      options[std::string(name)] = size_of(option, *value);
    } else {
      options[std::string(name)] = *value;
    }
  }
  for (const std::string_view name : kProgramFlags) {
    if (arguments.has(fmt::format("--{}", name))) options[std::string(name)] = true;
  }
  const std::string model = arguments.value("--model").value_or("tiny");
  const std::optional<ModelPreset> preset = find_preset(model);
  if (!preset) throw UnusableInput(fmt::format("--model '{}' is not known; tiny would do", harmless(model, 40)));
  const ModelConfig& c = preset->config;
  const nlohmann::json shapes = {{"heads", c.heads},
                                 {"width", c.width},
                                 {"context", c.context},
                                 {"vocab", c.vocab},
                                 {"micro-batch", preset->micro_batch}};
  for (const auto& [name, value] : shapes.items()) {
    if (!options.contains(name)) options[name] = value;
  }
  return options;
}

Index parameters_of(const LargestReport& report, Index layers) {
  formula::Setting s = report.largest.setting;
  s.layers = layers;
  return layers > 0 ? formula::parameters(s) : 0;
}

/// Of the whole model, as the paper counts them: what one process without offload would hold.
Index states_of(const LargestReport& report, Index layers) {
  const formula::Setting& s = report.largest.setting;
  return parameters_of(report, layers) *
         (formula::parameter_bytes(s) + formula::gradient_bytes(s) + formula::optimizer_bytes(s));
}

Table table_of(const LargestReport& report) {
  Table table({"", "layers", "formula", "parameters", "formula", "states", "x cap", "ended by", "runs"});
  const double cap = static_cast<double>(report.largest.caps.device.value_or(1));
  for (const LargestRow& row : report.rows) {
    const Index states = states_of(report, row.measured);
    table.add_row({row.name, std::to_string(row.measured), std::to_string(row.formula),
                   std::to_string(parameters_of(report, row.measured)),
                   std::to_string(parameters_of(report, row.formula)), in_words(states),
                   fmt::format("{:.2f}", static_cast<double>(states) / cap), row.ended_by.empty() ? "-" : row.ended_by,
                   std::to_string(row.runs)});
  }
  return table;
}

std::string heading(const LargestReport& report) {
  const formula::Setting& s = report.largest.setting;
  const Caps& caps = report.largest.caps;
  return fmt::format(
      "The most layers of width {} that train a step on {}{}{}{}, micro-batch {}, context {}, with {} a rank on the "
      "device{}. States are the whole model's, x cap how many times they are the device's memory:",
      s.width, counted(report.ranks, "rank"), s.bf16 ? " in bf16" : " in fp32",
      s.checkpoint_activations ? ", activations checkpointed" : "", s.dropout ? ", with dropout" : "", s.micro_batch,
      s.context, format_bytes(*caps.device),
      caps.host ? fmt::format(" and {} in host memory", format_bytes(*caps.host)) : "");
}

std::vector<std::string> sentences(const LargestReport& report) {
  std::vector<std::string> all;
  for (const LargestRow& row : report.rows) {
    if (row.right()) continue;
    all.push_back(fmt::format("{}: formula {}, measured {}", row.name, counted(row.formula, "layer"), row.measured));
  }
  const auto above = std::find_if(report.rows.begin(), report.rows.end(),
                                  [](const LargestRow& row) { return row.right() && row.measured - row.formula > 1; });
  if (above != report.rows.end()) {
    all.push_back(fmt::format(
        "{}: {} more than by the formula, which adds up the embedding unit gathered and its gradient: it is the "
        "largest unit, and the two are never there together; a smaller --vocab would show them equal",
        above->name, counted(above->measured - above->formula, "layer")));
  } else if (all.empty()) {
    all.emplace_back("Measured within one layer of the formula in every row");
  }
  return all;
}

}  // namespace

Largest read_largest(std::vector<std::string>& arguments, Index ranks) {
  const Arguments given(arguments);
  for (const char* option : {"--layers", "--steps"}) {
    if (!given.has(option)) continue;
    throw UnusableInput(fmt::format("{} is what --largest chooses; --width and --device-memory would do", option));
  }
  if (given.has("--verify")) {
    throw UnusableInput("--verify holds a baseline beside the run, outside its caps; --largest without it would do");
  }
  if (given.value("--backend") == "auto") {
    throw UnusableInput(
        "--largest asks formulas first, which have to know the backend; --backend cpu or cuda would do");
  }
  std::vector<std::pair<std::string, std::string>> chosen = {
      {"--steps", "1"},
      {"--device-memory", given.value("--backend") == "cuda" ? "64MiB" : "16MiB"},  // cuBLAS works in 32 of them
      {"--backend", "cpu"}};
  if (!given.has("--model")) {
    chosen.insert(chosen.end(), {{"--heads", "4"}, {"--width", "64"}, {"--context", "64"}, {"--micro-batch", "1"}});
  }
  for (const auto& [option, value] : chosen) {
    if (!given.has(option)) arguments.insert(arguments.end(), {option, value});
  }
  const Arguments all(arguments);
  Largest largest;
  const nlohmann::json options = as_options(all);
  largest.setting = setting_of(options, options, ranks);
  largest.caps.device = size_of("--device-memory", *all.value("--device-memory"));
  if (const auto host = all.value("--host-memory")) largest.caps.host = size_of("--host-memory", *host);
  return largest;
}

LargestRow find_largest(const Job& job, const Largest& largest, const std::function<CappedRun(Index layers)>& train) {
  LargestRow row;
  row.name = job.name;
  row.stage = job.expected;
  const Index fit = largest_that_fits(*row.stage, setting_for(*row.stage, largest.setting), largest.caps);
  const std::vector<Index> units = formula::padded_units(largest.setting);
  const auto holds = [&](const char* category) {
    const formula::Formula formula = row.stage->formula(setting_for(*row.stage, largest.setting));
    return formula.memory.count(category) > 0;
  };
  row.formula_is_above = holds("gathered") && std::max_element(units.begin(), units.end()) == units.begin();
  row.formula = std::clamp<Index>(fit, 0, kMostProgramLayers);
  Index low = 0, high = kMostProgramLayers + 1;  // the most that trained, the fewest that did not
  for (Index next = std::max<Index>(row.formula, 1), step = 1; high - low > 1;) {
    const CappedRun run = train(next);
    ++row.runs;
    (run.trained ? low : high) = next;
    if (!run.trained) row.ended_by = run.tier;
    if (high > kMostProgramLayers) {
      next = std::min(low + step, kMostProgramLayers);
    } else if (low == 0) {
      next = std::max<Index>(high - step, 1);
    } else {
      next = low + (high - low) / 2;
    }
    step *= 2;
  }
  row.measured = low;
  return row;
}

CappedRun train_capped(const Job& job, Index layers, Index ranks, const std::string& out, double limit_seconds,
                       std::size_t number, std::size_t total) {
  Job of_size = job;
  of_size.arguments.insert(of_size.arguments.end(), {"--layers", std::to_string(layers)});
  of_size.detail = counted(layers, "layer");
  try {
    run_job(of_size, ranks, out, limit_seconds, number, total);
    return {true, ""};
  } catch (const Error& error) {
    // The sentence of a cap (common/device/memory_ledger.h).
    const std::string_view sentence = error.what();
    const bool by_cap = error.status() == ExitStatus::failed && sentence.find("asked for") != std::string_view::npos &&
                        sentence.find("ask plan what fits") != std::string_view::npos;
    if (!by_cap) throw;
    return {false, sentence.find("held on the host") != std::string_view::npos ? "host" : "device"};
  }
}

bool LargestReport::right() const {
  return std::all_of(rows.begin(), rows.end(), [](const LargestRow& row) { return row.right(); });
}

std::string largest_text(const LargestReport& report) {
  std::string text = wrapped(heading(report)) + "\n" + table_of(report).text() + "\n";
  for (const std::string& note : report.notes) text += wrapped("- " + note);
  for (const std::string& sentence : sentences(report)) text += wrapped(sentence);
  return text;
}

std::string largest_markdown(const LargestReport& report) {
  std::string text = heading(report) + "\n\n" + table_of(report).markdown() + "\n";
  for (const std::string& note : report.notes) text += "- " + note + "\n";
  for (const std::string& sentence : sentences(report)) text += "- " + sentence + "\n";
  return text;
}

std::string largest_json(const LargestReport& report) {
  const Caps& caps = report.largest.caps;
  nlohmann::ordered_json json = {{"schema", 1}, {"ranks", report.ranks}, {"right", report.right()}};
  json["device-memory"] = *caps.device;
  json["host-memory"] = caps.host ? nlohmann::ordered_json(*caps.host) : nlohmann::ordered_json();
  json["programs"] = nlohmann::ordered_json::array();
  for (const LargestRow& row : report.rows) {
    json["programs"].push_back(
        {{"program", row.name},
         {"layers", {{"formula", row.formula}, {"measured", row.measured}}},
         {"parameters",
          {{"formula", parameters_of(report, row.formula)}, {"measured", parameters_of(report, row.measured)}}},
         {"model_states", states_of(report, row.measured)},
         {"ended_by", row.ended_by},
         {"runs", row.runs}});
  }
  return json.dump(1) + "\n";
}

std::string largest_csv(const LargestReport& report) {
  std::string text =
      csv_line({"program", "layers", "layers_formula", "parameters", "parameters_formula", "model_states", "ended_by"});
  for (const LargestRow& row : report.rows) {
    text += csv_line({row.name, std::to_string(row.measured), std::to_string(row.formula),
                      std::to_string(parameters_of(report, row.measured)),
                      std::to_string(parameters_of(report, row.formula)),
                      std::to_string(states_of(report, row.measured)), row.ended_by});
  }
  return text;
}

}  // namespace zero::tools
