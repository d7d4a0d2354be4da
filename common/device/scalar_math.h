#pragma once
/// \file
/// The one definition of all scalar arithmetic besides products, for host and device. It uses only operations that IEEE
/// 754 defines to the last bit (+ - * / sqrt, fma where it is written, integer operations, bit casts), so an element
/// has the same bits on every processor, compiler, optimisation level and vector width. Selects instead of branches, so
/// that loops over it vectorise. Compile without contraction (-ffp-contract=off, --fmad=false).
///
/// Included by code compiled once per instruction set, so: only `<cstdint>`, `<cstddef>` and headers like this one,
/// and internal linkage throughout.
///
/// Error bounds are in units in the last place of the exact result; tests/device/scalar_math_test.cpp checks them. A
/// NaN gives a NaN; its payload is not specified.

#include <cstddef>
#include <cstdint>

#include "common/base/philox.h"

namespace zero {

// --- bits and storage types ------------------------------------------------------------------------------------------

ZERO_HD static inline std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

ZERO_HD static inline float float_of(std::uint32_t bits) {
  float x = 0;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

/// A number in bfloat16, as it is stored: the upper half of an fp32 (1 sign, 8 exponent and 7 fraction bits).
struct Bf16 {
  std::uint16_t bits;
};

/// A stored element as fp32 (exact).
ZERO_HD static inline float to_float(float x) { return x; }
ZERO_HD static inline float to_float(Bf16 x) { return float_of(static_cast<std::uint32_t>(x.bits) << 16); }

/// fp32 rounded to a storage type: to nearest, ties to even; beyond the largest bf16, infinity. A NaN becomes a quiet
/// NaN with the same sign and the upper half of its payload.
template <class T>
ZERO_HD static inline T from_float(float x);
template <>
ZERO_HD inline float from_float<float>(float x) {
  return x;
}
template <>
ZERO_HD inline Bf16 from_float<Bf16>(float x) {
  const std::uint32_t bits = bits_of(x);
  // Half a step less one, and one more where the kept part is odd: a tie goes to even, and a carry into the exponent is
  // the next binade, or infinity.
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;  // rounded, it could carry into the sign
  return {static_cast<std::uint16_t>((nan ? bits | 0x00400000U : rounded) >> 16)};
}

/// 2^k for k in [-126, 127] given as two's complement; garbage, but defined, outside.
ZERO_HD static inline float power_of_two(std::uint32_t k) { return float_of((k + 127U) << 23); }

// --- exp, tanh, log --------------------------------------------------------------------------------------------------

/// x = k ln 2 + r with k the nearest integer, for |x| <= 128; and exp(r) - 1, to 0.4 ulp of r.
struct ReducedExp {
  std::uint32_t k;  ///< two's complement
  float expm1_r;
};

ZERO_HD static inline ReducedExp reduce_exp(float x) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
  const float shift = 12582912.0F;
  const float shifted = __builtin_fmaf(x, 1.44269504F, shift);
  const float k = shifted - shift;
  // ln 2 in two parts; k times the first, of 15 bits, is exact.
  const float r = __builtin_fmaf(k, -1.42860682e-6F, __builtin_fmaf(k, -0.693145752F, x));
  // (exp(r) - 1 - r) / r^2, minimax on [-ln 2 / 2, ln 2 / 2].
  float p = 0.00139465544F;
  p = __builtin_fmaf(p, r, 0.00836664438F);
  p = __builtin_fmaf(p, r, 0.0416662805F);
  p = __builtin_fmaf(p, r, 0.16666542F);
  p = __builtin_fmaf(p, r, 0.5F);
  return {bits_of(shifted) - bits_of(shift), __builtin_fmaf(r * r, p, r)};
}

/// exp(x): at most 1.1 ulp; gradual underflow, 0 below -104, infinity above 88.72.
ZERO_HD static inline float exp_fp32(float x) {
  x = x > 100.0F ? 100.0F : x;
  x = x < -110.0F ? -110.0F : x;
  const ReducedExp reduced = reduce_exp(x);
  // Two factors, since 2^k itself may be no normal number; only the second multiplication can round.
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(reduced.k) >> 1);
  return (1.0F + reduced.expm1_r) * power_of_two(half) * power_of_two(reduced.k - half);
}

/// tanh(x): at most 3 ulp; odd; keeps -0 and subnormals; +-1 beyond 9.02.
ZERO_HD static inline float tanh_fp32(float x) {
  const std::uint32_t sign = bits_of(x) & 0x80000000U;
  float y = 2.0F * float_of(bits_of(x) & 0x7FFFFFFFU);
  y = y > 20.0F ? 20.0F : y;
  const ReducedExp reduced = reduce_exp(y);
  const float scale = power_of_two(reduced.k);
  const float e = __builtin_fmaf(scale, reduced.expm1_r, scale - 1.0F);  // exp(2|x|) - 1
  return float_of(bits_of(e / (e + 2.0F)) | sign);
}

/// log(x): at most 1 ulp; -infinity at 0, NaN below, subnormals as any other number.
ZERO_HD static inline float log_fp32(float x) {
  const bool subnormal = x < 1.17549435e-38F;
  const float normal = x * (subnormal ? 33554432.0F : 1.0F);
  // normal = m * 2^e with m in [sqrt(1/2), sqrt(2)).
  const std::uint32_t bits = bits_of(normal);
  const std::int32_t e = static_cast<std::int32_t>(bits - 0x3F3504F3U) >> 23;
  const float f = float_of(bits - (static_cast<std::uint32_t>(e) << 23)) - 1.0F;
  const float exponent = static_cast<float>(e) - (subnormal ? 25.0F : 0.0F);
  // (log(1 + f) - f + f^2 / 2) / f^3, minimax on [sqrt(1/2) - 1, sqrt(2) - 1].
  float p = 0.0691554099F;
  p = __builtin_fmaf(p, f, -0.117898643F);
  p = __builtin_fmaf(p, f, 0.118729256F);
  p = __builtin_fmaf(p, f, -0.12384335F);
  p = __builtin_fmaf(p, f, 0.142186642F);
  p = __builtin_fmaf(p, f, -0.166692525F);
  p = __builtin_fmaf(p, f, 0.200022265F);
  p = __builtin_fmaf(p, f, -0.249999866F);
  p = __builtin_fmaf(p, f, 0.333333105F);
  const float square = f * f;
  float low = __builtin_fmaf(exponent, 1.42860682e-6F, square * f * p);
  low = __builtin_fmaf(square, -0.5F, low);
  float result = __builtin_fmaf(exponent, 0.693145752F, f + low);
  result = x > 0.0F ? result : x == 0.0F ? -__builtin_inff() : __builtin_nanf("");
  return x == __builtin_inff() ? x : result;
}

// --- GELU ------------------------------------------------------------------------------------------------------------

/// tanh(sqrt(2/pi) (x + 0.044715 x^3)), which gelu and its derivative share.
ZERO_HD static inline float gelu_tanh(float x) {
  const float cubic = __builtin_fmaf(0.044715F * x * x, x, x);
  return tanh_fp32(0.797884561F * cubic);
}

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). NaN at -infinity: nothing infinite is hidden.
ZERO_HD static inline float gelu(float x) { return 0.5F * x * (1.0F + gelu_tanh(x)); }

/// The derivative of gelu. NaN at either infinity.
ZERO_HD static inline float gelu_derivative(float x) {
  const float t = gelu_tanh(x);
  // Beyond 10 the factor 1 - t^2 is zero; the clamp keeps a large x from making its other factor infinite.
  float bounded = x > 10.0F ? 10.0F : x;
  bounded = bounded < -10.0F ? -10.0F : bounded;
  const float inner = __builtin_fmaf(0.107032222F * bounded, bounded, 0.797884561F);  // 3 * 0.044715 * sqrt(2/pi)
  return __builtin_fmaf(0.5F * x * __builtin_fmaf(-t, t, 1.0F), inner, __builtin_fmaf(0.5F, t, 0.5F));
}

// --- layer norm ------------------------------------------------------------------------------------------------------

/// 1 / sqrt(variance + 1e-5), with the variance as a sum of squared distances over a count.
ZERO_HD static inline float layernorm_rstd(float squares, float count) {
  return 1.0F / __builtin_sqrtf(squares / count + 1e-5F);
}

/// An element on its own: (x - mean) rstd.
ZERO_HD static inline float layernorm_normal(float x, float mean, float rstd) { return (x - mean) * rstd; }

/// The gradient of an element: rstd (g - mean(g) - n mean(g n)), with n = layernorm_normal() and g = dy weight.
ZERO_HD static inline float layernorm_gradient(float g, float n, float mean_g, float mean_gn, float rstd) {
  return __builtin_fmaf(-n, mean_gn, g - mean_g) * rstd;
}

// --- softmax ---------------------------------------------------------------------------------------------------------

/// exp(scale x - largest), NaN where scale x is not finite: an infinite score must not end as a probability of zero.
ZERO_HD static inline float softmax_exp(float x, float scale, float largest) {
  const float y = scale * x;
  return exp_fp32(y - largest) + (y - y);
}

/// The gradient of a score from its probability, the gradient of that, and the row's sum of their products.
ZERO_HD static inline float softmax_gradient(float probability, float d, float sum, float scale) {
  return scale * probability * (d - sum);
}

/// The gradient of the logit at the target, where `e` is its softmax_exp() and `inverse` 1 / the row's sum of them.
ZERO_HD static inline float target_gradient(float e, float inverse, float gradient_scale) {
  return (e * inverse - 1.0F) * gradient_scale;
}

// --- AdamW -----------------------------------------------------------------------------------------------------------

/// The scalars of one AdamW update, as the element update uses them.
struct AdamWScalars {
  float learning_rate, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, weight_decay;
  float bias_correction1, bias_correction2, clip_factor;
};

/// One element of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), in place.
ZERO_HD static inline void adamw_element(float& parameter, float& momentum, float& variance, float gradient,
                                         const AdamWScalars& s) {
  const float g = gradient * s.clip_factor;
  const float m = __builtin_fmaf(s.beta1, momentum, s.one_minus_beta1 * g);
  const float v = __builtin_fmaf(s.beta2, variance, s.one_minus_beta2 * g * g);
  const float direction = (m / s.bias_correction1) / (__builtin_sqrtf(v / s.bias_correction2) + s.epsilon);
  parameter = __builtin_fmaf(-s.learning_rate, __builtin_fmaf(s.weight_decay, parameter, direction), parameter);
  momentum = m;
  variance = v;
}

// --- random numbers and hashes ---------------------------------------------------------------------------------------

/// A standard normal number from 64 random bits (Box and Muller, 1958): within 6e-7 of the exact transform; its
/// absolute value is at most 5.77.
ZERO_HD static inline float normal_of(std::uint64_t random) {
  // u in (0, 1], 24 bits.
  const auto high = static_cast<std::int32_t>(static_cast<std::uint32_t>(random >> 40) + 1U);
  const float radius = __builtin_sqrtf(-2.0F * log_fp32(static_cast<float>(high) * 5.96046448e-8F));
  // The angle is (quadrant + t) quarter turns with t in [-1/2, 1/2].
  const auto angle = static_cast<std::uint32_t>(random);
  const std::uint32_t quadrant = (angle + 0x20000000U) >> 30;
  const float t = static_cast<float>(static_cast<std::int32_t>(angle << 2)) * 2.32830644e-10F;
  const float z = t * t;
  float c = 0.000904021668F;  // (cos(pi/2 t) - 1) / t^2, minimax
  c = __builtin_fmaf(c, z, -0.0208602883F);
  c = __builtin_fmaf(c, z, 0.253669232F);
  c = __builtin_fmaf(c, z, -1.23370051F);
  c = __builtin_fmaf(c, z, 1.0F);
  float s = -0.00460217707F;  // sin(pi/2 t) / t, minimax
  s = __builtin_fmaf(s, z, 0.0796802267F);
  s = __builtin_fmaf(s, z, -0.64596349F);
  s = __builtin_fmaf(s, z, 1.57079637F);
  const float magnitude = radius * ((quadrant & 1U) != 0 ? s * t : c);
  // cos of the angle: c, -s, -c, s.
  return float_of(bits_of(magnitude) ^ (((quadrant + 1U) & 2U) << 30));
}

/// A bijection of 64 bits in which every input bit moves every output bit (the finaliser of SplitMix64: Steele, Lea and
/// Flood, OOPSLA 2014).
ZERO_HD static inline std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// The part of an element's hash that depends on the tensor alone.
ZERO_HD static inline std::uint64_t tensor_key(std::uint64_t tensor) { return mix64(tensor + 0x9E3779B97F4A7C15U); }

/// The two halves of the 128-bit hash of an element: `index` in the unsharded tensor, `bits` as stored.
struct ElementHash {
  std::uint64_t low, high;
};

ZERO_HD static inline ElementHash element_hash(std::uint64_t key, std::uint64_t index, std::uint64_t bits) {
  const std::uint64_t place = mix64(key + index);
  return {mix64(place + bits * 0x9E3779B97F4A7C15U), mix64((place ^ 0xD6E8FEB86659FD93U) + bits * 0xC2B2AE3D27D4EB4FU)};
}

/// A sum of hashes, which has no carry to pass on between up to 2^32 of them: of the two 32-bit halves of the low
/// words, and of the high words modulo 2^64. Its three numbers can be added in any order.
struct HashSum {
  std::uint64_t half0, half1, high;
};

ZERO_HD static inline void add_hash(HashSum& sum, const ElementHash& hash) {
  sum.half0 += hash.low & 0xFFFFFFFFU;
  sum.half1 += hash.low >> 32;
  sum.high += hash.high;
}

/// The sum modulo 2^128.
ZERO_HD static inline ElementHash total_of(const HashSum& sum) {
  const std::uint64_t low = sum.half0 + (sum.half1 << 32);
  return {low, sum.high + (sum.half1 >> 32) + (low < sum.half0 ? 1U : 0U)};
}

// --- dropout ---------------------------------------------------------------------------------------------------------

/// The scalars of dropout at a rate: an element is kept where its random word is not below rate * 2^32.
struct DropoutScalars {
  std::uint64_t least_kept;  ///< of 32-bit words; 2^32 keeps none
  float scale;               ///< of what is kept: 1 / (1 - rate), rounded once
};

/// `rate` in [0, 1).
ZERO_HD static inline DropoutScalars dropout_scalars(double rate) {
  const double words = rate * 4294967296.0;  // exact: a power of two
  const auto below = static_cast<std::uint64_t>(words);
  return {below + (static_cast<double>(below) < words ? 1U : 0U), static_cast<float>(1.0 / (1.0 - rate))};
}

/// The four random words of elements 4 group .. 4 group + 3 of a stream.
ZERO_HD static inline PhiloxBlock dropout_words(std::uint64_t seed, std::uint64_t stream, std::uint64_t group) {
  return philox4x32_10({{static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32),
                         static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}},
                       static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}

/// One element with its random word.
ZERO_HD static inline float dropout_element(float x, std::uint32_t word, const DropoutScalars& s) {
  return word >= s.least_kept ? x * s.scale : 0.0F;
}

// --- sums ------------------------------------------------------------------------------------------------------------

/// The largest power of two below n, for n >= 2: where a tree of n terms splits.
ZERO_HD static inline std::size_t tree_split(std::size_t n) {
  std::size_t split = 1;
  while (split * 2 < n) split *= 2;
  return split;
}

}  // namespace zero
