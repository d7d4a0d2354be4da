// A job on GPUs whose rank 1 is killed while the others wait for it inside a collective.

#include <csignal>

#include "common/comm/process.h"

int main(int argc, char** argv) {
  using namespace zero;
  const MpiProcess process(argc, argv);
  const auto device = make_cuda_device(ProductKind::canonical, process.rank());
  const auto communicator =
      make_communicator(MPI_COMM_WORLD, CollectiveKind::canonical, TransportKind::automatic, *device, 600, 320, 320);
  const Buffer unit = device->allocate(Category::parameters, Index{320} * process.size());
  for (int step = 0; step < 3; ++step) {
    if (process.rank() == 1 && step == 2) std::raise(SIGKILL);
    communicator->all_gather(unit.array(), {0, 320}, Purpose::parameters).wait();
    device->synchronize(device->mark());
  }
  return 0;
}
