#pragma once
/// \file
/// Views of contiguous elements in some tier of memory. They own nothing.

#include <cstddef>

#include "common/base/types.h"

namespace zero {

/// How an element is stored.
enum class Dtype { fp32, bf16, int32 };

/// Bytes of one element.
constexpr Index size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16: return 2;
    case Dtype::fp32:
    case Dtype::int32: return 4;
  }
  return 0;
}

/// A read-only view of `size` elements.
struct ConstArray {
  const void* data = nullptr;
  Index size = 0;
  Dtype dtype = Dtype::fp32;

  /// The elements `[begin, begin + count)`; the caller keeps them inside the view.
  [[nodiscard]] ConstArray part(Index begin, Index count) const {
    return {static_cast<const std::byte*>(data) + begin * size_of(dtype), count, dtype};
  }
  [[nodiscard]] Index bytes() const { return size * size_of(dtype); }
};

/// A view of `size` elements that may be written.
struct Array {
  void* data = nullptr;
  Index size = 0;
  Dtype dtype = Dtype::fp32;

  /// The elements `[begin, begin + count)`; the caller keeps them inside the view.
  [[nodiscard]] Array part(Index begin, Index count) const {
    return {static_cast<std::byte*>(data) + begin * size_of(dtype), count, dtype};
  }
  [[nodiscard]] Index bytes() const { return size * size_of(dtype); }
  operator ConstArray() const { return {data, size, dtype}; }  // NOLINT: a writable view reads like any other
};

}  // namespace zero
