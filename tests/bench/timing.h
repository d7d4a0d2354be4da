#pragma once
/// \file
/// What the benches share: time, medians, and the line that run_bench.py collects.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

namespace zero::bench {

/// Seconds of this thread's processor time, which other programs on the machine disturb less than the clock on the
/// wall.
inline double cpu_clock() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Work>
double cpu_seconds(Work work) {
  const double begin = cpu_clock();
  work();
  return cpu_clock() - begin;
}

/// Of at least one value; the upper one of the middle two.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

enum class Better { lower, higher };

/// One ratio, as a line of JSON on standard output.
inline void print_ratio(const std::string& name, double value, double bar, Better better) {
  std::printf(R"({"name": "%s", "value": %.4g, "bar": %.4g, "better": "%s"})"
              "\n",
              name.c_str(), value, bar, better == Better::lower ? "lower" : "higher");
  std::fflush(stdout);
}

}  // namespace zero::bench
