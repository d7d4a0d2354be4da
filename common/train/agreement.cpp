#include "common/train/agreement.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "common/comm/mpi_api.h"

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
  print_error(of_rank(ranks.rank, error.what()));
  abort_job(status);
}

void agree_on_command_line(const Ranks& ranks, const std::string& program, int argc, const char* const* argv) {
  if (ranks.size == 1) return;
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    hash = (hash ^ 0x100U) * 1099511628211U;  // where one argument ends
  };
  add(program);
  for (int i = 1; i < argc; ++i) add(argv[i]);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks.size));
  check_mpi(MPI_Allgather(&hash, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, ranks.comm), "MPI_Allgather");
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw UnusableInput(
        fmt::format("rank {} was started with another program or other options than rank 0; the same for all "
                    "ranks would do",
                    r));
  }
}

void print_error(const std::string& sentence) {
  std::string line = "error: " + sentence;
  // A file's name may hold anything; the error stays one line and says nothing to a terminal.
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  line += '\n';
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t put = write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (put <= 0) return;
    done += static_cast<std::size_t>(put);
  }
}

}  // namespace zero
