#pragma once
/// \file
/// What plan and compare say of a command line that cannot be used, in the words of the programs.

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace zero::tools {

/// "--jsno is not an option of plan; --json is, and plan --help lists them". `known`: with their dashes; `whose`: all
/// whose options they are, where it is not the tool alone.
std::string unknown_option(const std::string& argument, const std::string& tool, const std::vector<std::string>& known,
                           const std::string& whose = "");

/// The names that `app` knows, with their dashes.
std::vector<std::string> option_names(const CLI::App& app);

/// Parses. Throws UnusableInput with one sentence: the first unknown option in the user's order with its nearest match,
/// unless `app` allows extras; an option without its value; CLI11's words for what is left. CallForHelp passes.
void parse(CLI::App& app, int argc, const char* const* argv);

}  // namespace zero::tools
