// Collectives of 64 MiB a rank, as ratios in one run; start under tools/run -n 2 and -n 4. Prints a line of JSON for
// each.
//
//   reduce_scatter_over_memcpy     the canonical reduce-scatter's time over that in which all ranks memcpy those bytes
//                                  at once
//   mpi_all_reduce_over_canonical  MPI_Allreduce's time, in place, over that of the canonical all-reduce: a
//                                  reduce-scatter, then an all-gather, for one bucket after the other
//   mpi_all_reduce_with_kept_pages_over_canonical
//                                  the same with the malloc that our programs set: MPI_Allreduce allocates scratch
//                                  memory in every call, whose pages are new each time with malloc as installed
//
// A time ends when all ranks are done. The alternatives take turns, so that what disturbs the machine disturbs them
// alike.

#include <malloc.h>

#include <chrono>
#include <climits>
#include <cstring>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/comm/process.h"
#include "tests/bench/timing.h"

namespace zero {
namespace {

constexpr Index kElements = Index{16} << 20;  // 64 MiB
constexpr Index kBucket = Index{256} << 10;   // 1 MiB of each slice
using bench::median;

/// Seconds from when all ranks start until all are done with `work`.
template <typename Work>
double seconds(Work work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  work();
  MPI_Barrier(MPI_COMM_WORLD);
  double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  MPI_Allreduce(MPI_IN_PLACE, &taken, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return taken;
}

/// glibc's defaults, or what MpiProcess sets.
void set_malloc(bool as_installed) {
  mallopt(M_MMAP_THRESHOLD, as_installed ? 128 << 10 : 1 << 30);
  mallopt(M_TRIM_THRESHOLD, as_installed ? 128 << 10 : INT_MAX);
  if (as_installed) malloc_trim(0);
}

void run(const MpiProcess& process, int rounds) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  const Index n = process.size();
  const Index slice = kElements / n / 32 * 32;
  Buffer unit = device->allocate(Category::workspace, slice * n);
  Buffer other = device->allocate(Category::workspace, slice * n);
  const Array own = unit.part(process.rank() * slice, slice);
  const auto communicator =
      make_communicator(MPI_COMM_WORLD, CollectiveKind::canonical, TransportKind::automatic, *device, 60, slice, slice);
  const auto reduce_scatter = [&](Bucket bucket, Array into) {
    communicator->reduce_scatter(unit.array(), bucket, Purpose::gradients, [&](Index begin, Array sum) {
      device->kernels().copy(into.part(begin, sum.size), sum);
    });
  };
  const auto all_reduce = [&] {
    for (const Bucket bucket : buckets(slice, kBucket)) {
      reduce_scatter(bucket, own);
      communicator->all_gather(unit.array(), bucket, Purpose::gradients).wait();
    }
  };
  const auto mpi_all_reduce = [&] {
    MPI_Allreduce(MPI_IN_PLACE, unit.array().data, static_cast<int>(unit.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  const auto copy = [&] {
    std::memcpy(other.array().data, unit.array().data, static_cast<std::size_t>(unit.array().bytes()));
  };

  std::vector<double> copies;
  std::vector<double> scatters;
  std::vector<double> ours;
  std::vector<double> installed;
  std::vector<double> kept;
  for (int round = -2; round < rounds; ++round) {  // two rounds to warm up
    const auto measure = [&](std::vector<double>& times, const auto& work) {
      device->kernels().fill(unit.array(), 1.0F);
      const double time = seconds(work);
      if (round >= 0) times.push_back(time);
    };
    measure(copies, copy);
    measure(scatters, [&] { reduce_scatter({0, slice}, other.part(0, slice)); });
    measure(ours, all_reduce);
    set_malloc(true);
    measure(installed, mpi_all_reduce);
    set_malloc(false);
    mpi_all_reduce();  // asks for the pages that are kept
    measure(kept, mpi_all_reduce);
  }
  if (process.rank() != 0) return;
  fmt::print(
      stderr,
      "{} ranks, {}, ms: memcpy {:.1f}, reduce-scatter {:.1f}, all-reduce {:.1f}, MPI_Allreduce {:.1f}, with kept "
      "pages {:.1f}\n",
      n, communicator->description(), 1e3 * median(copies), 1e3 * median(scatters), 1e3 * median(ours),
      1e3 * median(installed), 1e3 * median(kept));
  bench::print_ratio(fmt::format("comm/{}_ranks/reduce_scatter_over_memcpy", n), median(scatters) / median(copies), 1.5,
                     bench::Better::lower);
  bench::print_ratio(fmt::format("comm/{}_ranks/mpi_all_reduce_over_canonical", n), median(installed) / median(ours),
                     2.0, bench::Better::higher);
  bench::print_ratio(fmt::format("comm/{}_ranks/mpi_all_reduce_with_kept_pages_over_canonical", n),
                     median(kept) / median(ours), 1.0, bench::Better::higher);
}

}  // namespace
}  // namespace zero

int main(int argc, char** argv) {
  const zero::MpiProcess process(argc, argv);
  zero::run(process, argc > 1 && std::string_view(argv[1]) == "--quick" ? 5 : 15);
  return 0;
}
