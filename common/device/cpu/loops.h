#pragma once
/// \file
/// What the files of loops share: pasting the instruction set into a name, the promise that makes loops vectorise, and
/// reductions with a fixed lane count. Included by code that is compiled once per instruction set: internal linkage.

#include <cstddef>

#define ZERO_PASTE2(name, isa) name##_##isa
#define ZERO_PASTE(name, isa) ZERO_PASTE2(name, isa)
/// add_row_kernels -> add_row_kernels_avx2, when compiled for it.
#define ZERO_FOR_ISA(name) ZERO_PASTE(name, ZERO_ISA)

/// The iterations of the next loop are independent although its pointers may be equal (in place). Without it a compiler
/// tests for overlap at run time and takes its scalar loop when it finds two equal pointers.
#if defined(__clang__)
#define ZERO_INDEPENDENT _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define ZERO_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace zero {
namespace {

/// Row reductions keep this many partial results whatever the vector width: element i goes to lane i mod 16, in rising
/// order; then lane l takes lane l + 8, then l + 4, l + 2, l + 1.
constexpr std::size_t kLanes = 16;

/// combine(accumulator, i) for i in [0, n) over lanes that start at `start`, and the fixed tree with `merge`.
template <class T, class Combine, class Merge>
inline T reduce_lanes(std::size_t n, T start, Combine combine, Merge merge) {
  T lane[kLanes];
  for (std::size_t l = 0; l < kLanes; ++l) lane[l] = start;
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) lane[l] = combine(lane[l], i + l);
  }
  for (std::size_t l = 0; i + l < n; ++l) lane[l] = combine(lane[l], i + l);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t l = 0; l < width; ++l) lane[l] = merge(lane[l], lane[l + width]);
  }
  return lane[0];
}

/// The sum of term(i) for i in [0, n).
template <class Term>
inline float lane_sum(std::size_t n, Term term) {
  return reduce_lanes(
      n, 0.0F, [&](float sum, std::size_t i) { return sum + term(i); }, [](float a, float b) { return a + b; });
}

/// The sum of term(i) as lane_sum() takes it, for terms that come in pieces, each but the last a multiple of the lanes.
class LaneSum {
 public:
  void add(const float* terms, std::size_t n) {
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (std::size_t l = 0; l < kLanes; ++l) lane_[l] += terms[i + l];
    }
    for (std::size_t l = 0; i + l < n; ++l) lane_[l] += terms[i + l];
  }
  /// Once, at the end.
  float total() {
    for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
      for (std::size_t l = 0; l < width; ++l) lane_[l] += lane_[l + width];
    }
    return lane_[0];
  }

 private:
  float lane_[kLanes] = {};
};

/// The largest term(i); a NaN is passed over, so the caller must let it through by other means.
template <class Term>
inline float lane_max(std::size_t n, Term term) {
  return reduce_lanes(
      n, -__builtin_inff(),
      [&](float largest, std::size_t i) {
        const float x = term(i);
        return x > largest ? x : largest;
      },
      [](float a, float b) { return b > a ? b : a; });
}

}  // namespace
}  // namespace zero
