#include "common/train/summary.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/base/error.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

/// A file descriptor that closes itself.
class File {
 public:
  File(const fs::path& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

[[noreturn]] void refuse(const fs::path& path, int error) {
  throw UnusableInput(fmt::format("--out {} cannot be written to: {}", path.string(), std::strerror(error)));
}

[[noreturn]] void fail(const fs::path& path, int error) {
  throw ResourceFailure(fmt::format("{} cannot be written: {}", path.string(), std::strerror(error)));
}

/// Whether all of `text` was written; else errno says why not.
bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(descriptor, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

std::string dump(const nlohmann::json& json, int indent) {
  // File names need not be UTF-8; JSON has to be.
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

nlohmann::json number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

void write_atomically(const fs::path& path, const std::string& text) {
  fs::path temporary = path;
  temporary += ".tmp";
  unlink(temporary.c_str());
  const auto give_up = [&](int error) {
    unlink(temporary.c_str());
    fail(path, error);
  };
  {
    const File file(temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (file.get() < 0) fail(path, errno);
    if (!write_all(file.get(), text) || fsync(file.get()) != 0) give_up(errno);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) give_up(errno);
  // The new name is durable only with its directory.
  const fs::path directory = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  const File folder(directory, O_RDONLY | O_DIRECTORY);
  if (folder.get() >= 0) fsync(folder.get());
}

void OutputDirectory::check(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw UnusableInput(fmt::format("--out {} is not a directory", path.string()));
  }
  if (!fs::exists(status) && status.type() != fs::file_type::not_found) refuse(path, error.value());
  fs::path existing = fs::absolute(path);
  while (!fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  if (!fs::is_directory(existing, error)) refuse(path, ENOTDIR);
  if (access(existing.c_str(), W_OK | X_OK) != 0) refuse(path, errno);
  for (const char* name : {"summary.json", "summary.json.tmp", "metrics.jsonl"}) {
    const fs::file_status file = fs::status(path / name, error);
    if (fs::exists(file) && !fs::is_regular_file(file)) {
      throw UnusableInput(fmt::format("--out {}: {} is there and is not a regular file", path.string(), name));
    }
  }
}

OutputDirectory::OutputDirectory(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) refuse(path_, error.value());
  metrics_ = open((path_ / "metrics.jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644);
  if (metrics_ < 0) refuse(path_ / "metrics.jsonl", errno);
  // From here on an earlier run's results would be taken for this one's.
  const fs::path old = path_ / "summary.json";
  const int removed = unlink(old.c_str()) == 0 || errno == ENOENT ? 0 : errno;
  if (removed != 0 || ftruncate(metrics_, 0) != 0) {
    const int reason = removed != 0 ? removed : errno;
    close(metrics_);
    refuse(old, reason);
  }
}

OutputDirectory::~OutputDirectory() { close(metrics_); }

void OutputDirectory::append_metrics(const nlohmann::json& line) {
  const off_t end = lseek(metrics_, 0, SEEK_END);
  if (write_all(metrics_, dump(line, -1))) return;
  const int reason = errno;
  if (ftruncate(metrics_, end) != 0) errno = reason;  // no half line, if that can be had
  fail(path_ / "metrics.jsonl", reason);
}

void OutputDirectory::write_summary(const nlohmann::json& summary) {
  write_atomically(path_ / "summary.json", dump(summary, 1));
}

}  // namespace zero
