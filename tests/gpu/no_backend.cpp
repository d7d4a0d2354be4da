// The test of GPUs in a build without the CUDA backend: says so.
#include "common/device/device.h"
#include "tests/gpu/gate.h"

int main() { return zero::test::without_gpu(zero::why_no_cuda().value_or("the backend is there")); }
