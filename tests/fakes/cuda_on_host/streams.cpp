#include "tests/fakes/cuda_on_host/streams.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/cuda_on_host/arena.h"
#include "tests/fakes/cuda_on_host/calls.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/fakes/cuda_on_host/device.h"
#include "tests/fakes/cuda_on_host/memory.h"
#include "tests/fakes/cuda_on_host/settings.h"

namespace cuda_on_host {
namespace {

std::uint64_t waits_so_far = 0;
std::uint64_t ignored_wait = ~std::uint64_t{0};

/// What an event was last recorded at.
struct Mark {
  CUstream_st* stream;
  std::uint64_t number;  ///< of the work that reaches it
  bool reached = false;
};

struct Item {
  Work work;
  std::shared_ptr<Mark> after;  ///< of another stream, if any
};

}  // namespace

std::uint64_t waits() { return waits_so_far; }
void ignore_wait(std::uint64_t wait) { ignored_wait = wait; }
}  // namespace cuda_on_host

struct CUstream_st {
  std::deque<cuda_on_host::Item> items;
  std::uint64_t queued = 0, done = 0;  ///< work is numbered from 1
  int device = 0;
  bool destroyed = false;
};

struct CUevent_st {
  std::shared_ptr<cuda_on_host::Mark> mark;  ///< none before it is recorded
};

namespace cuda_on_host {
namespace {

constexpr std::size_t kFreedAtEnd = std::size_t{128} << 10;  // bytes looked at when a wait ends
constexpr auto kPatience = std::chrono::seconds(60);         // with work that is not ready

Schedule schedule = setting("CUDA_ON_HOST_SCHEDULE", {"lazy", "eager_others", "shuffled"}, Schedule::lazy);
std::mt19937 draw(seed_setting());
std::uint64_t work_done = 0;

/// In the order they were made. Those that were destroyed stay until their work has run. Neither list is destroyed, for
/// what has static lifetime and is destroyed late.
auto& streams = *new std::vector<std::unique_ptr<CUstream_st>>;
auto& events = *new std::vector<std::unique_ptr<CUevent_st>>;

template <class T>
auto find(std::vector<std::unique_ptr<T>>& all, const T* one) {
  return std::find_if(all.begin(), all.end(), [one](const auto& each) { return each.get() == one; });
}

bool after_its_event(const Item& item) { return item.after == nullptr || item.after->reached; }
Readiness readiness(const Item& item) { return item.work.ready ? item.work.ready() : Readiness::now; }
bool runnable(const CUstream_st& stream) {
  return !stream.items.empty() && after_its_event(stream.items.front()) &&
         readiness(stream.items.front()) == Readiness::now;
}

void run_head(CUstream_st& stream) {
  const Item item = std::move(stream.items.front());
  stream.items.pop_front();
  ++stream.done;
  ++work_done;
  if (item.work.run) item.work.run();
}

/// Whether the stream's next work is ready, now or, for the patient, later.
bool becomes_ready(const CUstream_st& stream, bool patient) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const Readiness now = readiness(stream.items.front());
    if (now != Readiness::later) return now == Readiness::now;
    if (!patient || std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// A point that someone waits for.
struct Point {
  CUstream_st& stream;
  std::uint64_t number;
  [[nodiscard]] bool reached() const { return stream.done >= number; }
};

/// Runs no more than the point depends on. False: some of it is not ready.
bool run_needed(const Point& point, bool patient) {
  while (!point.reached()) {
    const Item& head = point.stream.items.front();
    if (!after_its_event(head) && !run_needed({*head.after->stream, head.after->number}, patient)) return false;
    if (!becomes_ready(point.stream, patient)) return false;
    run_head(point.stream);
  }
  return true;
}

/// Runs all that can in other streams, but nothing of the point's own.
void run_others(const CUstream_st& but) {
  for (bool some = true; some;) {
    some = false;
    for (std::size_t s = 0; s < streams.size(); ++s) {
      if (streams[s].get() == &but) continue;
      for (; runnable(*streams[s]); some = true) run_head(*streams[s]);
    }
  }
}

bool run_shuffled(const Point& point, bool patient) {
  while (!point.reached()) {
    std::vector<CUstream_st*> heads;
    for (const auto& stream : streams) {
      if (runnable(*stream)) heads.push_back(stream.get());
    }
    if (heads.empty()) return run_needed(point, patient);
    run_head(*heads[draw() % heads.size()]);
  }
  return true;
}

/// Runs work until the point is reached. False: it is not, and what it depends on is not ready.
bool run_to(const Point& point, Schedule by, bool patient) {
  if (point.reached()) return true;
  bool reached = false;
  {
    const Unlocked unlocked;
    settle();
    if (by == Schedule::eager_others) run_others(point.stream);
    reached = by == Schedule::shuffled ? run_shuffled(point, patient) : run_needed(point, patient);
    check_bounds("work that has run", kFreedAtEnd);
  }
  std::erase_if(streams, [](const auto& stream) { return stream->destroyed && stream->items.empty(); });
  return reached;
}

/// What the point waits for: the first work there that is not ready.
std::string obstacle(const Point& point) {
  const Item& head = point.stream.items.front();
  return after_its_event(head) ? head.work.name : obstacle({*head.after->stream, head.after->number});
}

void run_or_fault(const Point& point, Schedule by, const char* who) {
  if (!run_to(point, by, true)) throw Fault(std::string(who) + " would wait forever for " + obstacle(point));
}

cudaError_t query(const Point& point) {
  if (point.reached()) return cudaSuccess;
  run_to(point, schedule, false);
  return cudaErrorNotReady;
}

Point end_of(CUstream_st& stream) { return {stream, stream.queued}; }

cudaError_t create(cudaStream_t* stream) {
  streams.push_back(std::make_unique<CUstream_st>());
  streams.back()->device = current_device();
  *stream = streams.back().get();
  return cudaSuccess;
}

}  // namespace

void set_schedule(Schedule new_schedule) { schedule = new_schedule; }
void seed_streams(unsigned seed) { draw.seed(seed); }
std::uint64_t work_that_ran() { return work_done; }

bool usable(cudaStream_t stream) {
  const auto found = find(streams, stream);
  return found != streams.end() && !stream->destroyed && stream->device == current_device();
}

void queue(cudaStream_t stream, Work work) {
  stream->items.push_back({std::move(work), nullptr});
  ++stream->queued;
}

void run_all(cudaStream_t stream) { run_or_fault(end_of(*stream), schedule, "the host"); }
bool try_run_all(cudaStream_t stream) { return run_to(end_of(*stream), schedule, true); }

}  // namespace cuda_on_host

using cuda_on_host::answer;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return answer("cudaStreamCreateWithFlags", [&] { return cuda_on_host::create(stream); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return answer("cudaStreamCreateWithPriority", [&] { return cuda_on_host::create(stream); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return answer("cudaDeviceGetStreamPriorityRange", [&] {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return answer("cudaStreamDestroy", [&] {
    const auto found = cuda_on_host::find(cuda_on_host::streams, stream);
    if (found == cuda_on_host::streams.end() || stream->destroyed) return cudaErrorInvalidResourceHandle;
    if (stream->items.empty()) {
      cuda_on_host::streams.erase(found);
    } else {
      stream->destroyed = true;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return answer("cudaStreamSynchronize", [&] {
    if (!cuda_on_host::usable(stream)) return cudaErrorInvalidResourceHandle;
    cuda_on_host::run_or_fault(cuda_on_host::end_of(*stream), cuda_on_host::schedule, "cudaStreamSynchronize");
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return answer("cudaStreamQuery", [&] {
    if (!cuda_on_host::usable(stream)) return cudaErrorInvalidResourceHandle;
    return cuda_on_host::query(cuda_on_host::end_of(*stream));
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return answer("cudaEventCreateWithFlags", [&] {
    cuda_on_host::events.push_back(std::make_unique<CUevent_st>());
    *event = cuda_on_host::events.back().get();
    return cudaSuccess;
  });
}

namespace {
bool usable(cudaEvent_t event) { return cuda_on_host::find(cuda_on_host::events, event) != cuda_on_host::events.end(); }
bool pending(cudaEvent_t event) { return event->mark != nullptr && !event->mark->reached; }
cuda_on_host::Point point_of(cudaEvent_t event) { return {*event->mark->stream, event->mark->number}; }
}  // namespace

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return answer("cudaEventDestroy", [&] {
    if (!usable(event)) return cudaErrorInvalidResourceHandle;
    cuda_on_host::events.erase(cuda_on_host::find(cuda_on_host::events, event));
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return answer("cudaEventRecord", [&] {
    if (!usable(event) || !cuda_on_host::usable(stream)) return cudaErrorInvalidResourceHandle;
    const auto mark = std::make_shared<cuda_on_host::Mark>(cuda_on_host::Mark{stream, stream->queued + 1});
    cuda_on_host::queue(stream, {"cudaEventRecord", [mark] { mark->reached = true; }});
    event->mark = mark;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return answer("cudaStreamWaitEvent", [&] {
    if (!usable(event) || !cuda_on_host::usable(stream)) return cudaErrorInvalidResourceHandle;
    if (!pending(event) || cuda_on_host::waits_so_far++ == cuda_on_host::ignored_wait) return cudaSuccess;
    cuda_on_host::queue(stream, {"cudaStreamWaitEvent", nullptr});
    stream->items.back().after = event->mark;
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return answer("cudaEventQuery", [&] {
    if (!usable(event)) return cudaErrorInvalidResourceHandle;
    return pending(event) ? cuda_on_host::query(point_of(event)) : cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return answer("cudaEventSynchronize", [&] {
    if (!usable(event)) return cudaErrorInvalidResourceHandle;
    if (pending(event)) {
      cuda_on_host::run_or_fault(point_of(event), cuda_on_host::schedule, "cudaEventSynchronize");
    }
    return cudaSuccess;
  });
}
