#pragma once
/// \file
/// Arguments of kernels as loops and launches take them: an address and a count, checked.

#include <cstddef>
#include <stdexcept>
#include <string>

#include "common/device/array.h"
#include "common/device/kernels.h"
#include "common/device/scalar_math.h"

namespace zero {

inline std::size_t count(Index n) { return static_cast<std::size_t>(n); }

/// A condition that only a mistake of the caller breaks.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(std::string("a kernel was called with ") + what);
}

template <class T>
inline constexpr Dtype kDtypeOf = Dtype::fp32;
template <>
inline constexpr Dtype kDtypeOf<Bf16> = Dtype::bf16;

/// The elements of a view that must have at least `size` of them, stored as T.
template <class T>
T* elements(Array array, Index size) {
  require(array.dtype == kDtypeOf<T>, "a view of the wrong type");
  require(size >= 0 && array.size >= size, "a view that is too short");
  return static_cast<T*>(array.data);
}

template <class T>
const T* elements(ConstArray array, Index size) {
  require(array.dtype == kDtypeOf<T>, "a view of the wrong type");
  require(size >= 0 && array.size >= size, "a view that is too short");
  return static_cast<const T*>(array.data);
}

/// The scalars of an update as its elements use them.
inline AdamWScalars adamw_scalars(const AdamWStep& step) {
  return {.learning_rate = step.learning_rate,
          .beta1 = step.beta1,
          .one_minus_beta1 = 1.0F - step.beta1,
          .beta2 = step.beta2,
          .one_minus_beta2 = 1.0F - step.beta2,
          .epsilon = step.epsilon,
          .weight_decay = step.weight_decay,
          .bias_correction1 = step.bias_correction1,
          .bias_correction2 = step.bias_correction2,
          .clip_factor = step.clip_factor};
}

}  // namespace zero
