// Runs the baseline's golden runs and compares with golden.txt; `--print` prints the lines instead. One process, no
// MPI. Status 77, with a sentence, when ZERO_CPU_ISA asks for vector code that this processor does not have.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "common/base/error.h"
#include "common/device/cpu_isa.h"
#include "tests/golden/golden.h"

int main(int argc, char** argv) {
  using namespace zero;
  constexpr int kSkipped = 77;
  try {
    std::printf("vector code: %s\n", std::string(name(cpu_isa())).c_str());
  } catch (const Error& error) {
    std::printf("skipped: %s\n", error.what());
    return kSkipped;
  }
  const bool print = argc > 1 && std::strcmp(argv[1], "--print") == 0;
  const std::vector<std::string> golden = print ? std::vector<std::string>() : test::golden_lines();
  int wrong = 0;
  for (const test::Golden& run : test::golden_runs()) {
    const std::string line = test::golden_line(run.name, test::run(run.setting, MPI_COMM_SELF).steps.back());
    if (print) {
      std::printf("%s\n", line.c_str());
    } else if (std::find(golden.begin(), golden.end(), line) == golden.end()) {
      std::printf("%s: not the golden digests; this build gives\n%s\n", run.name.c_str(), line.c_str());
      ++wrong;
    } else {
      std::printf("%s: the golden digests\n", run.name.c_str());
    }
  }
  return wrong == 0 ? 0 : 1;
}
