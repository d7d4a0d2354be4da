// A build without CUDA. Where common/device/cuda is linked, its objects define these, and this file is left in its
// library.
#include "common/base/error.h"
#include "common/device/device.h"

namespace zero {

std::optional<std::string> why_no_cuda() {
  return "--backend cuda: this build has no CUDA; configure with --preset cuda where the CUDA Toolkit is installed, or "
         "use --backend cpu";
}

std::unique_ptr<Device> make_cuda_device(ProductKind, int) { throw UnusableInput(*why_no_cuda()); }

}  // namespace zero
