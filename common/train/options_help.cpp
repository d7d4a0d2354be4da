#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "common/base/command_line.h"
#include "common/train/option_types.h"
#include "common/train/options.h"

namespace zero {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kIndent = 32;  ///< where an option's meaning begins

/// `text` in lines of at most kColumns, all but the first indented.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t column) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (column > indent && column + 1 + end > kColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string option_lines(const CLI::Option& option) {
  std::string head = "  " + option.get_name(false, true);
  std::replace(head.begin(), head.end(), ',', ' ');
  if (!option.get_type_name().empty()) head += " " + option.get_type_name();
  std::string meaning = option.get_description();
  if (!option.get_default_str().empty()) meaning += fmt::format(" [{}]", option.get_default_str());
  if (head.size() + 2 > kIndent) {
    head += "\n" + std::string(kIndent, ' ');
  } else {
    head.resize(kIndent, ' ');
  }
  return head + wrapped(meaning, kIndent, kIndent) + "\n";
}

std::string examples(const Program& program) {
  const std::string start =
      program.single_process ? "build/bin/" + program.name : "tools/run -n 2 build/bin/" + program.name;
  return fmt::format(
      "Examples\n"
      "  {0} --steps 10\n"
      "      ten steps of the tiny model on the project's own prose\n"
      "  {0} --model small --global-batch {1} --steps 100 --out out/first\n"
      "      k = 2 micro-steps in a step; the results in out/first/summary.json\n",
      start, program.single_process ? 8 : 16);
}

/// The option that `argument` was probably meant to be; empty where there is none.
std::string similar_option(const CLI::App& app, std::string_view argument) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (is_offered_elsewhere(*option)) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return nearest(argument, names);
}

/// What an option that no program has is called.
std::string unknown_option(const Program& program, const CLI::App& app, const std::string& argument) {
  const std::string start = fmt::format("{} is not an option of {}; ", shown(argument), program.name);
  if (argument.starts_with("-n")) {  // mpirun's
    return start + (program.single_process ? "it is one process, and --as-world N follows the order of N ranks"
                                           : fmt::format("start ranks with tools/run -n N build/bin/{}", program.name));
  }
  const std::string similar = similar_option(app, argument.substr(0, argument.find('=')));
  return start + (similar.empty() ? "" : similar + " is, and ") + "--help lists them";
}

}  // namespace

std::string help_text(const Program& program, const CLI::App& app) {
  using namespace option_group;
  std::string text = program.name + "\n\n" + wrapped(program.description, 0, 0) + "\n\n";
  if (program.single_process) {
    text += fmt::format("Usage: build/bin/{} [OPTION...]\n", program.name);
  } else {
    text += fmt::format("Usage: tools/run -n RANKS build/bin/{} [OPTION...]\n", program.name);
  }
  text += "Defaults stand in brackets.\n";
  for (const char* group : {kModel, kTraining, kOptimizer, kArithmetic, kCommunication, kMemory, kOutput}) {
    text += fmt::format("\n{}\n", group);
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() == group) text += option_lines(*option);
    }
  }
  text += "\n" + examples(program);
  text +=
      "\nExit status: 0 done (and equal, with --verify); 1 not equal or not finite; 2 unusable options or input;\n"
      "3 a cap, a rank, a disk or a device failed.\n";
  return text;
}

std::string command_line_error(const Program& program, const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extra = app.remaining();
    const std::string first = extra.empty() ? "" : extra.front();
    if (!first.starts_with("-")) {
      return fmt::format("{} stands where an option is expected; every option of {} begins with --", shown(first),
                         program.name);
    }
    return unknown_option(program, app, first);
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string_view what = error.what();
    if (what.find("flag override") != std::string_view::npos) {
      return fmt::format("--{} is a flag and takes no value", what.substr(0, what.find(' ')));
    }
    return fmt::format("{} needs a value; --help says which", what.substr(0, what.find(':')));
  }
  std::string what = error.what();
  std::replace(what.begin(), what.end(), '\n', ' ');
  return what;
}

}  // namespace zero
