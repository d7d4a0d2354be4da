#include "common/comm/wait.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "common/base/error.h"

namespace zero {
namespace {

constexpr int kSpins = 2000;             // some tens of microseconds
constexpr double kYieldSeconds = 0.002;  // longer than the imbalance of ranks at the same work

constexpr auto kStopped = std::chrono::seconds(1);

/// A hundredth of what was waited already, so that sleeping too long costs little and a long wait wakes up rarely.
std::chrono::duration<double> sleep_after(double waited_seconds) {
  return std::chrono::duration<double>(std::clamp(waited_seconds / 100, 50e-6, 1e-3));
}

void relax_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

int spins_for(int ranks) {
  static const unsigned cores = std::thread::hardware_concurrency();
  return static_cast<unsigned>(ranks) <= cores ? kSpins : 0;
}

}  // namespace

Waiter::Waiter(double timeout_seconds, int ranks) : timeout_seconds_(timeout_seconds), spins_left_(spins_for(ranks)) {}

bool Waiter::pause() {
  if (spins_left_ > 0) {
    --spins_left_;
    relax_core();
    return true;
  }
  const auto now = Clock::now();
  if (!started_) {
    started_ = true;
    start_ = now;
    latest_ = now;
  }
  // No pause lasts nearly as long: this process was stopped, and its peers perhaps with it.
  if (now - latest_ > kStopped) start_ += now - latest_;
  latest_ = now;
  const double waited = std::chrono::duration<double>(now - start_).count();
  if (waited < kYieldSeconds) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(sleep_after(waited));
  }
  return waited < timeout_seconds_;
}

void fail_late(const char* what, const std::vector<int>& late, double timeout_seconds) {
  std::string ranks;
  for (std::size_t i = 0; i < late.size(); ++i) {
    const char* separator = i == 0 ? "" : (i + 1 == late.size() ? " and " : ", ");
    ranks += fmt::format("{}{}", separator, late[i]);
  }
  throw ResourceFailure(fmt::format("{}: rank{} {} did not come within --timeout {:g} seconds", what,
                                    late.size() == 1 ? "" : "s", ranks, timeout_seconds));
}

}  // namespace zero
