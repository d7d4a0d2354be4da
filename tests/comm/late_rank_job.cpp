// Rank 1 never comes to a collective; the others end the job. Usage: late_rank_job shared|messages

#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "common/comm/process.h"

int main(int argc, char** argv) {
  using namespace zero;
  const MpiProcess process(argc, argv);
  const auto kind = std::string_view(argv[1]) == "shared" ? TransportKind::shared : TransportKind::messages;
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  try {
    const auto communicator =
        make_communicator(MPI_COMM_WORLD, CollectiveKind::canonical, kind, *device, 2.0, 320, 320);
    communicator->barrier();
    if (process.rank() == 1) std::this_thread::sleep_for(std::chrono::minutes(10));
    communicator->barrier();
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    abort_job(error.status());
  }
  return 0;
}
