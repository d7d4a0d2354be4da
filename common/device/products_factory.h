#pragma once
/// \file
/// Makes the CPU's two kinds of matrix products.

#include <memory>

#include "common/device/cpu_isa.h"
#include "common/device/products.h"

namespace zero {

/// Our own products, one chain of fma per output in rising k: the same bits on every CPU, for every number of threads
/// (a NaN is a NaN everywhere; which of the many is left to the processor). Threads share outputs, never a chain.
/// Vector code as cpu_isa() says. Needs set_workspace() before the first product.
/// Throws UnusableInput for `threads` < 1.
std::unique_ptr<Products> make_canonical_products(int threads);

/// The same with the vector code named; throws UnusableInput when that is not available().
std::unique_ptr<Products> make_canonical_products(int threads, CpuIsa isa);

/// How library products multiply bf16 operands: `best` is by the processor's own bf16 instructions (AVX512-BF16, AMX)
/// where oneDNN uses them, else through fp32.
enum class Bf16Route { best, through_fp32 };

/// oneDNN on `threads` OpenMP threads: sgemm for fp32 operands, for bf16 ones its matmul or, `through_fp32`, sgemm on
/// widened blocks; sums are fp32. Always the same call for the same shape, with a result that depends on the machine,
/// its libraries, the shape and the number of threads. The workspace has 786,432 elements (3 MiB), for bf16 through
/// fp32; fp32 products do without it. Throws UnusableInput for `threads` < 1, and when this build has no oneDNN.
std::unique_ptr<Products> make_library_products(int threads, Bf16Route route = Bf16Route::best);

}  // namespace zero
