// Collectives of 64 MiB a rank, as ratios in one run; start under tools/run -n 2 and -n 4. Prints a line of JSON for
// each.
//
//   reduce_scatter_over_memcpy     the canonical reduce-scatter's time over that in which all ranks memcpy those bytes
//                                  at once
//   mpi_all_reduce_over_canonical  MPI_Allreduce's time, in place, over that of the canonical all-reduce: a
//                                  reduce-scatter, then an all-gather
//
// A time is the slowest rank's. The alternatives take turns, so that what disturbs the machine disturbs them alike.

#include <chrono>
#include <cstring>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/comm/process.h"
#include "tests/bench/timing.h"

namespace zero {
namespace {

constexpr Index kElements = Index{16} << 20;  // 64 MiB
using bench::median;

/// Seconds that the slowest rank takes for `work`, all starting together.
template <typename Work>
double seconds(Work work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  work();
  double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  MPI_Allreduce(MPI_IN_PLACE, &taken, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return taken;
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
  const auto reduce_scatter = [&](Array into) {
    communicator->reduce_scatter(unit.array(), {0, slice}, Purpose::gradients, [&](Index begin, Array sum) {
      device->kernels().copy(into.part(begin, sum.size), sum);
    });
  };

  std::vector<double> copies;
  std::vector<double> scatters;
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = -2; round < rounds; ++round) {  // two rounds to warm up
    device->kernels().fill(unit.array(), 1.0F);
    const double copy = seconds(
        [&] { std::memcpy(other.array().data, unit.array().data, static_cast<std::size_t>(unit.array().bytes())); });
    const double scatter = seconds([&] { reduce_scatter(other.part(0, slice)); });
    const double our = seconds([&] {
      reduce_scatter(own);
      communicator->all_gather(unit.array(), {0, slice}, Purpose::gradients).wait();
    });
    device->kernels().fill(unit.array(), 1.0F);
    const double their = seconds([&] {
      MPI_Allreduce(MPI_IN_PLACE, unit.array().data, static_cast<int>(unit.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    if (round < 0) continue;
    copies.push_back(copy);
    scatters.push_back(scatter);
    ours.push_back(our);
    theirs.push_back(their);
  }
  if (process.rank() != 0) return;
  fmt::print(stderr, "{} ranks, {}: memcpy {:.1f} ms, reduce-scatter {:.1f} ms, all-reduce {:.1f} ms, MPI {:.1f} ms\n",
             n, communicator->description(), 1e3 * median(copies), 1e3 * median(scatters), 1e3 * median(ours),
             1e3 * median(theirs));
  bench::print_ratio(fmt::format("comm/{}_ranks/reduce_scatter_over_memcpy", n), median(scatters) / median(copies), 1.5,
                     bench::Better::lower);
  bench::print_ratio(fmt::format("comm/{}_ranks/mpi_all_reduce_over_canonical", n), median(theirs) / median(ours), 2.0,
                     bench::Better::higher);
}

}  // namespace
}  // namespace zero

int main(int argc, char** argv) {
  const zero::MpiProcess process(argc, argv);
  zero::run(process, argc > 1 && std::string_view(argv[1]) == "--quick" ? 5 : 15);
  return 0;
}
