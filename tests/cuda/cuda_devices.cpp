// Counts GPUs through the real CUDA runtime: status 0 when there are some, or when the refusal is the one that
// `--backend cuda` is to end with.
#include <cstdio>
#include <cstring>

#include "common/base/error.h"
#include "common/device/cuda/cuda_products.h"
#include "common/device/cuda/runtime.h"

int main() {
  try {
    const int count = zero::cuda::count_devices();
    const zero::cuda::Stream stream;
    zero::make_cuda_canonical_products(stream.handle());
    std::printf("%d GPUs\n", count);
    return 0;
  } catch (const zero::Error& error) {
    std::printf("error: %s (status %d)\n", error.what(), static_cast<int>(error.status()));
    const bool right =
        error.status() == zero::ExitStatus::unusable && std::strncmp(error.what(), "--backend cuda: ", 16) == 0;
    return right ? 0 : 1;
  }
}
