#include "common/train/agreement.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

#include <fmt/format.h>

namespace zero {

void agree_with_rank0(const Ranks& ranks, const std::optional<Error>& mine) {
  try {
    agree(ranks.comm, mine);
  } catch (const Error& error) {
    std::string_view sentence = error.what();
    constexpr std::string_view kPrefix = "rank 0: ";  // nobody else could have failed
    if (sentence.starts_with(kPrefix)) sentence.remove_prefix(kPrefix.size());
    throw Error(error.status(), std::string(sentence));
  }
}

void fail_alone(const Ranks& ranks, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const ExitStatus status = known != nullptr ? known->status() : ExitStatus::failed;
  if (ranks.size == 1) throw Error(status, error.what());
  // Often all ranks fail alike (a cap, a lost rank). The first to speak ends the others, so that one line is printed.
  std::this_thread::sleep_for(std::chrono::milliseconds(50) * std::min(ranks.rank, 20));
  print_error(fmt::format("rank {}: {}", ranks.rank, error.what()));
  abort_job(status);
}

void print_error(const std::string& sentence) {
  const std::string line = "error: " + sentence + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t put = write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (put <= 0) return;
    done += static_cast<std::size_t>(put);
  }
}

}  // namespace zero
