#pragma once
/// \file
/// Errors that end a run, each with the exit status it ends with. Their text is one sentence for a person: it names
/// the option or file, the value, and the remedy.

#include <stdexcept>
#include <string>

namespace zero {

/// How a program ends (the contract of the command line).
enum class ExitStatus : int {
  done = 0,      ///< done, and equal where equality was asked for
  differs = 1,   ///< results not equal, or not finite
  unusable = 2,  ///< unusable options or input, or a backend that is not there
  failed = 3,    ///< a memory cap, a rank, a disk or a device failed
};

/// A failure with its exit status. `what()` is one sentence without a trailing full stop or newline.
class Error : public std::runtime_error {
 public:
  Error(ExitStatus status, const std::string& sentence) : std::runtime_error(sentence), status_(status) {}
  [[nodiscard]] ExitStatus status() const { return status_; }

 private:
  ExitStatus status_;
};

/// Options or input that cannot be used (status 2).
class UnusableInput : public Error {
 public:
  explicit UnusableInput(const std::string& sentence) : Error(ExitStatus::unusable, sentence) {}
};

/// A cap, rank, disk or device that failed (status 3).
class ResourceFailure : public Error {
 public:
  explicit ResourceFailure(const std::string& sentence) : Error(ExitStatus::failed, sentence) {}
};

/// A result that differs or is not finite (status 1).
class ResultFailure : public Error {
 public:
  explicit ResultFailure(const std::string& sentence) : Error(ExitStatus::differs, sentence) {}
};

/// "rank R: sentence"; the sentence itself where it begins so already.
inline std::string of_rank(int rank, const std::string& sentence) {
  const std::string prefix = "rank " + std::to_string(rank) + ": ";
  return sentence.starts_with(prefix) ? sentence : prefix + sentence;
}

}  // namespace zero
