#pragma once
/// \file
/// A vector of outputs of a canonical product, and the block of outputs that the registers hold, for the instruction
/// set that this is compiled for. Internal linkage.

#include <cstdint>

#include "common/device/scalar_math.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace zero {
namespace {

// A vector of outputs, and the block of outputs (kRows rows of kVectors vectors) that the registers hold.
#if defined(__AVX512F__)
using Vec = __m512;
constexpr int kLanes = 16, kRows = 8, kVectors = 3;
Vec zeros() { return _mm512_setzero_ps(); }
Vec load(const float* from) { return _mm512_loadu_ps(from); }
Vec load(const Bf16* from) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  // In the form with a mask of all lanes: gcc 12 warns of uninitialized values in the headers' other one.
  constexpr __mmask16 kAll = 0xFFFF;
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, half), 16));
}
void store(float* to, Vec value) { _mm512_storeu_ps(to, value); }
Vec broadcast(const float* from) { return _mm512_set1_ps(*from); }
Vec fma(Vec a, Vec b, Vec sum) { return _mm512_fmadd_ps(a, b, sum); }
#elif defined(__AVX2__) && defined(__FMA__)
using Vec = __m256;
constexpr int kLanes = 8, kRows = 6, kVectors = 2;
Vec zeros() { return _mm256_setzero_ps(); }
Vec load(const float* from) { return _mm256_loadu_ps(from); }
Vec load(const Bf16* from) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
void store(float* to, Vec value) { _mm256_storeu_ps(to, value); }
Vec broadcast(const float* from) { return _mm256_broadcast_ss(from); }
Vec fma(Vec a, Vec b, Vec sum) { return _mm256_fmadd_ps(a, b, sum); }
#elif defined(__aarch64__)
using Vec = float32x4_t;
constexpr int kLanes = 4, kRows = 8, kVectors = 3;
Vec zeros() { return vdupq_n_f32(0); }
Vec load(const float* from) { return vld1q_f32(from); }
Vec load(const Bf16* from) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(from)), 16));
}
void store(float* to, Vec value) { vst1q_f32(to, value); }
Vec broadcast(const float* from) { return vld1q_dup_f32(from); }
Vec fma(Vec a, Vec b, Vec sum) { return vfmaq_f32(sum, a, b); }
#else
struct Vec {
  float lane[4];
};
constexpr int kLanes = 4, kRows = 4, kVectors = 1;

Vec zeros() { return {}; }

template <class T>
Vec load(const T* from) {
  return {{to_float(from[0]), to_float(from[1]), to_float(from[2]), to_float(from[3])}};
}

void store(float* to, Vec value) {
  for (int l = 0; l < kLanes; ++l) to[l] = value.lane[l];
}

Vec broadcast(const float* from) { return {{*from, *from, *from, *from}}; }

// fma without the instruction. In double the product is exact and the sum has one rounding, whose error is exact
// (Knuth's two-sum). Rounding to odd instead (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums:
// proved algorithms using rounding to odd", 2008) makes the second rounding, to float, the only one that counts.
float fma(float a, float b, float sum) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(sum);
  const double rounded = product + addend;
  const double part = rounded - product;
  const double error = (product - (rounded - part)) + (addend - part);
  std::int64_t bits = __builtin_bit_cast(std::int64_t, rounded);
  const std::int64_t inexact = (error < 0) | (error > 0);  // neither for a NaN: then nothing is to be mended
  const std::int64_t to_odd = inexact & ~bits & 1;
  const std::int64_t inward = (error < 0) ^ (rounded < 0);
  bits += to_odd - 2 * (to_odd & inward);
  return static_cast<float>(__builtin_bit_cast(double, bits));
}

Vec fma(Vec a, Vec b, Vec sum) {
  for (int l = 0; l < kLanes; ++l) sum.lane[l] = fma(a.lane[l], b.lane[l], sum.lane[l]);
  return sum;
}
#endif

#if defined(__AVX2__)
__m128 load_four(const float* from) { return _mm_loadu_ps(from); }
__m128 load_four(const Bf16* from) {
  const __m128i four = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(four), 16));
}
#endif

}  // namespace
}  // namespace zero
