#pragma once
/// \file
/// What a run leaves behind in the directory of `--out`: `metrics.jsonl` line by line, `summary.json` complete or not
/// at all.

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

namespace zero {

/// A number that reads back to the same bits; "nan", "inf" or "-inf" where JSON has no number.
nlohmann::json number(double value);

/// Replaces the file by `text` in one step: written to `path`.tmp, made durable, renamed. Throws ResourceFailure; then
/// `path` is as it was and nothing else is left.
void write_atomically(const std::filesystem::path& path, const std::string& text);

/// The directory of `--out`, on rank 0.
class OutputDirectory {
 public:
  /// Checks that `path` is a directory that can be written to, or could be made one. Makes and removes nothing: a run
  /// that is refused leaves an earlier run's files alone. Throws UnusableInput.
  static void check(const std::filesystem::path& path);

  /// Makes the directory and an empty metrics.jsonl, and removes the summary of an earlier run, so that it is not taken
  /// for that of this one. Throws UnusableInput.
  explicit OutputDirectory(std::filesystem::path path);
  ~OutputDirectory();
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  /// Adds a line to metrics.jsonl, at once. Throws ResourceFailure.
  void append_metrics(const nlohmann::json& line);
  /// Writes summary.json. Throws ResourceFailure.
  void write_summary(const nlohmann::json& summary);

 private:
  std::filesystem::path path_;
  int metrics_ = -1;
};

}  // namespace zero
