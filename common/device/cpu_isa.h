#pragma once
/// \file
/// Which vector code the CPU kernels use. All of it gives the same bits.

#include <string_view>

namespace zero {

enum class CpuIsa { generic, avx2, avx512 };

std::string_view name(CpuIsa isa);  ///< "generic", "AVX2", "AVX-512"

/// Whether the processor has it and the build holds it. `generic` always is.
bool available(CpuIsa isa);

/// The best that the processor has and the build holds, or what ZERO_CPU_ISA (`generic`, `avx2`, `avx512`) asks for.
/// Throws UnusableInput when that is unknown or not to be had.
CpuIsa cpu_isa();

}  // namespace zero
