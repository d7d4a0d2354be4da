#include "common/device/cuda/queues.h"

#include <exception>
#include <stdexcept>

namespace zero::cuda {
namespace {

/// With so many marks of a queue not known to be reached, the GPU is asked before there are more.
constexpr std::size_t kManyMarks = 256;
/// Queue::compute has no more: the host waits for the oldest. Between two marks stand some tens of launches, and a
/// stream takes about a thousand before a launch waits, where no watch is asked and a peer that has gone is waited for
/// forever.
constexpr std::size_t kMostMarksOfCompute = 32;

}  // namespace

Queues::~Queues() {
  for (Line& line : lines_) {
    try {
      watches_.wait(line.stream.handle());
    } catch (const std::exception&) {  // nobody is left who would want to know
    }
    for (cudaEvent_t event : line.events) cudaEventDestroy(event);
  }
  for (cudaEvent_t event : idle_) cudaEventDestroy(event);
}

cudaEvent_t Queues::idle_event() {
  cudaEvent_t event = nullptr;
  if (idle_.empty()) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  } else {
    event = idle_.back();
    idle_.pop_back();
  }
  return event;
}

void Queues::set_reached(Line& line, std::uint64_t number) {
  for (; line.reached < number; ++line.reached) {
    idle_.push_back(line.events.front());
    line.events.pop_front();
  }
}

cudaEvent_t Queues::event_of(Mark mark) const {
  const Line& line = at(mark.queue);
  if (mark.number > line.latest) throw std::logic_error("a mark that this device did not make");
  return line.events[mark.number - line.reached - 1];
}

Mark Queues::mark(Queue queue) {
  Line& line = at(queue);
  while (line.events.size() >= kManyMarks && cudaEventQuery(line.events.front()) == cudaSuccess) {
    set_reached(line, line.reached + 1);
  }
  if (queue == Queue::compute && line.events.size() >= kMostMarksOfCompute) {
    synchronize(Mark{queue, line.reached + 1});
  }
  const cudaEvent_t event = idle_event();
  const cudaError_t status = cudaEventRecord(event, line.stream.handle());
  if (status != cudaSuccess) idle_.push_back(event);
  check(status, "cudaEventRecord");
  line.events.push_back(event);
  return {queue, ++line.latest};
}

void Queues::wait(Queue queue, Mark mark) {
  if (mark.queue == queue || mark.number <= at(mark.queue).reached) return;
  const cudaEvent_t event = event_of(mark);
  Line& line = at(queue);
  std::uint64_t& waited = line.waited[static_cast<std::size_t>(mark.queue)];
  if (mark.number <= waited) return;  // what is queued from now on comes after that wait as well
  check(cudaStreamWaitEvent(line.stream.handle(), event, 0), "cudaStreamWaitEvent");
  waited = mark.number;
}

void Queues::synchronize(Mark mark) {
  Line& line = at(mark.queue);
  if (mark.number <= line.reached) return;
  watches_.wait(event_of(mark));
  set_reached(line, mark.number);
}

void Queues::synchronize(Queue queue) {
  Line& line = at(queue);
  watches_.wait(line.stream.handle());
  set_reached(line, line.latest);
}

void PresentStream::synchronize() const {
  if (queues_ != nullptr) return queues_->synchronize(*present_);
  check(cudaStreamSynchronize(only_), "cudaStreamSynchronize");
}

// The copy itself waits for what was queued before, where nobody can be asked (watch.h): so that is waited for first.
void PresentStream::read_back(void* host, const void* device, std::size_t bytes) const {
  synchronize();
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDefault, *this), "cudaMemcpyAsync");
  synchronize();
}

}  // namespace zero::cuda
