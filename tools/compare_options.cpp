#include "tools/compare_options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "common/base/error.h"
#include "tools/command_line.h"
#include "tools/program_options.h"
#include "tools/stages.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

constexpr Index kMostProgramRanks = 512;

/// The place of an option among arguments, as `OPTION VALUE` or `OPTION=VALUE`; the end when it is not there.
auto find_option(const std::vector<std::string>& arguments, std::string_view option) {
  return std::find_if(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument == option ||
           (argument.starts_with(option) && argument.size() > option.size() && argument[option.size()] == '=');
  });
}

bool has(const std::vector<std::string>& arguments, std::string_view option, std::string_view value) {
  const auto found = find_option(arguments, option);
  if (found == arguments.end()) return false;
  if (found->size() > option.size()) return found->substr(option.size() + 1) == value;
  return found + 1 != arguments.end() && *(found + 1) == value;
}

/// Without an option that a program does not offer.
std::vector<std::string> without(std::vector<std::string> arguments, std::string_view option) {
  while (true) {
    const auto found = find_option(arguments, option);
    if (found == arguments.end()) return arguments;
    const bool value_apart = found->size() == option.size() && found + 1 != arguments.end();
    arguments.erase(found, found + (value_apart ? 2 : 1));
  }
}

/// Refuses the first argument that neither compare nor a program knows, before anything runs.
void check_passed_on(const std::vector<std::string>& passed_on, const CLI::App& app) {
  const auto is_in = [](const auto& options, std::string_view name) {
    return std::find(options.begin(), options.end(), name) != options.end();
  };
  for (std::size_t i = 0; i < passed_on.size(); ++i) {
    const std::string& argument = passed_on[i];
    const std::size_t equals = argument.find('=');
    const std::string_view name = std::string_view(argument).substr(0, equals);
    const bool dashes = name.starts_with("--");
    if (dashes && is_in(kProgramOptions, name.substr(2))) {
      if (equals == std::string::npos) ++i;  // its value
      continue;
    }
    if (dashes && is_in(kProgramFlags, name.substr(2))) continue;
    std::vector<std::string> known = option_names(app);
    for (const std::string_view option : kProgramOptions) known.push_back(fmt::format("--{}", option));
    for (const std::string_view option : kProgramFlags) known.push_back(fmt::format("--{}", option));
    throw UnusableInput(unknown_option(argument, "compare", known, "compare or of the programs"));
  }
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> names;
  std::size_t at = 0;
  while (at <= list.size()) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

Job make_job(const CompareOptions& options, const std::string& path, const std::vector<std::string>& passed_on) {
  Job job;
  job.name = std::filesystem::path(path).filename().string();
  job.path = std::filesystem::absolute(path).string();
  const Stage* stage = stage_of_program(job.name);
  job.single_process = stage != nullptr && stage->single_process;
  job.arguments = passed_on;
  if (stage != nullptr && !stage->gathers_parameters) {
    for (const char* option : {"--prefetch", "--reshard-after-forward", "--shard-group"})
      job.arguments = without(std::move(job.arguments), option);
  }
  if (job.single_process) job.arguments.insert(job.arguments.begin(), {"--as-world", std::to_string(options.ranks)});
  const auto taken = [&](const std::string& name) {
    return std::any_of(options.jobs.begin(), options.jobs.end(), [&](const Job& other) { return other.name == name; });
  };
  const std::string base = job.name;
  for (int i = 2; taken(job.name); ++i) job.name = fmt::format("{}-{}", base, i);
  return job;
}

void check_program(const std::string& path, const std::string& remedy) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (!std::filesystem::is_regular_file(status)) {
    throw UnusableInput(fmt::format("{} {}; {}", harmless(path),
                                    std::filesystem::is_directory(status) ? "is a directory"
                                    : std::filesystem::exists(status)     ? "is not a file"
                                                                          : "does not exist",
                                    remedy));
  }
  if (access(path.c_str(), X_OK) != 0)
    throw UnusableInput(fmt::format("{} is not a program; {}", harmless(path), remedy));
}

double read_limit(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0) || value > 1e6) {
    throw UnusableInput(
        fmt::format("--limit '{}' is not a number of seconds from above 0 to 1e6; 600 would do", harmless(text, 40)));
  }
  return value;
}

Index read_ranks(const std::string& text) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMostProgramRanks) {
    throw UnusableInput(fmt::format("-n '{}' is not a number of ranks from 1 to {}; 4 would do", harmless(text, 40),
                                    kMostProgramRanks));
  }
  return value;
}

}  // namespace

std::optional<CompareOptions> parse_compare_options(int argc, const char* const* argv, const std::string& folder,
                                                    std::string& text) {
  CLI::App app(
      "compare: runs the unsharded baseline and the stages of ZeRO on N ranks of this machine, and prints one table: "
      "what a "
      "rank holds and sends beside what the formula says, the time, and whether all bits are equal. Ends in 1 when "
      "they are "
      "not, or when a measured number is not its formula's. Every option that is not listed here is passed on to the "
      "programs: compare -n 4 --model small --steps 5.",
      "compare");
  app.get_formatter()->column_width(26);
  app.footer("docs/summary.md says how a program is called, what its summary.json holds, and what is judged.");
  app.allow_extras();
  CompareOptions options;
  std::string ranks = "4", limit = "600", programs;
  std::vector<std::string> with;
  const auto add = [&](const char* group, const char* name, auto& value, const char* what, const char* type) {
    return app.add_option(name, value, what)->type_name(type)->group(group);
  };
  add("What to run", "-n", ranks, "ranks of each program (default 4)", "N");
  add("What to run", "--programs", programs,
      "a list with commas (default baseline and stages 0 to 3, those that offer the order "
      "of --accumulation); 0, 1, 2 and 3 name the stages, too",
      "NAMES");
  add("What to run", "--with", with,
      "also runs and judges that program, which keeps the contract of summary.json; may be repeated", "PATH")
      ->allow_extra_args(false);
  add("What to run", "--limit", limit, "seconds after which a program is ended (default 600)", "SECONDS");
  add("Output", "--out", options.out,
      "keeps what each program writes in DIR/PROGRAM, and its output in DIR/PROGRAM.log (default: "
      "a temporary folder)",
      "DIR");
  add("Output", "--json", options.json, "also writes the table as JSON, in bytes", "FILE");
  add("Output", "--markdown", options.markdown, "also writes the table and the sentences as Markdown", "FILE");
  add("Output", "--csv", options.csv, "also writes the table as CSV, in bytes", "FILE");
  add("Output", "--plot", options.plot, "also draws memory by category, with matplotlib", "FILE.png");
  app.get_help_ptr()->group("Output");
  try {
    parse(app, argc, argv);
  } catch (const CLI::CallForHelp&) {
    text = app.help();
    return std::nullopt;
  }
  const std::vector<std::string> passed_on = app.remaining();
  options.ranks = read_ranks(ranks);
  options.limit_seconds = read_limit(limit);
  if (find_option(passed_on, "--as-world") != passed_on.end()) {
    throw UnusableInput(fmt::format("--as-world is what compare tells the baseline; -n {} would do", options.ranks));
  }
  check_passed_on(passed_on, app);
  for (const auto& [option, file] : {std::pair{"--json", &options.json},
                                     {"--markdown", &options.markdown},
                                     {"--csv", &options.csv},
                                     {"--plot", &options.plot},
                                     {"--out", &options.out}}) {
    if (app.count(option) > 0 && file->empty()) throw UnusableInput(fmt::format("{} has no name", option));
  }

  const bool local_first = has(passed_on, "--accumulation", "local-first");
  std::vector<std::string> names;
  if (app.count("--programs") == 0) {
    for (const Stage& stage : stages()) {
      if (stage.local_first || !local_first) names.emplace_back(stage.program);
    }
  } else {
    names = split(programs);
  }
  for (std::string& name : names) {
    if (const Stage* known_stage = stage_named(name)) {
      name = known_stage->program;
    } else {
      std::string known;
      for (const Stage& stage : stages()) known += fmt::format("{}{}", known.empty() ? "" : ", ", stage.program);
      throw UnusableInput(
          fmt::format("--programs '{}' is not known; these would do: {}, and 0 to 3; --with runs any other",
                      harmless(name, 40), known));
    }
  }
  // The baseline, where it runs, is what the others are compared with.
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return stage_of_program(name)->single_process; });
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    check_program(path, "the target `programs` builds it");
    options.jobs.push_back(make_job(options, path, passed_on));
  }
  for (const std::string& path : with) {
    check_program(path, "--with takes the path of an executable");
    options.jobs.push_back(make_job(options, path, passed_on));
  }
  return options;
}

}  // namespace zero::tools
