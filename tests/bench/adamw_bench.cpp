// AdamW on buffers of the device, on one thread, against a loop that reads the same four streams and writes the same
// three back in place without arithmetic: what the memory allows. Prints the ratio of their bandwidths as a line of
// JSON, and both of them, with the triad of STREAM (McCalpin 1995) beside them, on standard error.
//
// The alternatives take turns, and each round has its own ratio: what disturbs the machine disturbs both alike.

#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/device/device.h"
#include "tests/bench/timing.h"

namespace zero {
namespace {

struct Streams {
  float* parameters;
  float* momentum;
  float* variance;
  const float* gradients;
  Index size;
};

using Vector = float __attribute__((vector_size(16)));

// Makes the compiler believe that the vector is used and changed here: it must load it, and store it again.
inline void touch(Vector& vector) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(vector));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(vector));
#else
  asm volatile("" : "+m"(vector));
#endif
}

// Reads all four streams and writes three, 16 bytes at a time, which keeps ahead of any memory.
void touch(const Streams& s) {
  constexpr Index kLanes = sizeof(Vector) / sizeof(float);
  Vector p, m, v, g;
  for (Index i = 0; i + kLanes <= s.size; i += kLanes) {
    std::memcpy(&p, s.parameters + i, sizeof(Vector));
    std::memcpy(&m, s.momentum + i, sizeof(Vector));
    std::memcpy(&v, s.variance + i, sizeof(Vector));
    std::memcpy(&g, s.gradients + i, sizeof(Vector));
    touch(p);
    touch(m);
    touch(v);
    touch(g);
    std::memcpy(s.parameters + i, &p, sizeof(Vector));
    std::memcpy(s.momentum + i, &m, sizeof(Vector));
    std::memcpy(s.variance + i, &v, sizeof(Vector));
  }
}

void triad(float* out, const float* a, const float* b, Index size) {
  for (Index i = 0; i < size; ++i) out[i] = a[i] + 3.0F * b[i];
}

void run(bool quick) {
  const Index size = Index{quick ? 4 : 16} << 20;  // far beyond the caches
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  const Buffer parameters = device->allocate(Category::parameters, size);
  const Buffer gradients = device->allocate(Category::gradients, size);
  const Buffer momentum = device->allocate(Category::optimizer, size);
  const Buffer variance = device->allocate(Category::optimizer, size);
  Kernels& kernels = device->kernels();
  kernels.fill_normal(parameters.array(), 1, 0, 0, 0.02F);
  kernels.fill_normal(gradients.array(), 1, 1, 0, 0.01F);
  const auto floats = [](const Buffer& buffer) { return static_cast<float*>(buffer.array().data); };
  const Streams streams{floats(parameters), floats(momentum), floats(variance), floats(gradients), size};

  std::vector<double> updates, touches, triads, ratios;
  for (int round = -1; round < (quick ? 5 : 31); ++round) {  // one to warm up
    const double update = bench::cpu_seconds([&] {
      kernels.adamw(parameters.array(), momentum.array(), variance.array(), gradients.array(),
                    {.learning_rate = 1e-4F,
                     .beta1 = 0.9F,
                     .beta2 = 0.95F,
                     .epsilon = 1e-8F,
                     .weight_decay = 0.1F,
                     .bias_correction1 = 0.1F,
                     .bias_correction2 = 0.05F,
                     .clip_factor = 0.5F});
    });
    const double moved = bench::cpu_seconds([&] { touch(streams); });
    const double added =
        bench::cpu_seconds([&] { triad(streams.momentum, streams.parameters, streams.gradients, size); });
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
               "GB/s: AdamW %.1f, the same streams without arithmetic %.1f (28 bytes an element), triad %.1f (12)\n",
               rate(28, updates), rate(28, touches), rate(12, triads));
  bench::print_ratio("adamw/bandwidth_over_same_streams", bench::median(ratios), 0.95, bench::Better::higher);
}

}  // namespace
}  // namespace zero

int main(int argc, char** argv) {
  zero::run(argc > 1 && std::string_view(argv[1]) == "--quick");
  return 0;
}
