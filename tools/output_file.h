#pragma once
/// \file
/// Files that are written complete or not at all.

#include <string>

namespace zero::tools {

/// Shows at construction whether the file can be written, before the work whose result it holds.
class OutputFile {
 public:
  /// `option` names the file in errors. Throws UnusableInput where the file cannot be made. An empty path writes
  /// nothing.
  OutputFile(std::string option, std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] bool wanted() const { return !path_.empty(); }
  /// Writes and puts the file in its place. Throws ResourceFailure where the disk refuses.
  void write(const std::string& text);

 private:
  std::string option_, path_, partial_;
};

}  // namespace zero::tools
