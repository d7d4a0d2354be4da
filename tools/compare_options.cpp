#include "tools/compare_options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "common/base/error.h"
#include "tools/command_line.h"
#include "tools/program_options.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

constexpr Index kMostProgramRanks = 512;

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
    if (dashes && (is_in(kProgramOptions, name.substr(2)) || is_in(kOffloadOptions, name.substr(2)))) {
      if (equals == std::string::npos) ++i;  // its value
      continue;
    }
    if (dashes && is_in(kProgramFlags, name.substr(2))) continue;
    std::vector<std::string> known = option_names(app);
    for (const std::string_view option : kProgramOptions) known.push_back(fmt::format("--{}", option));
    for (const std::string_view option : kOffloadOptions) known.push_back(fmt::format("--{}", option));
    for (const std::string_view option : kProgramFlags) known.push_back(fmt::format("--{}", option));
    throw UnusableInput(unknown_option(argument, "compare", known, "compare or of the programs"));
  }
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
  bool largest = false;
  std::vector<std::string> with;
  const auto add = [&](const char* group, const char* name, auto& value, const char* what, const char* type) {
    return app.add_option(name, value, what)->type_name(type)->group(group);
  };
  add("What to run", "-n", ranks, "ranks of each program (default 4)", "N");
  add("What to run", "--programs", programs,
      "a list with commas (default baseline, stages 0 to 3 and offload to host memory, with --nvme-path to files, too; "
      "those that have --accumulation local-first, --delayed-update and --tile where these are given); 0, 1, 2 and 3 "
      "name the stages, offload-STAGE-OPTIMIZER[-PARAMS] such as offload-3-nvme-host a way to run offload",
      "NAMES");
  add("What to run", "--with", with,
      "also runs and judges that program, which keeps the contract of summary.json; may be repeated", "PATH")
      ->allow_extra_args(false);
  app.add_flag("--largest", largest,
               "finds by training the most layers that a rank holds under --device-memory (default 16MiB) and "
               "--host-memory (default none), beside the formula's; of width 64, context 64, micro-batch 1 where "
               "nothing else is given")
      ->group("What to run");
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
  if (largest && (!with.empty() || !options.plot.empty())) {
    throw UnusableInput(fmt::format("{} has no meaning with --largest; --programs and --json would do",
                                    with.empty() ? "--plot" : "--with"));
  }
  if (Arguments(passed_on).has("--as-world")) {
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

  JobRequest request;
  request.ranks = options.ranks;
  request.folder = folder;
  if (app.count("--programs") > 0) request.programs = programs;
  request.with = with;
  request.largest = largest;
  request.passed_on = passed_on;
  if (largest) options.largest = read_largest(request.passed_on, options.ranks);
  options.jobs = make_jobs(request);
  return options;
}

}  // namespace zero::tools
