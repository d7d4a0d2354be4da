#pragma once
/// \file
/// Ranges of addresses that memory is handed out from, and the lock on those of the device.

#include <cstddef>

namespace cuda_on_host {

/// Addresses, handed out from the front. Pages come when they are touched.
class Arena {
 public:
  /// `locked`: host code that touches it ends the program with one line, except within an Unlocked.
  explicit Arena(bool locked);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  static constexpr std::size_t kBytes = std::size_t{7} << 29;  ///< 3.5 GiB

  /// The next `bytes`, or nullptr. Multiples of 512.
  unsigned char* take(std::size_t bytes);
  /// Whether it was handed out.
  [[nodiscard]] bool has(const void* address) const;

 private:
  friend class Unlocked;
  void protect(int protection) const;

  void* reserved_;
  unsigned char* begin_;
  std::size_t taken_ = 0;
  bool locked_;
};

/// While one stands, work of the device runs and may touch its memory.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
};

/// All device memory is in one, all pinned host memory in the other.
Arena& device_arena();
Arena& pinned_arena();

}  // namespace cuda_on_host
