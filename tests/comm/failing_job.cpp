// A job whose rank 1 fails alone. Usage: failing_job shared|messages sleeps|throws
//   sleeps   rank 1 never comes to a collective: the others' watchdog ends the job
//   throws   rank 1 has an error of its own while the others wait for it: rank 1 ends the job, long before a watchdog

#include <chrono>
#include <cstdio>
#include <string_view>
#include <thread>

#include "common/comm/process.h"

int main(int argc, char** argv) {
  using namespace zero;
  const MpiProcess process(argc, argv);
  const auto kind = std::string_view(argv[1]) == "shared" ? TransportKind::shared : TransportKind::messages;
  const bool throws = std::string_view(argv[2]) == "throws";
  const double timeout_seconds = throws ? 600 : 2;
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  try {
    const auto communicator =
        make_communicator(MPI_COMM_WORLD, CollectiveKind::native, kind, *device, timeout_seconds, 320, 320);
    communicator->barrier();
    if (process.rank() == 1) {
      if (throws) throw ResourceFailure("the disk is full");  // destroys the communicator, which must wait for nobody
      std::this_thread::sleep_for(std::chrono::minutes(10));
    }
    communicator->barrier();
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    abort_job(error.status());
  }
  return 0;
}
