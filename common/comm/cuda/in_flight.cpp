#include "common/comm/cuda/in_flight.h"

#include <algorithm>

namespace zero::cuda {
namespace {

using Seconds = std::chrono::duration<double>;

/// Between two looks of one wait there are milliseconds. Where there are more, the host was elsewhere, or stopped.
constexpr double kLongestPause = 0.1;

void record(cudaEvent_t& event, cudaStream_t stream) {
  if (event == nullptr) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  check(cudaEventRecord(event, stream), "cudaEventRecord");
}

bool is_reached(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery");
  return true;
}

}  // namespace

InFlight::~InFlight() {
  for (const Entry& entry : entries_) {
    if (entry.begun != nullptr) cudaEventDestroy(entry.begun);
    if (entry.done != nullptr) cudaEventDestroy(entry.done);
  }
}

void InFlight::begin(const char* what, cudaStream_t stream) {
  Entry& entry = entries_[(first_ + count_) % kMost];
  entry.what = what;
  record(entry.begun, stream);
}

void InFlight::end(cudaStream_t stream) {
  record(entries_[(first_ + count_) % kMost].done, stream);
  ++count_;
}

double InFlight::look() {
  while (count_ > 0 && is_reached(entries_[first_].done)) {
    first_ = (first_ + 1) % kMost;
    --count_;
    waited_ = 0;
  }
  const Clock::time_point now = Clock::now();
  if (count_ > 0 && (waited_ > 0 || is_reached(entries_[first_].begun))) {
    waited_ += std::min(Seconds(now - latest_look_).count(), kLongestPause);
  }
  latest_look_ = now;
  return waited_;
}

}  // namespace zero::cuda
