#pragma once
/// \file
/// A block of memory that the ledger knows of.

#include "common/device/array.h"
#include "common/device/memory_ledger.h"

namespace zero {

class Device;

/// Owns elements in one tier. Move-only; gives its memory back, and tells the ledger, when it goes or is reset.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { reset(); }

  /// Frees the memory now.
  void reset();

  [[nodiscard]] explicit operator bool() const { return array_.data != nullptr; }
  [[nodiscard]] Array array() const { return array_; }
  [[nodiscard]] Array part(Index begin, Index count) const { return array_.part(begin, count); }
  [[nodiscard]] Index size() const { return array_.size; }

 private:
  friend class Device;
  Buffer(Device* device, Tier tier, Category category, Array array)
      : device_(device), tier_(tier), category_(category), array_(array) {}

  Device* device_ = nullptr;
  Tier tier_ = Tier::device;
  Category category_ = Category::workspace;
  Array array_;
};

}  // namespace zero
