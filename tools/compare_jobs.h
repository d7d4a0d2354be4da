#pragma once
/// \file
/// Which programs compare runs, and with which of the options that it passes on.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/stages.h"

namespace zero::tools {

/// A program to run.
struct Job {
  std::string name;                    ///< in the table, and of its folder in --out; unique
  std::string path;                    ///< absolute
  const Stage* expected = nullptr;     ///< whose name it has; nothing for a program of another name
  bool chosen = false;                 ///< whether its arguments make it that way to run `offload` and no other
  std::vector<std::string> arguments;  ///< but for --out
  std::string detail;                  ///< what is said of it while it runs: "12 layers"

  [[nodiscard]] bool single_process() const { return expected != nullptr && expected->single_process; }
};

/// Options as they stand on a command line, `--OPTION VALUE` or `--OPTION=VALUE`; names are with their dashes.
class Arguments {
 public:
  explicit Arguments(std::vector<std::string> all) : all_(std::move(all)) {}
  [[nodiscard]] bool has(std::string_view option) const;
  /// Of a flag the empty text; nothing where the option is not there.
  [[nodiscard]] std::optional<std::string> value(std::string_view option) const;
  /// Takes the option out wherever it stands.
  void remove(const std::string& option);
  [[nodiscard]] const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

/// What is asked for on the command line of compare.
struct JobRequest {
  Index ranks = 4;
  std::string folder;                   ///< of the programs
  std::optional<std::string> programs;  ///< `--programs`
  std::vector<std::string> with;        ///< `--with`
  std::vector<std::string> passed_on;   ///< options of the programs; known ones
  bool largest = false;
};

struct Jobs {
  std::vector<Job> all;            ///< the one to compare with first
  std::vector<std::string> notes;  ///< sentences on what is left out
};

/// Throws UnusableInput: programs that are not known or not there, options that make runs different.
Jobs make_jobs(const JobRequest& request);

}  // namespace zero::tools
