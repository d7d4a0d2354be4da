#pragma once
/// \file
/// Where the time of a step goes.

#include <chrono>

namespace zero {

/// Seconds of the step under way; the loop sets them to zero before each step, trainers add to them.
struct Timers {
  double optimizer = 0;  ///< the update of the model states: clipping aside, without communication
  double offload = 0;    ///< waiting for what moves between tiers, outside the update
};

/// Adds the time from construction to destruction to `total`, which outlives it.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total) {}
  ~Stopwatch() { total_ += seconds(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Since construction.
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace zero
