#include "common/device/cuda/watch.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace zero::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kSpinSeconds = 100e-6;  // a look at the GPU takes about a microsecond
constexpr double kYieldSeconds = 0.002;

/// The longer it was waited already, the longer until the next look: sleeping too long costs a hundredth.
void pause(double waited) {
  if (waited < kSpinSeconds) return;
  if (waited < kYieldSeconds) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(Seconds(std::clamp(waited / 100, 50e-6, 1e-3)));
  }
}

}  // namespace

template <class Query>
void Watches::wait_while_not_ready(Query query, const char* call) const {
  const Clock::time_point start = Clock::now();
  cudaError_t status = query();
  for (; status == cudaErrorNotReady; status = query()) {
    for (const Look& look : looks_) look();
    pause(Seconds(Clock::now() - start).count());
  }
  check(status, call);
}

// With nobody to ask, the runtime waits its own way.
void Watches::wait(cudaStream_t stream) const {
  if (looks_.empty()) return check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  wait_while_not_ready([stream] { return cudaStreamQuery(stream); }, "cudaStreamQuery");
}

void Watches::wait(cudaEvent_t event) const {
  if (looks_.empty()) return check(cudaEventSynchronize(event), "cudaEventSynchronize");
  wait_while_not_ready([event] { return cudaEventQuery(event); }, "cudaEventQuery");
}

}  // namespace zero::cuda
