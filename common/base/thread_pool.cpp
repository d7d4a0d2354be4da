#include "common/base/thread_pool.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "common/base/error.h"

namespace zero {

ThreadPool::ThreadPool(int threads) {
  try {
    for (int t = 1; t < threads; ++t) workers_.emplace_back([this] { serve(); });
  } catch (const std::system_error& error) {
    stop();
    throw ResourceFailure(fmt::format("{} threads could not be started ({}); ask for fewer", threads, error.what()));
  }
}

void ThreadPool::parallel_for(int parts, const std::function<void(int)>& work) {
  work_ = &work;
  parts_ = parts;
  next_part_ = 0;
  busy_ = static_cast<int>(workers_.size());
  ++jobs_;
  jobs_.notify_all();
  take_parts();
  for (int busy = busy_; busy != 0; busy = busy_) busy_.wait(busy);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::take_parts() {
  for (int part = next_part_++; part < parts_; part = next_part_++) {
    try {
      (*work_)(part);
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      error_ = std::current_exception();
    }
  }
}

void ThreadPool::serve() {
  for (unsigned done = 0;; ++done) {
    jobs_.wait(done);
    if (stopping_) return;
    take_parts();
    if (--busy_ == 0) busy_.notify_one();
  }
}

void ThreadPool::stop() {
  stopping_ = true;
  ++jobs_;
  jobs_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

}  // namespace zero
