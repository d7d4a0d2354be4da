#pragma once
/// \file
/// The loop that AdamW's benches compare with: it reads and writes the same streams in place, without arithmetic.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/base/types.h"

namespace zero::bench {

struct Streams {
  float* weights;
  float* momentum;
  float* variance;
  const std::byte* gradients;
  std::byte* rounded;  // of the gradients' type; null: none is written
  Index size;
};

using Vector = float __attribute__((vector_size(16)));
using Half = std::uint64_t;  // as many elements in bf16

// Makes the compiler believe that the vector is used and changed here: it must load it, and store it again.
inline void touch(Vector& vector) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(vector));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(vector));
#else
  asm volatile("" : "+m"(vector));
#endif
}

inline void touch(Half& half) { asm volatile("" : "+r"(half)); }

// Reads gradients of type Gradient and, where `Rounds`, writes as many bytes of rounded weights; reads and writes the
// other streams; 16 bytes at a time, which keeps ahead of any memory.
template <typename Gradient, bool Rounds>
void touch_streams(const Streams& s) {
  constexpr Index kLanes = sizeof(Vector) / sizeof(float);
  Vector p, m, v;
  Gradient g;
  for (Index i = 0; i + kLanes <= s.size; i += kLanes) {
    const Index at = i / kLanes * static_cast<Index>(sizeof g);
    std::memcpy(&p, s.weights + i, sizeof p);
    std::memcpy(&m, s.momentum + i, sizeof m);
    std::memcpy(&v, s.variance + i, sizeof v);
    std::memcpy(&g, s.gradients + at, sizeof g);
    touch(p);
    touch(m);
    touch(v);
    touch(g);
    std::memcpy(s.weights + i, &p, sizeof p);
    std::memcpy(s.momentum + i, &m, sizeof m);
    std::memcpy(s.variance + i, &v, sizeof v);
    if constexpr (Rounds) std::memcpy(s.rounded + at, &g, sizeof g);
  }
}

}  // namespace zero::bench
