#pragma once
/// \file
/// Waiting for peers that may share a core with us, and may never come.

#include <chrono>
#include <vector>

namespace zero {

/// One wait. Call pause() after each look that found nothing: it spins for some microseconds (not when `ranks` is more
/// than the cores of the machine: then a peer may need this one), yields the core for milliseconds, then sleeps.
class Waiter {
 public:
  /// `timeout_seconds` runs from the first pause that does not spin. Time in which this process did not run (stopped by
  /// a signal, a suspended machine) does not count.
  Waiter(double timeout_seconds, int ranks);

  /// False when the time is up.
  [[nodiscard]] bool pause();

 private:
  using Clock = std::chrono::steady_clock;
  double timeout_seconds_;
  int spins_left_;
  bool started_ = false;
  Clock::time_point start_;
  Clock::time_point latest_;
};

/// Throws ResourceFailure: the collective `what`, the ranks that did not reach it, and the time that was waited.
[[noreturn]] void fail_late(const char* what, const std::vector<int>& late, double timeout_seconds);

}  // namespace zero
