#pragma once
/// \file
/// Call stacks of their own, so that a kernel's thread can stop at a barrier and another go on.

#include <functional>
#include <memory>
#include <vector>

namespace cuda_on_host {

/// Runs one job at a time, piece by piece. Jobs of all fibers run on the one thread that resumes them.
class Fiber {
 public:
  Fiber();
  ~Fiber();  ///< A job that is not done is dropped where it stands.
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Only on a fiber that is idle(). `job` must stay until it is done.
  void start(const std::function<void()>& job);
  /// Runs the job to its next pause(), or its end.
  void resume();
  [[nodiscard]] bool idle() const { return job_ == nullptr; }
  /// The fiber that runs, for the job on it.
  static Fiber& current();
  /// Called by the job that runs: returns to whoever resumed it.
  static void pause();

 private:
  struct Stack;
  static void run();

  std::unique_ptr<Stack> stack_;
  const std::function<void()>* job_ = nullptr;
};

}  // namespace cuda_on_host
