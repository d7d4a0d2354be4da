#pragma once
/// \file
/// Makes the CPU's two kinds of matrix products.

#include <memory>

#include "common/device/products.h"

namespace zero {

/// Our own products, one chain of fma per output in rising k: the same bits on every CPU, for every number of threads.
/// Vector code as cpu_isa() says. Needs set_workspace() before the first product.
/// Throws UnusableInput for `threads` < 1.
std::unique_ptr<Products> make_canonical_products(int threads);

/// oneDNN's sgemm on `threads` OpenMP threads; always the same call for the same shape. Needs no workspace.
/// Throws UnusableInput for `threads` < 1, and when this build has no oneDNN.
std::unique_ptr<Products> make_library_products(int threads);

}  // namespace zero
