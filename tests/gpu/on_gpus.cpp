// on_gpus N PROGRAM [ARG...]: becomes PROGRAM, which sees N GPUs of those that are visible. Where there are fewer it
// says so and ends with status 77, a skipped test; where there is none and ZERO_REQUIRE_GPU=1 is set, with 1.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "common/device/cuda/runtime.h"
#include "common/device/device.h"
#include "tests/gpu/gate.h"

namespace {

/// The first `count` of what CUDA_VISIBLE_DEVICES names, or of all GPUs.
std::string first_gpus(int count) {
  std::string names;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    names = visible;
  } else {
    for (int i = 0; i < count; ++i) names.append(std::to_string(i)).append(",");
  }
  std::size_t end = 0;
  for (int i = 0; i < count && end != std::string::npos; ++i) end = names.find(',', i == 0 ? 0 : end + 1);
  return names.substr(0, end);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace zero;  // NOLINT: a program of one function
  const int wanted = argc > 2 ? std::atoi(argv[1]) : 0;
  if (wanted < 1) {
    std::cerr << "usage: on_gpus N PROGRAM [ARG...]" << std::endl;
    return 2;
  }
  if (const auto why = why_no_cuda()) return test::without_gpu(*why);
  const int there = cuda::count_devices();
  if (there < wanted) {
    std::cout << "skipped: this test needs " << wanted << " GPUs, and " << there << (there == 1 ? " is" : " are")
              << " visible" << std::endl;
    return test::kSkipped;
  }
  setenv("CUDA_VISIBLE_DEVICES", first_gpus(wanted).c_str(), 1);
  execvp(argv[2], argv + 2);
  std::cerr << "error: " << argv[2] << " cannot be started: " << std::strerror(errno) << std::endl;
  return 2;
}
