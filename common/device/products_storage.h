#pragma once
/// \file
/// What both kinds of products do with the storage types of their matrices.

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "common/device/products.h"

namespace zero {

/// Any other types than those that Products::multiply() takes are a mistake of the caller.
inline void require_dtypes(const Array& out, const Matrix& a, const Matrix& b) {
  if (a.data.dtype != b.data.dtype || a.data.dtype == Dtype::int32 || out.dtype == Dtype::int32) {
    throw std::logic_error("a product of operands of two types, or of integers");
  }
}

/// The product with k = 0: rows of `n` zeros.
inline void write_zeros(Array out, Index ld_out, Index m, Index n) {
  for (Index i = 0; i < m; ++i) {
    if (out.dtype == Dtype::bf16) {
      std::fill_n(static_cast<std::uint16_t*>(out.data) + i * ld_out, n, std::uint16_t{0});
    } else {
      std::fill_n(static_cast<float*>(out.data) + i * ld_out, n, 0.0F);
    }
  }
}

}  // namespace zero
