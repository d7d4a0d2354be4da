// AdamW on a GPU against a copy from device memory to device memory that reads and writes as many bytes: what the
// memory allows. In fp32 (28 bytes an element: weights, moments and gradients read, all but the gradients written), and
// in bf16 (28 as well: fp32 master weights and moments, gradients read and rounded weights written in bf16).
//
// Times are the GPU's, between two events; the alternatives take turns, and the medians are compared. A line for each
// type: GB/s of both, and their ratio. Status 77 where there is no GPU.
#include <cstddef>
#include <cstdio>
#include <vector>

#include "common/device/cuda/cuda_device.h"
#include "tests/bench/timing.h"

namespace zero {
namespace {

using cuda::check;

constexpr Index kElements = Index{1} << 27;  // far beyond the caches
constexpr int kBytesOfElement = 28, kRounds = 21;

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Since the other one, which comes before this one in the stream.
  double seconds_since(const Event& begin) {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

template <class Work>
double seconds(CudaDevice& device, Work work) {
  Event begin, end;
  begin.record(device.stream());
  work();
  end.record(device.stream());
  return end.seconds_since(begin);
}

void run(CudaDevice& device, Dtype dtype) {
  const bool bf16 = dtype == Dtype::bf16;
  const Buffer rounded = device.allocate(Category::parameters, bf16 ? kElements : 0, Dtype::bf16);
  const Buffer weights = device.allocate(Category::optimizer, kElements);
  const Buffer momentum = device.allocate(Category::optimizer, kElements);
  const Buffer variance = device.allocate(Category::optimizer, kElements);
  const Buffer gradients = device.allocate(Category::gradients, kElements, dtype);
  // A copy reads and writes each of its bytes.
  constexpr Index kCopied = kElements * kBytesOfElement / 2;
  const Buffer from = device.allocate(Category::workspace, kCopied / size_of(Dtype::fp32));
  const Buffer to = device.allocate(Category::workspace, kCopied / size_of(Dtype::fp32));
  Kernels& kernels = device.kernels();
  kernels.fill_normal(weights.array(), 1, 0, 0, 0.02F);
  kernels.fill_normal(gradients.array(), 1, 1, 0, 0.01F);
  kernels.fill_normal(from.array(), 1, 2, 0, 1.0F);

  std::vector<double> updates, copies;
  for (int round = -2; round < kRounds; ++round) {  // two to warm up
    const double update = seconds(device, [&] {
      kernels.adamw(weights.array(), momentum.array(), variance.array(), gradients.array(), rounded.array(),
                    {.learning_rate = 1e-4F,
                     .beta1 = 0.9F,
                     .beta2 = 0.95F,
                     .epsilon = 1e-8F,
                     .weight_decay = 0.1F,
                     .bias_correction1 = 0.1F,
                     .bias_correction2 = 0.05F,
                     .clip_factor = 0.5F});
    });
    const double copy = seconds(device, [&] {
      check(cudaMemcpyAsync(to.array().data, from.array().data, static_cast<std::size_t>(kCopied),
                            cudaMemcpyDeviceToDevice, device.stream()),
            "cudaMemcpyAsync");
    });
    if (round < 0) continue;
    updates.push_back(update);
    copies.push_back(copy);
  }
  const auto rate = [](const std::vector<double>& times) {
    return kBytesOfElement * static_cast<double>(kElements) / bench::median(times) * 1e-9;
  };
  std::printf("AdamW in %s, %lld elements: %.0f GB/s; a copy of as many bytes: %.0f GB/s; ratio %.3f\n",
              bf16 ? "bf16" : "fp32", static_cast<long long>(kElements), rate(updates), rate(copies),
              rate(updates) / rate(copies));
  std::fflush(stdout);
}

}  // namespace
}  // namespace zero

int main() {
  using namespace zero;  // NOLINT: a program of one function
  if (const auto why = why_no_cuda()) {
    std::printf("skipped: %s\n", why->c_str());
    return 77;
  }
  try {
    CudaDevice device(ProductKind::canonical, 0);
    run(device, Dtype::fp32);
    run(device, Dtype::bf16);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 3;
  }
}
