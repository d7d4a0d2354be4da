#include "common/comm/process.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace zero {
namespace {

void keep_freed_memory() {
#if defined(M_MMAP_THRESHOLD) && defined(M_TRIM_THRESHOLD)
  // Some versions of glibc refuse thresholds above 32 MiB.
  if (mallopt(M_MMAP_THRESHOLD, 1 << 30) == 0) mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
}

/// Gathers the same number of bytes from every rank, in rank order.
using Gather = std::function<std::vector<std::byte>(ConstBytes mine)>;

/// What a rank says first: 0, or the status of its error and the length of its sentence.
struct Report {
  int status = 0;
  int length = 0;
};

[[noreturn]] void throw_error(ExitStatus status, const std::string& sentence) {
  switch (status) {
    case ExitStatus::differs: throw ResultFailure(sentence);
    case ExitStatus::unusable: throw UnusableInput(sentence);
    case ExitStatus::failed: throw ResourceFailure(sentence);
    case ExitStatus::done: break;
  }
  throw Error(status, sentence);
}

void agree_by(const Gather& gather, const std::optional<Error>& mine) {
  const std::string sentence = mine ? mine->what() : "";
  Report report;
  if (mine) report = {static_cast<int>(mine->status()), static_cast<int>(sentence.size())};
  const auto gathered = gather(std::as_bytes(std::span(&report, 1)));
  std::vector<Report> reports(gathered.size() / sizeof(Report));
  std::memcpy(reports.data(), gathered.data(), gathered.size());

  const auto failed = [](const Report& r) { return r.status != 0; };
  const auto first = std::find_if(reports.begin(), reports.end(), failed);
  if (first == reports.end()) return;

  // Sentences differ in length; the exchange wants the same number of bytes from everybody.
  const auto shorter = [](const Report& a, const Report& b) { return a.length < b.length; };
  const auto room = static_cast<std::size_t>(std::max_element(reports.begin(), reports.end(), shorter)->length);
  std::string padded = sentence;
  padded.resize(room);
  const auto all = gather(std::as_bytes(std::span(padded.data(), room)));

  const auto said_by = [&](std::size_t rank) {
    return std::string(reinterpret_cast<const char*>(all.data()) + rank * room,
                       static_cast<std::size_t>(reports[rank].length));
  };
  const auto rank = static_cast<std::size_t>(first - reports.begin());
  const std::string said = said_by(rank);
  bool same = true;
  for (std::size_t r = 0; r < reports.size(); ++r) same = same && failed(reports[r]) && said_by(r) == said;
  throw_error(static_cast<ExitStatus>(first->status), same ? said : of_rank(static_cast<int>(rank), said));
}

}  // namespace

MpiProcess::MpiProcess(int& argc, char**& argv) {
  keep_freed_memory();
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
}

MpiProcess::~MpiProcess() {
  if (guard_.unwinding()) abort_job(ExitStatus::failed);
  MPI_Finalize();
}

void abort_job(ExitStatus status) {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized != 0 && finalized == 0) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(status));
  std::_Exit(static_cast<int>(status));
}

void agree(Communicator& communicator, const std::optional<Error>& mine) {
  agree_by([&](ConstBytes bytes) { return communicator.gather_bytes(bytes, Purpose::control, "agreement on errors"); },
           mine);
}

void agree(MPI_Comm ranks, const std::optional<Error>& mine) {
  if (is_single(ranks)) {
    if (mine) throw_error(mine->status(), mine->what());
    return;
  }
  const auto gather = [&](ConstBytes bytes) {
    int size = 0;
    check_mpi(MPI_Comm_size(ranks, &size), "MPI_Comm_size");
    std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(size));
    const int count = static_cast<int>(bytes.size());
    check_mpi(MPI_Allgather(bytes.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, ranks), "MPI_Allgather");
    return all;
  };
  agree_by(gather, mine);
}

}  // namespace zero
