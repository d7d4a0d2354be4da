#include "tests/fakes/cuda_on_host/grid.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/fakes/cuda_on_host/control.h"
#include "tests/fakes/cuda_on_host/fibers.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {
constexpr std::size_t kWatched = 1024;  // bytes past the shared memory; AddressSanitizer watches all
}

namespace zero::cuda {
/// The shared memory of the block that runs, by the name that kernels declare it with.
alignas(16) unsigned char shared_bytes[cuda_on_host::kMostSharedBytes + kWatched];
}  // namespace zero::cuda

namespace cuda_on_host {
namespace {

using zero::cuda::shared_bytes;

Order order = Order::forward;
std::mt19937 random_order;

/// 0 .. n-1 in the order that the test chose.
std::vector<unsigned> in_order(unsigned n) {
  std::vector<unsigned> indices(n);
  std::iota(indices.begin(), indices.end(), 0U);
  if (order == Order::reverse) std::reverse(indices.begin(), indices.end());
  if (order == Order::shuffled) std::shuffle(indices.begin(), indices.end(), random_order);
  return indices;
}

/// A thread that waits at a barrier: on which fiber, and at which place of the source.
struct Waiting {
  unsigned thread;
  Fiber* fiber;
  const char* file;
  int line;
};

class Block {
 public:
  Block(const Launch& launch, unsigned index) : launch_(launch), index_(index) {}

  void run() {
    blockIdx = {index_, 0, 0};
    // Threads run as a plain loop on one fiber until one of them waits; then the next fiber goes on with the loop.
    const std::vector<unsigned> threads = in_order(launch_.block.x);
    std::size_t next = 0;
    const std::function<void()> loop = [&] {
      while (next < threads.size()) {
        threadIdx = {threads[next++], 0, 0};
        launch_.thread();
        ++ended_;
      }
    };
    for (std::size_t f = 0; next < threads.size(); ++f) {
      if (f == fibers().size()) fibers().push_back(std::make_unique<Fiber>());
      fibers()[f]->start(loop);
      fibers()[f]->resume();
    }
    while (!waiting_.empty()) {
      check_barrier();
      std::vector<Waiting> at_barrier = std::exchange(waiting_, {});
      std::sort(at_barrier.begin(), at_barrier.end(),
                [](const Waiting& a, const Waiting& b) { return a.thread < b.thread; });
      for (const unsigned i : in_order(static_cast<unsigned>(at_barrier.size()))) {
        threadIdx = {at_barrier[i].thread, 0, 0};
        at_barrier[i].fiber->resume();
      }
    }
  }

  /// The thread that runs waits for the others.
  void wait(const char* file, int line) {
    waiting_.push_back({threadIdx.x, &Fiber::current(), file, line});
    Fiber::pause();
  }

 private:
  void check_barrier() const {
    const auto fault = [&](const std::string& what) {
      fibers().clear();
      throw Fault("kernel " + launch_.kernel + ": block " + std::to_string(index_) + ": " + what);
    };
    const auto place = [](const Waiting& at) { return std::string(at.file) + ":" + std::to_string(at.line); };
    if (ended_ > 0) {
      fault("a divergent barrier: " + std::to_string(waiting_.size()) + " threads wait at " + place(waiting_[0]) +
            " and " + std::to_string(ended_) + " have ended");
    }
    for (const Waiting& at : waiting_) {
      if (at.line != waiting_[0].line || std::strcmp(at.file, waiting_[0].file) != 0) {
        fault("a divergent barrier: threads wait at " + place(waiting_[0]) + " and at " + place(at));
      }
    }
  }

  /// Kept from block to block, idle in between. After a fault some stand in the middle of a job, and all go.
  static std::vector<std::unique_ptr<Fiber>>& fibers() {
    static std::vector<std::unique_ptr<Fiber>> all;
    return all;
  }

  const Launch& launch_;
  unsigned index_;
  std::size_t ended_ = 0;
  std::vector<Waiting> waiting_;
};

Block* running_block = nullptr;
Counts done;

constexpr unsigned char kBeyondShared = 0xA5;

/// Shared memory full of poison, and what is past it out of bounds.
void prepare_shared(std::size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(shared_bytes, sizeof shared_bytes);
  std::memset(shared_bytes, kPoison, bytes);
  std::memset(shared_bytes + bytes, kBeyondShared, kWatched);
  ASAN_POISON_MEMORY_REGION(shared_bytes + bytes, sizeof shared_bytes - bytes);
}

void check_shared(const Launch& launch) {
  ASAN_UNPOISON_MEMORY_REGION(shared_bytes, sizeof shared_bytes);
  const unsigned char* const end = shared_bytes + launch.shared_bytes;
  if (!std::all_of(end, end + kWatched, [](unsigned char byte) { return byte == kBeyondShared; })) {
    throw Fault("kernel " + launch.kernel + ": a write past the shared memory of " +
                std::to_string(launch.shared_bytes) + " bytes");
  }
}

}  // namespace

void set_order(Order new_order) { order = new_order; }

Counts counts() { return done; }

void run(const Launch& launch) {
  blockDim = launch.block;
  gridDim = launch.grid;
  for (const unsigned index : in_order(launch.grid.x)) {
    prepare_shared(launch.shared_bytes);
    Block block(launch, index);
    running_block = &block;
    block.run();
    check_shared(launch);
  }
  running_block = nullptr;
  ++done.kernels;
  done.threads += std::uint64_t{launch.grid.x} * launch.block.x;
}

}  // namespace cuda_on_host

void __syncthreads(const char* file, int line) { cuda_on_host::running_block->wait(file, line); }
