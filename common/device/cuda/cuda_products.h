#pragma once
/// \file
/// Matrix products on a GPU. Matrices are in device memory; multiply() queues its work on the present stream, which
/// must outlive the products, and returns.

#include <memory>

#include "common/device/cuda/queues.h"
#include "common/device/products.h"

namespace zero {

/// Our own products, one chain of fma per output in rising k: the bits that the CPU's canonical products give. No
/// workspace.
std::unique_ptr<Products> make_cuda_canonical_products(cuda::PresentStream stream);

/// cuBLAS: fp32 operands without TF32, bf16 ones on tensor cores; sums are fp32, and an output is rounded once. Always
/// the same call for the same shape, without atomics, in a workspace of our own (32 MiB, which the largest GPUs can
/// use): the same bits in every run on the same GPU and library. That holds while all products are on one stream, or
/// wait for each other: they share the workspace. What cuBLAS has no call for goes our own way: k = 0, and fp32
/// operands with a bf16 result. cuBLAS holds memory of its own beside the workspace, which no ledger sees: its code,
/// and some megabytes. Throws ResourceFailure when cuBLAS cannot begin.
std::unique_ptr<Products> make_cublas_products(cuda::PresentStream stream);

}  // namespace zero
