// The optimizer sweep of the offload program over a swap file: sweep_bench DIRECTORY MIB [bf16] makes states of that
// size there, says how it moves bytes on the first line, and for every line on standard input sweeps once and answers
// "SECONDS READ WRITTEN". A sweep reads every chunk's weights, moments and gradient, updates them, and writes weights
// and moments back; the new parameters stay in host memory.

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "offload/updater.h"
#include "tests/bench/offload_states.h"

int main(int argc, char** argv) {
  using namespace zero;
  if (argc < 3) return 2;
  try {
    const std::string directory = argv[1];
    const Dtype dtype = argc > 3 && std::string(argv[3]) == "bf16" ? Dtype::bf16 : Dtype::fp32;
    offload::Settings settings;
    settings.optimizer = Tier::nvme;
    settings.open_file = [&](Index bytes) { return open_swap_file(directory, 0, bytes, offload::kSwapDepth); };
    bench::States own((Index{std::stol(argv[2])} << 20) / (12 + size_of(dtype)), dtype, settings);
    const auto parameters = offload::offloaded_home(own.context(), Tier::host, own.units(), own.swap());
    offload::Updater updater(own.context(), own.units(), own.states(), *parameters);
    std::printf("%s\n", own.swap().description().c_str());
    std::fflush(stdout);
    Index t = 0;
    for (std::string line; std::getline(std::cin, line);) {
      own.device().clear_transfers();
      const auto begin = std::chrono::steady_clock::now();
      updater.apply(++t, 1);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      const Transfers& moved = own.device().transfers();
      std::printf("%.9f %lld %lld\n", seconds, static_cast<long long>(moved.read),
                  static_cast<long long>(moved.written));
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 3;
  }
}
