#include "tools/compare_report.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace zero::tools {
namespace {

using nlohmann::ordered_json;

/// Model states of stage 0: measured where it ran.
Index stage0_states(const Report& report) {
  const Stage* zero = stage_of_label("0");
  for (const Judged& row : report.rows) {
    if (row.held.stage == zero) return row.held.model_states();
  }
  return formula_row(*zero, report.setting).model_states();
}

ByteUnit unit_of(const Report& report) {
  Index largest = 0;
  for (const Judged& row : report.rows) {
    largest = std::max({largest, row.held.model_states(), row.formula.model_states(), row.held.activations(),
                        row.held.buffers(), row.held.sent_per_step(), row.held.total("host"), row.held.total("nvme")});
  }
  return unit_for(largest);
}

std::string equality(const Judged& row) {
  if (row.equal) return "yes";
  if (row.must_be_equal) return "no";
  return row.largest_difference == 0 ? "0" : fmt::format("{:.0e}", row.largest_difference);
}

/// With so many digits after the point, or with an exponent where that would be long.
std::string short_number(double value, int digits) {
  if (std::abs(value) >= 1e7) return fmt::format("{:.3e}", value);
  return fmt::format("{:.{}f}", value, std::abs(value) >= 1e4 ? 0 : digits);
}

Table table_of(const Report& report, ByteUnit unit) {
  Table table({"", "states", "formula", "smaller", "activ.", "buffers", "sent", "s/step", "tokens/s", "loss", "equal"});
  const Index reference = stage0_states(report);
  for (const Judged& row : report.rows) {
    table.add_row({harmless(row.name, 60), unit.format(row.held.model_states()),
                   unit.format(row.formula.model_states()), times_smaller(reference, row.held.model_states()),
                   unit.format(row.held.activations()), unit.format(row.held.buffers()),
                   row.bytes_are_counted ? unit.format(row.held.sent_per_step()) : "-",
                   short_number(row.seconds_per_step, 3), short_number(row.tokens_per_second, 0),
                   short_number(row.last_loss, 4), equality(row)});
  }
  return table;
}

std::vector<Row> held_rows(const Report& report) {
  std::vector<Row> rows;
  for (const Judged& row : report.rows) rows.push_back(row.held);
  return rows;
}

Index all_tiers(const Row& row) { return row.total("device") + row.total("host") + row.total("nvme"); }

/// Where the bytes are, and what moves between tiers in a step.
Table tier_table(const Report& report, ByteUnit unit) {
  Table table({"", "device", "host", "nvme", "all", "formula", "down", "up", "read", "written"});
  for (const Judged& row : report.rows) {
    std::vector<std::string> cells = {harmless(row.name, 60), unit.format(row.held.total("device"))};
    for (const std::string_view tier : kLowerTiers) cells.push_back(unit.format(row.held.total(tier)));
    cells.push_back(unit.format(all_tiers(row.held)));
    cells.push_back(unit.format(all_tiers(row.formula)));
    for (const char* direction : kDirections) cells.push_back(unit.format(row.held.moved_in(direction)));
    table.add_row(std::move(cells));
  }
  return table;
}

constexpr const char* kTierHeading =
    "What a rank holds in each tier, all of it beside its formula, and what moves between tiers in a step:";

std::string heading(const Report& report, ByteUnit unit) {
  const formula::Setting& s = report.setting;
  return fmt::format(
      "{} ({} parameters) on {}, {}, {} of micro-batch {} in a step. A rank's model states on the device "
      "beside their formula, activations, other buffers, and bytes sent in a step, in {}; s/step and tokens/s of the "
      "median step:",
      report.model.empty() ? "A model" : harmless(report.model, 40), formula::parameters(s),
      counted(report.ranks, "rank"), counted(report.steps, "step"), counted(s.micro_steps, "micro-step"), s.micro_batch,
      unit.name);
}

bool all_equal(const Report& report) {
  return std::all_of(report.rows.begin(), report.rows.end(), [](const Judged& row) { return row.equal; });
}

/// What is wrong; nothing where all is well.
std::vector<std::string> findings(const Report& report) {
  std::vector<std::string> sentences;
  for (const Judged& row : report.rows) {
    for (const std::string& finding : row.findings)
      sentences.push_back(fmt::format("{}: {}", harmless(row.name, 60), finding));
  }
  return sentences;
}

/// The sentence where nothing is wrong.
std::string verdict(const Report& report) {
  return fmt::format(
      "{}; all hold{} to the byte what their formulas say",
      report.rows.size() == 1 ? "Nothing to be equal to"
      : all_equal(report)
          ? fmt::format("All {} programs end with equal bits: parameters, moments, every loss and gradient norm",
                        report.rows.size())
          : "Ring and native collectives add in another order, so that the last column is the largest difference of a "
            "loss",
      any_offload(held_rows(report)) ? ", send and move" : " and send");
}

std::vector<std::string> notes(const Report& report) {
  const std::vector<Row> rows = held_rows(report);
  std::vector<std::string> sentences = report.notes;
  for (std::string& surprise : surprises(rows, report.setting)) sentences.push_back(std::move(surprise));
  for (const Judged& row : report.rows) {
    if (row.held.stage != nullptr) continue;
    sentences.push_back(fmt::format(
        "{}: no formula of ours for {}; judged by its own", harmless(row.name, 60),
        row.executable == row.name ? "this name" : "the name " + harmless(row.executable, 40) + " in its summary"));
  }
  if (report.setting.native &&
      std::any_of(report.rows.begin(), report.rows.end(), [](const Judged& row) { return !row.bytes_are_counted; })) {
    sentences.push_back("native collectives do not show what they send");
  }
  const bool in_another_order =
      std::any_of(report.rows.begin(), report.rows.end(), [](const Judged& row) { return !row.must_be_equal; });
  if (in_another_order && report.rows.size() > 1 && all_equal(report)) {
    sentences.push_back("equal here; with 3 or more ranks these collectives add in another order");
  }
  if (report.ranks > 1 && report.rows.size() > 1 && rows[0].stage != nullptr && rows[0].stage->single_process) {
    sentences.push_back(
        fmt::format("the baseline's step is that of one process that runs the micro-batches of all {} one "
                    "after the other",
                    counted(report.ranks, "rank")));
  }
  const auto cores = static_cast<Index>(std::thread::hardware_concurrency());
  if (report.ranks > cores) {
    sentences.push_back(
        fmt::format("{} share {}: seconds compare the programs with each other, not with a machine of one core a rank",
                    counted(report.ranks, "rank"), counted(cores, "core")));
  }
  return sentences;
}

ordered_json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

/// Formula beside measured, by name.
ordered_json bytes_json(const std::map<std::string, Index>& expected, const std::map<std::string, Index>& measured) {
  ordered_json all = ordered_json::object();
  for (const auto& [name, bytes] : expected) all[name] = {{"formula", bytes}, {"measured", 0}};
  for (const auto& [name, bytes] : measured) {
    if (!all.contains(name)) all[name] = {{"formula", 0}};
    all[name]["measured"] = bytes;
  }
  return all;
}

}  // namespace

bool Report::right() const {
  return std::all_of(rows.begin(), rows.end(), [](const Judged& row) { return row.right(); });
}

std::string report_text(const Report& report) {
  const ByteUnit unit = unit_of(report);
  std::string text = wrapped(heading(report, unit)) + "\n" + table_of(report, unit).text() + "\n";
  if (any_offload(held_rows(report))) text += wrapped(kTierHeading) + "\n" + tier_table(report, unit).text() + "\n";
  const std::vector<std::string> wrong = findings(report);
  if (wrong.empty()) text += wrapped(verdict(report));
  for (const std::string& sentence : notes(report)) text += wrapped("- " + sentence);
  for (const std::string& sentence : wrong) text += wrapped(sentence);  // last, where it is read
  return text;
}

std::string report_markdown(const Report& report) {
  const ByteUnit unit = unit_of(report);
  std::string text = heading(report, unit) + "\n\n" + table_of(report, unit).markdown() + "\n";
  if (any_offload(held_rows(report))) {
    text += std::string(kTierHeading) + "\n\n" + tier_table(report, unit).markdown() + "\n";
  }
  const std::vector<std::string> wrong = findings(report);
  if (wrong.empty()) text += verdict(report) + "\n\n";
  for (const std::string& sentence : notes(report)) text += "- " + sentence + "\n";
  if (!wrong.empty()) text += "\n";
  for (const std::string& sentence : wrong) text += "- " + sentence + "\n";
  return text;
}

std::string report_json(const Report& report) {
  const Index reference = stage0_states(report);
  ordered_json json = {{"schema", 1}, {"ranks", report.ranks}, {"steps", report.steps}, {"right", report.right()}};
  json["programs"] = ordered_json::array();
  for (const Judged& row : report.rows) {
    ordered_json program = {{"program", row.name}};
    program["model_states"] = {{"formula", row.formula.model_states()}, {"measured", row.held.model_states()}};
    program["times_smaller"] =
        row.held.model_states() == 0
            ? ordered_json()
            : ordered_json(static_cast<double>(reference) / static_cast<double>(row.held.model_states()));
    program["activations"] = row.held.activations();
    program["buffers"] = row.held.buffers();
    program["sent"] = row.bytes_are_counted ? ordered_json(row.held.sent_per_step()) : ordered_json();
    program["memory"] = bytes_json(row.formula.memory, row.held.memory);
    for (const std::string_view tier : {"device", "host", "nvme"}) {
      program["tiers"][std::string(tier)] = {{"formula", row.formula.total(tier)}, {"measured", row.held.total(tier)}};
    }
    program["communication"] = bytes_json(row.formula.sent, row.held.sent);
    program["offload"] = bytes_json(row.formula.moved, row.held.moved);
    program["seconds_per_step"] = number(row.seconds_per_step);
    program["tokens_per_second"] = number(row.tokens_per_second);
    program["last_loss"] = number(row.last_loss);
    program["equal"] = row.equal;
    program["largest_difference"] = number(row.largest_difference);
    program["findings"] = row.findings;
    json["programs"].push_back(std::move(program));
  }
  json["surprises"] = notes(report);
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string report_csv(const Report& report) {
  const Index reference = stage0_states(report);
  std::vector<std::string> headers = {
      "program", "model_states", "model_states_formula", "times_smaller",        "activations", "buffers", "device",
      "host",    "nvme",         "sent_per_step",        "sent_per_step_formula"};
  headers.insert(headers.end(), kDirections.begin(), kDirections.end());
  for (const char* name : {"seconds_per_step", "tokens_per_second", "last_loss", "equal", "largest_difference"})
    headers.emplace_back(name);
  std::string text = csv_line(headers);
  for (const Judged& row : report.rows) {
    const Index states = row.held.model_states();
    std::vector<std::string> cells = {
        harmless(row.name, 60),
        std::to_string(states),
        std::to_string(row.formula.model_states()),
        states == 0 ? "" : fmt::format("{:.6g}", static_cast<double>(reference) / static_cast<double>(states)),
        std::to_string(row.held.activations()),
        std::to_string(row.held.buffers())};
    for (const std::string_view tier : {"device", "host", "nvme"})
      cells.push_back(std::to_string(row.held.total(tier)));
    cells.push_back(row.bytes_are_counted ? std::to_string(row.held.sent_per_step()) : "");
    cells.push_back(std::to_string(row.formula.sent_per_step()));
    for (const char* direction : kDirections) cells.push_back(std::to_string(row.held.moved_in(direction)));
    for (const std::string& cell : {fmt::format("{:.6g}", row.seconds_per_step),
                                    fmt::format("{:.6g}", row.tokens_per_second), fmt::format("{}", row.last_loss),
                                    std::string(row.equal ? "yes" : "no"), fmt::format("{}", row.largest_difference)}) {
      cells.push_back(cell);
    }
    text += csv_line(cells);
  }
  return text;
}

}  // namespace zero::tools
