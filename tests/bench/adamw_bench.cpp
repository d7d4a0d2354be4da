// AdamW on buffers of the device, on one thread, against a loop that reads and
// writes the same streams in place without arithmetic: what the memory allows.
// In fp32 (four streams), and in bf16 (fp32 master weights and moments,
// gradients and rounded parameters in bf16: five). Prints the ratio of their
// bandwidths as a line of JSON, and both of them, with the triad of STREAM
// (McCalpin 1995) beside them, on standard error.
//
// The alternatives take turns, and each round has its own ratio: what disturbs
// the machine disturbs both alike.

#include <cstddef>
#include <cstdio>
#include <string_view>
#include <vector>

#include "common/device/device.h"
#include "tests/bench/same_streams.h"
#include "tests/bench/timing.h"

namespace zero {
namespace {

void triad(float* out, const float* a, const float* b, Index size) {
  for (Index i = 0; i < size; ++i) out[i] = a[i] + 3.0F * b[i];
}

void run(bool quick, Dtype dtype) {
  const bool bf16 = dtype == Dtype::bf16;
  const Index size = Index{quick ? 4 : 16} << 20;  // far beyond the caches
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  const Buffer rounded = device->allocate(Category::parameters, bf16 ? size : 0, Dtype::bf16);
  const Buffer parameters = device->allocate(bf16 ? Category::optimizer : Category::parameters, size);
  const Buffer gradients = device->allocate(Category::gradients, size, dtype);
  const Buffer momentum = device->allocate(Category::optimizer, size);
  const Buffer variance = device->allocate(Category::optimizer, size);
  Kernels& kernels = device->kernels();
  kernels.fill_normal(parameters.array(), 1, 0, 0, 0.02F);
  kernels.fill_normal(gradients.array(), 1, 1, 0, 0.01F);
  const auto floats = [](const Buffer& buffer) { return static_cast<float*>(buffer.array().data); };
  const auto address = [](const Buffer& buffer) { return static_cast<std::byte*>(buffer.array().data); };
  const bench::Streams streams{floats(parameters), floats(momentum), floats(variance),
                               address(gradients), address(rounded), size};

  std::vector<double> updates, touches, triads, ratios;
  for (int round = -1; round < (quick ? 5 : 31); ++round) {  // one to warm up
    const double update = bench::cpu_seconds([&] {
      kernels.adamw(parameters.array(), momentum.array(), variance.array(), gradients.array(), rounded.array(),
                    {.learning_rate = 1e-4F,
                     .beta1 = 0.9F,
                     .beta2 = 0.95F,
                     .epsilon = 1e-8F,
                     .weight_decay = 0.1F,
                     .bias_correction1 = 0.1F,
                     .bias_correction2 = 0.05F,
                     .clip_factor = 0.5F});
    });
    const double moved = bench::cpu_seconds([&] {
      bf16 ? bench::touch_streams<bench::Half, true>(streams) : bench::touch_streams<bench::Vector, false>(streams);
    });
    const double added = bench::cpu_seconds([&] { triad(streams.momentum, streams.weights, streams.variance, size); });
    kernels.fill(momentum.array(), 0);
    if (round < 0) continue;
    updates.push_back(update);
    touches.push_back(moved);
    triads.push_back(added);
    ratios.push_back(moved / update);
  }
  const auto rate = [&](double bytes, const std::vector<double>& times) {
    return bytes * static_cast<double>(size) / bench::median(times) * 1e-9;
  };
  std::fprintf(stderr,
               "GB/s: AdamW in %s %.1f, the same streams without arithmetic "
               "%.1f (28 bytes an element), triad %.1f (12)\n",
               bf16 ? "bf16" : "fp32", rate(28, updates), rate(28, touches), rate(12, triads));
  bench::print_ratio(bf16 ? "adamw/bf16_bandwidth_over_same_streams" : "adamw/bandwidth_over_same_streams",
                     bench::median(ratios), 0.95, bench::Better::higher);
}

}  // namespace
}  // namespace zero

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  zero::run(quick, zero::Dtype::fp32);
  zero::run(quick, zero::Dtype::bf16);
  return 0;
}
