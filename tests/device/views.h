#pragma once
/// \file
/// Vectors as views, test data, and comparison of bits.

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "common/device/array.h"
#include "common/device/cpu_isa.h"
#include "common/device/kernels.h"
#include "common/device/scalar_math.h"

namespace zero::test {

inline Array view(std::vector<float>& v) { return {v.data(), static_cast<Index>(v.size()), Dtype::fp32}; }
inline ConstArray view(const std::vector<float>& v) { return {v.data(), static_cast<Index>(v.size()), Dtype::fp32}; }

inline Array view(std::vector<Bf16>& v) { return {v.data(), static_cast<Index>(v.size()), Dtype::bf16}; }
inline ConstArray view(const std::vector<Bf16>& v) { return {v.data(), static_cast<Index>(v.size()), Dtype::bf16}; }

/// Values as they are stored, and back.
template <class T>
std::vector<T> stored(const std::vector<float>& v) {
  std::vector<T> result;
  result.reserve(v.size());
  for (const float x : v) result.push_back(from_float<T>(x));
  return result;
}
template <class T>
std::vector<float> widened(const std::vector<T>& v) {
  std::vector<float> result;
  result.reserve(v.size());
  for (const T x : v) result.push_back(to_float(x));
  return result;
}

/// `n` values in [-scale, scale), each stream its own.
inline std::vector<float> values(Index n, std::uint64_t stream, float scale = 1) {
  std::vector<float> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) {
    const auto bits = static_cast<std::int32_t>(random_bits(7, stream, i) & 0xFFFFFFU) - (1 << 23);
    v[i] = static_cast<float>(bits) * 0x1p-23F * scale;
  }
  return v;
}

/// Bits, with one representative for all NaNs: what a NaN's payload is, no standard says.
inline std::uint32_t bits(float x) { return std::isnan(x) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(x); }
inline std::vector<std::uint32_t> bits(const std::vector<float>& v) {
  std::vector<std::uint32_t> result;
  result.reserve(v.size());
  for (const float x : v) result.push_back(bits(x));
  return result;
}

inline std::vector<std::uint32_t> bits(const std::vector<Bf16>& v) { return bits(widened(v)); }

/// What kernels find in one view, of tensor 0.
inline ScanResult scanned(Kernels& kernels, ConstArray in) {
  kernels.begin_scan();
  kernels.scan(in, 0);
  return kernels.end_scan();
}

/// The index of the first element of host memory that is not finite, or -1.
inline Index first_not_finite(ConstArray in) {
  for (Index i = 0; i < in.size; ++i) {
    const float x = in.dtype == Dtype::fp32 ? static_cast<const float*>(in.data)[i]
                                            : to_float(static_cast<const Bf16*>(in.data)[i]);
    if (!std::isfinite(x)) return i;
  }
  return -1;
}

/// The instruction sets that this machine and build have.
inline std::vector<CpuIsa> isas() {
  std::vector<CpuIsa> result;
  for (const CpuIsa isa : {CpuIsa::generic, CpuIsa::avx2, CpuIsa::avx512}) {
    if (available(isa)) result.push_back(isa);
  }
  return result;
}

}  // namespace zero::test
