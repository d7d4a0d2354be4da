// AdamW on the host, as the offload program runs it (OptimizerStates::update, chunk by chunk), against a loop that
// reads and writes the same streams in place without arithmetic: what the memory allows. In fp32 (weights, momentum,
// variance, gradients, and the copy of the new parameters) and bf16 (gradients and the copy in bf16), with 1 and 2
// threads. Prints the ratio of their bandwidths as lines of JSON, and both of them on standard error.
//
// The alternatives take turns, and each round has its own ratio: what disturbs the machine disturbs both alike. With
// one thread its processor time is taken; with two, the time on the wall, which is only good on a machine with two idle
// cores. The two alternatives have streams of their own, of the same sizes from the same allocator.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/bench/offload_states.h"
#include "tests/bench/same_streams.h"
#include "tests/bench/timing.h"

namespace zero::bench {
namespace {

template <typename Work>
double wall_seconds(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(bool quick, Dtype dtype, int threads) {
  offload::Settings settings;
  settings.threads = threads;
  States own(Index{quick ? 6 : 24} << 20, dtype, settings);  // far beyond the caches
  Device& device = own.device();
  const auto parameters = offload::offloaded_home(own.context(), Tier::host, own.units(), own.swap());
  const std::vector<offload::Chunk> chunks = offload::all_chunks(own.units());
  const AdamWStep step{.learning_rate = 1e-4F,
                       .beta1 = 0.9F,
                       .beta2 = 0.95F,
                       .epsilon = 1e-8F,
                       .weight_decay = 0.1F,
                       .bias_correction1 = 0.1F,
                       .bias_correction2 = 0.05F,
                       .clip_factor = 0.5F};

  const Index size = own.size();
  const auto stream = [&](Dtype type) { return device.allocate(Category::workspace, size, type, Tier::host); };
  const Buffer weights = stream(Dtype::fp32), momentum = stream(Dtype::fp32), variance = stream(Dtype::fp32),
               gradients = stream(dtype), rounded = stream(dtype);
  ThreadPool pool(threads);
  const auto touch_all = [&] {
    const Index part = round_up(divide_up(size, threads), kAlignment);
    pool.parallel_for(threads, [&](int thread) {
      const Index begin = std::min(thread * part, size), count = std::min(part, size - begin);
      const auto floats = [&](const Buffer& buffer) { return static_cast<float*>(buffer.part(begin, count).data); };
      const auto bytes = [&](const Buffer& buffer) { return static_cast<std::byte*>(buffer.part(begin, count).data); };
      const Streams streams{floats(weights),  floats(momentum), floats(variance),
                            bytes(gradients), bytes(rounded),   count};
      dtype == Dtype::bf16 ? touch_streams<Half, true>(streams) : touch_streams<Vector, true>(streams);
    });
  };
  const auto update_all = [&] {
    for (const offload::Chunk& chunk : chunks) {
      own.states().update(chunk, step, parameters->open_to_overwrite(chunk));
      parameters->close(chunk);
    }
  };

  std::vector<double> updates, touches, ratios;
  const auto seconds = [&](const auto& work) { return threads == 1 ? cpu_seconds(work) : wall_seconds(work); };
  for (int round = -1; round < (quick ? 5 : 21); ++round) {  // one to warm up
    const double update = seconds(update_all), touched = seconds(touch_all);
    if (round < 0) continue;
    updates.push_back(update);
    touches.push_back(touched);
    ratios.push_back(touched / update);
  }
  const double bytes = static_cast<double>(size * (24 + 2 * size_of(dtype)));
  const char* type = dtype == Dtype::bf16 ? "bf16" : "fp32";
  std::fprintf(stderr, "GB/s, %s, %d thread%s: AdamW on the host %.1f, the same streams without arithmetic %.1f\n",
               type, threads, threads == 1 ? "" : "s", bytes / median(updates) * 1e-9, bytes / median(touches) * 1e-9);
  print_ratio(
      "offload/adamw_" + std::string(type) + "_threads" + std::to_string(threads) + "_bandwidth_over_same_streams",
      median(ratios), 0.95, Better::higher);
}

}  // namespace
}  // namespace zero::bench

int main(int argc, char** argv) {
  using namespace zero;
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const unsigned cores = std::thread::hardware_concurrency();
  for (const int threads : {1, 2}) {
    if (threads > 1 && cores < 2) {
      std::fprintf(stderr, "offload: AdamW on 2 threads is not measured on %u core\n", cores);
      continue;
    }
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) bench::run(quick, dtype, threads);
  }
  return 0;
}
