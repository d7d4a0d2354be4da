#pragma once
/// \file
/// Waiting for a GPU while somebody looks out for what would make the waiting endless: a peer that has gone.

#include <functional>
#include <list>
#include <utility>

#include "common/device/cuda/runtime.h"

namespace zero::cuda {

/// Those who want to be asked while the host waits for a GPU. Outlives every Watch it gave. Not thread-safe.
class Watches {
 public:
  using Look = std::function<void()>;

  Watches() = default;
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;

  /// One who looks, as long as it lives. Move-only.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept : watches_(std::exchange(other.watches_, nullptr)), place_(other.place_) {}
    Watch& operator=(Watch&& other) noexcept {
      Watch taken(std::move(other));
      std::swap(watches_, taken.watches_);
      std::swap(place_, taken.place_);
      return *this;
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() {
      if (watches_ != nullptr) watches_->looks_.erase(place_);
    }

   private:
    friend class Watches;
    Watch(Watches& watches, std::list<Look>::iterator place) : watches_(&watches), place_(place) {}
    Watches* watches_ = nullptr;
    std::list<Look>::iterator place_ = {};
  };

  /// `look` is called between two looks at the GPU, every few microseconds at first and every millisecond later, from
  /// the thread that waits. What it throws ends the waiting and passes through it; the work goes on. It must not wait
  /// for the GPU, nor add or end a watch.
  [[nodiscard]] Watch add(Look look) { return {*this, looks_.insert(looks_.end(), std::move(look))}; }

  /// The host waits until all that was queued on the stream, or before the event was recorded, is done. Throws what
  /// check() throws for work that failed, and what a watch throws.
  void wait(cudaStream_t stream) const;
  void wait(cudaEvent_t event) const;

 private:
  template <class Query>
  void wait_while_not_ready(Query query, const char* call) const;

  std::list<Look> looks_;
};

using Watch = Watches::Watch;

}  // namespace zero::cuda
