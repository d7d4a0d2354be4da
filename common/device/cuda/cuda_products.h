#pragma once
/// \file
/// Matrix products on a GPU.

#include <memory>

#include "common/device/cuda/runtime.h"
#include "common/device/products.h"

namespace zero {

/// Our own products, one chain of fma per output in rising k: the bits that the CPU's canonical products give. Matrices
/// are in device memory; multiply() queues its work on `stream`, which must outlive the products, and returns. No
/// workspace.
std::unique_ptr<Products> make_cuda_canonical_products(cudaStream_t stream);

}  // namespace zero
