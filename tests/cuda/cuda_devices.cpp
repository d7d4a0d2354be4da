// Makes the CUDA device through the real runtime and cuBLAS: status 0 when it works, or when the refusal is the one
// that
// `--backend cuda` is to end with.
#include <cstdio>
#include <cstring>
#include <memory>

#include "common/base/error.h"
#include "common/device/device.h"

int main() {
  using namespace zero;  // NOLINT: a program of one function
  try {
    for (const ProductKind kind : {ProductKind::canonical, ProductKind::library}) {
      const std::unique_ptr<Device> device = make_cuda_device(kind, 0);
      const Buffer two = device->allocate(Category::activations, 1);
      device->kernels().fill(two.array(), 2.0F);
      float host = 0;
      device->download(&host, two.array());
      const std::string products = device->products().description();
      std::printf("%s, %s: 2 is %g\n", device->description().c_str(), products.c_str(), static_cast<double>(host));
      if (host != 2.0F) return 1;
    }
    return 0;
  } catch (const Error& error) {
    std::printf("error: %s (status %d)\n", error.what(), static_cast<int>(error.status()));
    const bool right =
        error.status() == ExitStatus::unusable && std::strncmp(error.what(), "--backend cuda: ", 16) == 0;
    return right ? 0 : 1;
  }
}
