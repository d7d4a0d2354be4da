#pragma once
/// \file
/// Options with strict values: what is not wholly a value of the option's range is refused with one sentence that names
/// the option, the value and what would do.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/base/types.h"

namespace zero {

/// The groups of `--help`, in its order.
namespace option_group {
inline constexpr const char* kModel = "Model and data";
inline constexpr const char* kTraining = "Training";
inline constexpr const char* kOptimizer = "Optimizer";
inline constexpr const char* kArithmetic = "Arithmetic";
inline constexpr const char* kCommunication = "Communication";
inline constexpr const char* kMemory = "Memory and device";
inline constexpr const char* kOutput = "Checking and output";
}  // namespace option_group

/// How the help shows an option: its group, the name of its value ("N", "SIZE"), what it means, and its default.
struct OptionText {
  const char* group;
  const char* value;
  std::string meaning;
  std::string default_text;  ///< empty: none is shown
};

/// The numbers that an option takes: from `least` (itself not included when `above`) to `most`.
struct RealRange {
  double least;
  double most;
  bool above = false;
  bool below = false;  ///< `most` itself is not included
};

/// The value as an error shows it: quoted where it is empty or not plain text, shortened where it is long.
std::string shown(std::string_view value);

/// Strict readers; each throws UnusableInput. No sign but '-', no spaces, nothing after the number, no "nan" or "inf".
Index read_whole(const std::string& option, const std::string& value, Index least, Index most);
double read_real(const std::string& option, const std::string& value, const RealRange& range);
/// A size with or without a unit ("4MiB"), from `least` to `most` bytes.
Index read_size(const std::string& option, const std::string& value, Index least, Index most);

/// Adds an option whose value `read` takes; giving it twice is refused.
void add_value(CLI::App& app, const std::string& option, const OptionText& text,
               std::function<void(const std::string& value)> read);

/// The same for the kinds of values there are. `target` holds the default, which the help shows.
void add_whole(CLI::App& app, const std::string& option, Index& target, Index least, Index most, OptionText text);
void add_real(CLI::App& app, const std::string& option, double& target, const RealRange& range, OptionText text);
void add_on_off(CLI::App& app, const std::string& option, bool& target, OptionText text);
void add_flag(CLI::App& app, const std::string& option, bool& target, const OptionText& text);

/// Knows the option only to say that another program offers it: giving it is refused with that program's name. The help
/// does not show it.
void add_offered_elsewhere(CLI::App& app, const std::string& option, const std::string& program);
/// Whether an option was added by add_offered_elsewhere().
bool is_offered_elsewhere(const CLI::Option& option);

/// A named value.
template <typename T>
struct Choice {
  std::string_view name;
  T value;
};

/// The index of `value` in `names`; throws UnusableInput naming them all.
std::size_t read_choice(const std::string& option, const std::string& value,
                        const std::vector<std::string_view>& names);

template <typename T>
std::vector<std::string_view> names(const std::vector<Choice<T>>& choices) {
  std::vector<std::string_view> all;
  for (const Choice<T>& choice : choices) all.push_back(choice.name);
  return all;
}

template <typename T>
std::string_view name_of(const std::vector<Choice<T>>& choices, T value) {
  for (const Choice<T>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "";
}

template <typename T>
void add_choice(CLI::App& app, const std::string& option, T& target, const std::vector<Choice<T>>& choices,
                OptionText text) {
  text.default_text = name_of(choices, target);
  add_value(app, option, text, [option, &target, choices](const std::string& value) {
    target = choices[read_choice(option, value, names(choices))].value;
  });
}

}  // namespace zero
