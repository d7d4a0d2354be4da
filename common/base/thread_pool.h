#pragma once
/// \file
/// A few persistent threads that share the parts of one job.

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace zero {

/// Used by one thread, which takes its share of the work. Idle threads sleep.
class ThreadPool {
 public:
  /// `threads` >= 1 counts the caller: 1 starts none. Throws ResourceFailure when the system gives no more threads.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() { stop(); }

  [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls work(part) once for each part in [0, parts), on any thread and in any order, and returns when all are done.
  /// Rethrows one of the exceptions that `work` threw; the other parts still run. Not to be called from within `work`.
  void parallel_for(int parts, const std::function<void(int)>& work);

 private:
  void serve();       ///< a worker's life
  void take_parts();  ///< runs parts of the current job until none is left
  void stop();

  std::vector<std::thread> workers_;
  // The current job: written before jobs_ is raised, read after it was seen raised.
  const std::function<void(int)>* work_ = nullptr;
  int parts_ = 0;
  bool stopping_ = false;
  std::atomic<int> next_part_ = 0;
  std::atomic<unsigned> jobs_ = 0;  ///< jobs begun so far
  std::atomic<int> busy_ = 0;       ///< workers that have not finished the current job
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace zero
