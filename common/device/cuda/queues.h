#pragma once
/// \file
/// The queues of a CUDA device: a stream each, tied by events alone.

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "common/device/cuda/runtime.h"
#include "common/device/cuda/watch.h"
#include "common/device/device.h"

namespace zero::cuda {

/// Streams by Queue, and marks on them. All calls must come from one thread.
class Queues {
 public:
  Queues() = default;
  /// Waits for all that was queued; errors are nobody's any more.
  ~Queues();
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  [[nodiscard]] cudaStream_t stream(Queue queue) const { return at(queue).stream.handle(); }
  [[nodiscard]] Watches& watches() { return watches_; }

  /// What Device::mark(), wait() and synchronize() promise, with `queue` for the present one.
  Mark mark(Queue queue);
  void wait(Queue queue, Mark mark);
  void synchronize(Mark mark);

  /// The host waits for all that was queued on a queue.
  void synchronize(Queue queue);

 private:
  struct Line {
    explicit Line(Stream::Priority priority) : stream(priority) {}
    Stream stream;
    std::uint64_t reached = 0, latest = 0;           ///< numbers of marks
    std::deque<cudaEvent_t> events;                  ///< of the marks reached + 1, ..., latest
    std::array<std::uint64_t, kQueues> waited = {};  ///< the latest mark of each other queue that this one waits for
  };

  [[nodiscard]] Line& at(Queue queue) { return lines_[static_cast<std::size_t>(queue)]; }
  [[nodiscard]] const Line& at(Queue queue) const { return lines_[static_cast<std::size_t>(queue)]; }
  /// The event of a mark that is not known to be reached. Throws std::logic_error for one that was never made.
  [[nodiscard]] cudaEvent_t event_of(Mark mark) const;
  /// The marks up to `number` are reached: their events are for others to use.
  void set_reached(Line& line, std::uint64_t number);
  cudaEvent_t idle_event();

  Watches watches_;
  std::array<Line, kQueues> lines_ = {Line(Stream::Priority::usual), Line(Stream::Priority::high),
                                      Line(Stream::Priority::usual)};
  std::vector<cudaEvent_t> idle_;
};

/// The stream that work goes to: always the same one, or that of a device's present queue at the time of a call. Passes
/// for a cudaStream_t.
class PresentStream {
 public:
  PresentStream(cudaStream_t only) : only_(only) {}  // NOLINT: whoever has one stream has no more to say
  /// `present` changes; both outlive this.
  PresentStream(Queues& queues, const Queue& present) : queues_(&queues), present_(&present) {}

  operator cudaStream_t() const { return queues_ == nullptr ? only_ : queues_->stream(*present_); }  // NOLINT
  /// The host waits for all that was queued there.
  void synchronize() const;
  /// Queues a copy to the host's memory and waits for it, and so for all that was queued before.
  void read_back(void* host, const void* device, std::size_t bytes) const;

 private:
  cudaStream_t only_ = nullptr;
  Queues* queues_ = nullptr;
  const Queue* present_ = nullptr;
};

}  // namespace zero::cuda
