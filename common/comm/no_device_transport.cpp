// A build without CUDA. Where common/comm/cuda is linked, its objects define these, and this file stays in its library.
#include <stdexcept>

#include "common/comm/collectives.h"

namespace zero {

std::unique_ptr<Transport> make_device_transport(MPI_Comm, TransportKind, Device&, double, Index) {
  throw std::logic_error("this build has no device whose memory the host cannot read");
}

std::unique_ptr<LibraryCollectives> make_device_collectives(Transport&) {
  throw std::logic_error("this build has no device whose memory the host cannot read");
}

}  // namespace zero
