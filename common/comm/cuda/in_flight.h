#pragma once
/// \file
/// What is queued on a GPU and waits for peers: how long the one at work has waited.

#include <array>
#include <chrono>
#include <cstddef>
#include <string>

#include "common/device/cuda/runtime.h"

namespace zero::cuda {

/// Collectives in a stream that are not known to be done, the oldest first. Time counts against the oldest one only,
/// from where the stream has come to it (what is queued before it does not wait for peers), and only while somebody
/// looks: a host that computes does not wait either.
class InFlight {
 public:
  /// No more at once. The stream takes about a thousand launches before a launch waits for the GPU, without an end
  /// where a peer has gone; a collective takes a few.
  static constexpr std::size_t kMost = 64;

  InFlight() = default;
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] bool full() const { return count_ == kMost; }
  /// The name of the oldest; not when empty.
  [[nodiscard]] const std::string& what() const { return entries_[first_].what; }
  /// Where it is done.
  [[nodiscard]] cudaEvent_t done() const { return entries_[first_].done; }

  /// What the stream does between these two is a collective. Not when full.
  void begin(const char* what, cudaStream_t stream);
  void end(cudaStream_t stream);

  /// Forgets what is done. For how many seconds the oldest of the others has waited for its peers; 0 without any.
  double look();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string what;
    cudaEvent_t begun = nullptr, done = nullptr;  ///< made when first used
  };

  std::array<Entry, kMost> entries_;
  std::size_t first_ = 0, count_ = 0;
  double waited_ = 0;  ///< seconds
  Clock::time_point latest_look_;
};

}  // namespace zero::cuda
