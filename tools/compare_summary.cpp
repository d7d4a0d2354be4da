#include "tools/compare_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include "common/base/error.h"
#include "tools/surprises.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;  // of a file: a million steps fit
constexpr Index kMostCount = Index{1} << 50;                      // bytes: the sum over all names fits an Index
constexpr int kMostNesting = 32;                                  // far more than a summary has
constexpr double kLeastSeconds = 1e-9, kMostSeconds = 1e6;        // of a step: --limit is at most 1e6
constexpr double kMostTokens = 1e15;                              // a second
constexpr std::size_t kMostNames = 64;                            // categories, purposes

/// A value with the way to it, for errors.
class Part {
 public:
  Part(const json& value, std::string file, std::string way)
      : value_(value), file_(std::move(file)), way_(std::move(way)) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw UnusableInput(
        fmt::format("{} cannot be used: {} {}", harmless(file_), way_.empty() ? "it" : harmless(way_), why));
  }
  [[nodiscard]] Part at(const std::string& key) const {
    if (!value_.is_object()) refuse("is not an object");
    const auto found = value_.find(key);
    if (found == value_.end()) refuse(fmt::format("has no {}", key));
    return {*found, file_, way_.empty() ? key : way_ + "." + key};
  }
  [[nodiscard]] std::vector<Part> elements() const {
    if (!value_.is_array()) refuse("is not a list");
    std::vector<Part> all;
    for (const json& value : value_) all.emplace_back(value, file_, fmt::format("{}[{}]", way_, all.size()));
    return all;
  }
  [[nodiscard]] std::vector<std::pair<std::string, Part>> members() const {
    if (!value_.is_object()) refuse("is not an object");
    if (value_.size() > kMostNames) refuse("has too many names");
    std::vector<std::pair<std::string, Part>> all;
    for (const auto& [key, value] : value_.items()) all.emplace_back(key, Part(value, file_, way_ + "." + key));
    return all;
  }
  [[nodiscard]] Index count() const {
    if (value_.is_number_unsigned() && value_.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostCount)) {
      return static_cast<Index>(value_.get<std::uint64_t>());
    }
    refuse("is not a whole number of bytes or things");
  }
  [[nodiscard]] double number() const {
    if (value_.is_number()) return value_.get<double>();
    if (value_ == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value_ == "inf") return std::numeric_limits<double>::infinity();
    if (value_ == "-inf") return -std::numeric_limits<double>::infinity();
    refuse("is not a number");
  }
  /// A number from `least` to `most`, neither of them infinite.
  [[nodiscard]] double number_from(double least, double most) const {
    const double value = number();
    if (!(value >= least && value <= most))
      refuse(fmt::format("is {}, which is not from {} to {}", value, least, most));
    return value;
  }
  /// A count that may be absent or null.
  [[nodiscard]] std::optional<Index> count_if_any(const std::string& key) const {
    if (!value_.is_object()) refuse("is not an object");
    const auto found = value_.find(key);
    if (found == value_.end() || found->is_null()) return std::nullopt;
    return at(key).count();
  }
  [[nodiscard]] std::vector<double> numbers() const {
    if (!value_.is_array()) refuse("is not a list");
    std::vector<double> all;
    for (const json& value : value_)
      all.push_back(Part(value, file_, fmt::format("{}[{}]", way_, all.size())).number());
    return all;
  }
  [[nodiscard]] std::string text() const {
    if (!value_.is_string()) refuse("is not a text");
    return value_.get<std::string>();
  }
  [[nodiscard]] bool is_null() const { return value_.is_null(); }
  [[nodiscard]] const json& value() const { return value_; }

 private:
  const json& value_;
  std::string file_, way_;
};

json parsed(const std::string& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (error || !std::filesystem::exists(status)) throw UnusableInput(fmt::format("{} was not written", harmless(file)));
  if (!std::filesystem::is_regular_file(status)) throw UnusableInput(fmt::format("{} is not a file", harmless(file)));
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error || size > kMostBytes)
    throw UnusableInput(fmt::format("{} is larger than a summary can be", harmless(file)));
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw UnusableInput(fmt::format("{} cannot be read", harmless(file)));
  // Whoever walks over the values later does so by recursion.
  const auto check_nesting = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMostNesting)
      throw UnusableInput(
          fmt::format("{} cannot be used: it nests deeper than {} levels", harmless(file), kMostNesting));
    return true;
  };
  try {
    return json::parse(stream, check_nesting);
  } catch (const json::exception& exception) {
    throw UnusableInput(fmt::format("{} is not JSON: {}", harmless(file), harmless(exception.what())));
  }
}

/// The list of `ranks` objects, put in the order of their "rank".
std::vector<Part> by_rank(const Part& list, Index ranks) {
  const std::vector<Part> given = list.elements();
  if (static_cast<Index>(given.size()) != ranks)
    list.refuse(fmt::format("speaks of {} and not of {}", counted(static_cast<Index>(given.size()), "rank"), ranks));
  std::vector<const Part*> order(given.size(), nullptr);
  for (const Part& part : given) {
    const Index rank = part.at("rank").count();
    if (rank >= ranks || order[static_cast<std::size_t>(rank)] != nullptr)
      part.at("rank").refuse(fmt::format("is {}, which is not a rank or is there twice", rank));
    order[static_cast<std::size_t>(rank)] = &part;
  }
  std::vector<Part> ordered;
  for (const Part* part : order) ordered.push_back(*part);
  return ordered;
}

void read_memory(const Part& part, RankSummary& rank) {
  rank.process_peak = part.at("process_peak").count();
  for (const auto& [tier, contents] : part.at("tiers").members()) {
    TierBytes& held = rank.tiers[tier];
    held.peak = contents.count_if_any("peak");
    for (const auto& [category, bytes] : contents.at("categories").members()) {
      if (category.find(' ') != std::string::npos) contents.at("categories").refuse("has a name with a blank");
      const std::string name = Row::key(tier, category);
      rank.memory[name] = {bytes.at("formula").count(), bytes.at("current").count(), bytes.at("peak").count()};
      held.peaks_of_categories += rank.memory[name].peak;
    }
  }
}

void read_sent(const Part& part, RankSummary& rank) {
  for (const auto& [purpose, bytes] : part.members()) {
    if (purpose == "rank") continue;
    SentBytes& sent = rank.sent[purpose];
    sent.formula = bytes.at("formula").count();
    if (!bytes.at("sent").is_null()) sent.sent = bytes.at("sent").count();
    sent.calls = bytes.count_if_any("calls");
  }
}

/// Programs that offload nothing say so by no ranks, or not at all.
void read_moved(const Part& root, Summary& summary) {
  if (!root.value().contains("offload")) return;
  const Part list = root.at("offload").at("ranks");
  if (list.value().is_array() && list.value().empty()) return;
  const std::vector<Part> ranks = by_rank(list, static_cast<Index>(summary.ranks.size()));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (const auto& [direction, bytes] : ranks[i].members()) {
      if (direction == "rank") continue;
      summary.ranks[i].moved[direction] = {bytes.at("formula").count(), bytes.at("moved").count()};
    }
  }
}

}  // namespace

Summary read_summary(const std::string& file, Index ranks) {
  const json document = parsed(file);
  const Part root(document, file, "");
  if (root.at("schema").count() != 1) root.at("schema").refuse("is not 1");
  Summary summary;
  summary.executable = root.at("executable").text();
  if (root.at("world").count() != ranks)
    root.at("world").refuse(fmt::format("is {} and not {}", root.at("world").count(), ranks));
  summary.options = root.at("options").value();
  if (!summary.options.is_object()) root.at("options").refuse("is not an object");
  summary.parameters = root.count_if_any("parameters");
  summary.padded_parameters = root.count_if_any("padded_parameters");
  summary.losses = root.at("losses").numbers();
  summary.grad_norms = root.at("grad_norms").numbers();
  if (summary.losses.empty()) root.at("losses").refuse("is empty");
  for (const char* state : {"parameters", "master", "momentum", "variance"})
    summary.digest[state] = root.at("digest").at(state).text();

  summary.ranks.resize(static_cast<std::size_t>(ranks));
  const std::vector<Part> memory = by_rank(root.at("memory").at("ranks"), ranks);
  const std::vector<Part> sent = by_rank(root.at("communication").at("ranks"), ranks);
  for (std::size_t i = 0; i < summary.ranks.size(); ++i) {
    read_memory(memory[i], summary.ranks[i]);
    read_sent(sent[i], summary.ranks[i]);
  }
  read_moved(root, summary);
  for (const Part& seconds : root.at("seconds").at("total").elements())
    summary.seconds.push_back(seconds.number_from(kLeastSeconds, kMostSeconds));
  if (summary.seconds.empty()) root.at("seconds").at("total").refuse("is empty");
  // Of the whole run; the table's is that of the median step.
  static_cast<void>(root.at("tokens_per_second").number_from(1 / kMostSeconds, kMostTokens));
  return summary;
}

}  // namespace zero::tools
