#pragma once
/// \file
/// What a test does that needs GPUs which are not there.

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

namespace zero::test {

constexpr int kSkipped = 77;

/// Where a GPU is required (ZERO_REQUIRE_GPU=1) a test without any fails: a machine that was taken for its GPU is not
/// to pass for want of one.
inline bool requires_gpu() {
  const char* value = std::getenv("ZERO_REQUIRE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

/// Says why there is no GPU; the status to end with.
inline int without_gpu(const std::string& why) {
  std::cout << (requires_gpu() ? "failed, since ZERO_REQUIRE_GPU=1: " : "skipped: ") << why << std::endl;
  return requires_gpu() ? 1 : kSkipped;
}

}  // namespace zero::test
