#include "tools/command_line.h"

#include <string_view>

#include <fmt/format.h>

#include "common/base/command_line.h"
#include "common/base/error.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

std::string sentence(const CLI::App& app, const CLI::ParseError& error) {
  const std::string& tool = app.get_name();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extra = app.remaining();
    return unknown_option(extra.empty() ? "" : extra.front(), tool, option_names(app));
  }
  const std::string_view what = error.what();
  if (what.find(": At Most 1 required") != std::string_view::npos) {
    const std::string name(what.substr(0, what.find(':')));
    const CLI::Option* option = app.get_option_no_throw(name);
    const bool has_short = option != nullptr && !option->get_snames().empty() && name.starts_with("--");
    return fmt::format("{}{} is given more than once; once would do", name,
                       has_short ? fmt::format(" (-{})", option->get_snames()[0]) : "");
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && what.find(':') != std::string_view::npos) {
    return fmt::format("{} needs a value; {} --help says which", what.substr(0, what.find(':')), tool);
  }
  return fmt::format("{}; {} --help lists the options", harmless(error.what()), tool);
}

}  // namespace

std::string unknown_option(const std::string& argument, const std::string& tool, const std::vector<std::string>& known,
                           const std::string& whose) {
  if (!argument.starts_with("-")) {
    return fmt::format("'{}' stands where an option is expected; {} --help lists them", harmless(argument, 60), tool);
  }
  const std::string name = argument.substr(0, argument.find('='));
  const std::string similar = nearest(name, known);
  return fmt::format("{} is not an option of {}; {}{} --help lists them", harmless(argument, 60),
                     whose.empty() ? tool : whose, similar.empty() ? "" : similar + " is, and ", tool);
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

void parse(CLI::App& app, int argc, const char* const* argv) {
  const std::vector<std::string> given(argv + 1, argv + argc);
  const std::string valueless = option_without_value(given, [&app](const std::string& argument) {
    const CLI::Option* option = argument.starts_with("-") ? app.get_option_no_throw(argument) : nullptr;
    return option != nullptr && option->get_items_expected_min() > 0;
  });
  if (!valueless.empty()) {
    throw UnusableInput(fmt::format("{} needs a value; {} --help says which", valueless, app.get_name()));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ParseError& error) {
    throw UnusableInput(sentence(app, error));
  }
}

}  // namespace zero::tools
