#include "common/train/option_types.h"

#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/bytes.h"
#include "common/base/error.h"

namespace zero {
namespace {

std::string range_text(const RealRange& range) {
  return fmt::format("{} {:g} {} {:g}", range.above ? "above" : "from", range.least, range.below ? "and below" : "to",
                     range.most);
}

bool within(double value, const RealRange& range) {
  return (range.above ? value > range.least : value >= range.least) &&
         (range.below ? value < range.most : value <= range.most);
}

}  // namespace

std::string shown(std::string_view value) {
  constexpr std::size_t kLongest = 60;
  std::string text;
  bool plain = !value.empty();
  for (const char c : value.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
    plain = plain && byte > 0x20 && byte != 0x7f;
  }
  if (value.size() > kLongest) text += "...";
  return plain ? text : "'" + text + "'";
}

Index read_whole(const std::string& option, const std::string& value, Index least, Index most) {
  Index number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc() && stop == end && number >= least && number <= most) return number;
  throw UnusableInput(fmt::format("{} {} is not a whole number from {} to {}", option, shown(value), least, most));
}

double read_real(const std::string& option, const std::string& value, const RealRange& range) {
  double number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc() && stop == end && std::isfinite(number) && within(number, range)) {
    return number == 0 ? 0 : number;  // not -0
  }
  throw UnusableInput(fmt::format("{} {} is not a number {}", option, shown(value), range_text(range)));
}

Index read_size(const std::string& option, const std::string& value, Index least, Index most) {
  std::optional<Index> bytes;
  try {
    bytes = parse_bytes(value);
  } catch (const Error&) {
    // What would do is said below, the same for a text that is no size and for a size out of range.
  }
  if (bytes && *bytes >= least && *bytes <= most) return *bytes;
  throw UnusableInput(fmt::format("{} {} is not a size from {} to {}, such as 512KiB or 4MiB", option, shown(value),
                                  format_bytes(least), format_bytes(most)));
}

std::size_t read_choice(const std::string& option, const std::string& value,
                        const std::vector<std::string_view>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == value) return i;
  }
  if (names.size() == 1)
    throw UnusableInput(fmt::format("{} {} is not offered; {} would do", option, shown(value), names[0]));
  throw UnusableInput(fmt::format("{} {} is not one of {}", option, shown(value), fmt::join(names, ", ")));
}

void add_value(CLI::App& app, const std::string& option, const OptionText& text,
               std::function<void(const std::string& value)> read) {
  const CLI::callback_t callback = [option, read = std::move(read)](const CLI::results_t& results) {
    if (results.size() != 1) {
      throw UnusableInput(fmt::format("{} was given {} times; once would do", option, results.size()));
    }
    read(results[0]);
    return true;
  };
  // TakeAll: so that the callback sees an option that was given twice, and can say so in our words.
  CLI::Option* added = app.add_option(option, callback, text.meaning);
  added->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  added->group(text.group)->type_name(text.value)->default_str(text.default_text);
}

void add_whole(CLI::App& app, const std::string& option, Index& target, Index least, Index most, OptionText text) {
  if (text.default_text.empty()) text.default_text = std::to_string(target);
  add_value(app, option, text, [option, &target, least, most](const std::string& value) {
    target = read_whole(option, value, least, most);
  });
}

void add_real(CLI::App& app, const std::string& option, double& target, const RealRange& range, OptionText text) {
  if (text.default_text.empty()) text.default_text = fmt::format("{:g}", target);
  add_value(app, option, text,
            [option, &target, range](const std::string& value) { target = read_real(option, value, range); });
}

void add_on_off(CLI::App& app, const std::string& option, bool& target, OptionText text) {
  text.value = "on|off";
  add_choice<bool>(app, option, target, {{"on", true}, {"off", false}}, std::move(text));
}

void add_flag(CLI::App& app, const std::string& option, bool& target, const OptionText& text) {
  app.add_flag(option, target, text.meaning)
      ->group(text.group)
      ->default_str("off")
      ->type_name("")
      ->disable_flag_override();
}

void add_offered_elsewhere(CLI::App& app, const std::string& option, const std::string& program) {
  const CLI::callback_t refuse = [&app, option, program](const CLI::results_t&) -> bool {
    throw UnusableInput(fmt::format("{} is not an option of {}; {} offers it", option, app.get_name(), program));
  };
  app.add_option(option, refuse)->expected(0, 1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->group("");
}

bool is_offered_elsewhere(const CLI::Option& option) { return option.get_group().empty(); }

}  // namespace zero
