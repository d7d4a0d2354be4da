#include "tests/fakes/cuda_on_host/grid.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/fakes/cuda_on_host/asan.h"
#include "tests/fakes/cuda_on_host/device.h"
#include "tests/fakes/cuda_on_host/fibers.h"
#include "tests/fakes/cuda_on_host/settings.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {
constexpr std::size_t kWatched = 512;  // bytes past the shared memory; AddressSanitizer watches all
}

namespace zero::cuda {
/// The shared memory of the block that runs, by the name that kernels declare it with.
alignas(16) unsigned char shared_bytes[cuda_on_host::kMostSharedBytes + kWatched];
}  // namespace zero::cuda

namespace cuda_on_host {
namespace {

using zero::cuda::shared_bytes;

Order order = setting("CUDA_ON_HOST_ORDER", {"forward", "reverse", "shuffled"}, Order::forward);
std::mt19937 random_order(seed_setting());

/// 0 .. n-1 in the order that the test chose; a shuffled one is drawn anew each time. Keeps its memory.
class Sequence {
 public:
  const std::vector<unsigned>& of(unsigned n) {
    if (numbers_.size() != n || order_ != order) {
      order_ = order;
      numbers_.resize(n);
      std::iota(numbers_.begin(), numbers_.end(), 0U);
      if (order == Order::reverse) std::reverse(numbers_.begin(), numbers_.end());
    }
    if (order == Order::shuffled) std::shuffle(numbers_.begin(), numbers_.end(), random_order);
    return numbers_;
  }

 private:
  std::vector<unsigned> numbers_;
  Order order_ = Order::forward;
};

/// A place in the source.
struct Place {
  const char* file = "";
  int line = 0;
  bool operator==(const Place& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
  [[nodiscard]] std::string text() const { return std::string(file) + ":" + std::to_string(line); }
};

/// The blocks of a launch, one after the other.
class Blocks {
 public:
  void run(const Launch& launch, unsigned index) {
    launch_ = &launch;
    index_ = index;
    ended_ = waiting_ = 0;
    elsewhere_ = false;
    const unsigned n = launch.block.x;
    fiber_of_.resize(n);
    // Threads run as a plain loop on one fiber until one of them waits; then the next fiber goes on with the loop.
    const std::vector<unsigned>& threads = threads_.of(n);
    std::size_t next = 0;
    const std::function<void()> loop = [&] {
      while (next < threads.size()) {
        threadIdx = {threads[next++], 0, 0};
        launch.thread();
        ++ended_;
      }
    };
    for (std::size_t f = 0; next < threads.size(); ++f) {
      if (f == fibers_.size()) fibers_.push_back(std::make_unique<Fiber>());
      fibers_[f]->start(loop);
      fibers_[f]->resume();
    }
    while (waiting_ > 0) {
      check_barrier();
      waiting_ = 0;
      for (const unsigned thread : after_barrier_.of(n)) {
        threadIdx = {thread, 0, 0};
        fiber_of_[thread]->resume();
      }
    }
  }

  /// The thread that runs waits for the others.
  void wait(const Place& place) {
    if (waiting_++ == 0) {
      place_ = place;
    } else if (!(place == place_)) {
      elsewhere_ = true;
      other_place_ = place;
    }
    fiber_of_[threadIdx.x] = &Fiber::current();
    Fiber::pause();
  }

 private:
  void check_barrier() {
    if (ended_ > 0) {
      fault(std::to_string(waiting_) + " threads wait at " + place_.text() + " and " + std::to_string(ended_) +
            " have ended");
    }
    if (elsewhere_) fault("threads wait at " + place_.text() + " and at " + other_place_.text());
  }

  [[noreturn]] void fault(const std::string& what) {
    fibers_.clear();  // some stand in the middle of a job
    throw Fault(launch_->name + ": block " + std::to_string(index_) + ": a divergent barrier: " + what);
  }

  const Launch* launch_ = nullptr;
  unsigned index_ = 0;
  std::size_t ended_ = 0, waiting_ = 0;
  Place place_, other_place_;
  bool elsewhere_ = false;  // a thread waits at other_place_
  Sequence threads_, after_barrier_;
  std::vector<Fiber*> fiber_of_;                // by thread, of those that wait
  std::vector<std::unique_ptr<Fiber>> fibers_;  // kept from block to block, idle in between
};

Blocks& blocks() {
  static Blocks all;
  return all;
}

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
  if (*end != kBeyondShared || std::memcmp(end, end + 1, kWatched - 1) != 0) {
    throw Fault(launch.name + ": a write past the shared memory of " + std::to_string(launch.shared_bytes) + " bytes");
  }
}

}  // namespace

void set_order(Order new_order) { order = new_order; }
void seed_grid(unsigned seed) { random_order.seed(seed); }
Counts counts_of_grid() { return done; }

void run(const Launch& launch) {
  static Sequence indices;
  blockDim = launch.block;
  gridDim = launch.grid;
  bool first = true;
  for (const unsigned index : indices.of(launch.grid.x)) {
    // Without shared memory of its own a block writes there by mistake alone: seen after the last.
    if (first || launch.shared_bytes > 0) prepare_shared(launch.shared_bytes);
    first = false;
    blockIdx = {index, 0, 0};
    blocks().run(launch, index);
    if (launch.shared_bytes > 0) check_shared(launch);
  }
  check_shared(launch);
  ++done.kernels;
  done.threads += std::uint64_t{launch.grid.x} * launch.block.x;
}

}  // namespace cuda_on_host

void __syncthreads(const char* file, int line) { cuda_on_host::blocks().wait({file, line}); }
