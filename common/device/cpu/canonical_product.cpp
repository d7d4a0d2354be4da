// Canonical products: packed panels and a block of outputs in registers, as every fast product has, with one rule
// more. Each output is one chain of fma in rising p: the block of outputs is reloaded between panels of p, and p is
// never split over lanes, accumulators or threads. So blocking, vector width and compiler cannot change a bit.
#include "common/device/cpu/canonical_product.h"

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace zero {
namespace {

using Index = std::int64_t;

// A vector of outputs, and the block of outputs (kRows rows of kVectors vectors) that the registers hold.
#if defined(__AVX512F__)
using Vec = __m512;
constexpr int kLanes = 16, kRows = 8, kVectors = 3;
Vec zeros() { return _mm512_setzero_ps(); }
Vec load(const float* from) { return _mm512_loadu_ps(from); }
void store(float* to, Vec value) { _mm512_storeu_ps(to, value); }
Vec broadcast(const float* from) { return _mm512_set1_ps(*from); }
Vec fma(Vec a, Vec b, Vec sum) { return _mm512_fmadd_ps(a, b, sum); }
#elif defined(__AVX2__) && defined(__FMA__)
using Vec = __m256;
constexpr int kLanes = 8, kRows = 6, kVectors = 2;
Vec zeros() { return _mm256_setzero_ps(); }
Vec load(const float* from) { return _mm256_loadu_ps(from); }
void store(float* to, Vec value) { _mm256_storeu_ps(to, value); }
Vec broadcast(const float* from) { return _mm256_broadcast_ss(from); }
Vec fma(Vec a, Vec b, Vec sum) { return _mm256_fmadd_ps(a, b, sum); }
#elif defined(__aarch64__)
using Vec = float32x4_t;
constexpr int kLanes = 4, kRows = 8, kVectors = 3;
Vec zeros() { return vdupq_n_f32(0); }
Vec load(const float* from) { return vld1q_f32(from); }
void store(float* to, Vec value) { vst1q_f32(to, value); }
Vec broadcast(const float* from) { return vld1q_dup_f32(from); }
Vec fma(Vec a, Vec b, Vec sum) { return vfmaq_f32(sum, a, b); }
#else
struct Vec {
  float lane[4];
};
constexpr int kLanes = 4, kRows = 4, kVectors = 1;

Vec zeros() { return {}; }

Vec load(const float* from) { return {{from[0], from[1], from[2], from[3]}}; }

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

// The panels in the workspace: of b kDepth x kColumns, which the second-level cache keeps, and of a transposed a
// kTiles * kRows rows of kDepth.
constexpr Index kDepth = kCanonicalDepth, kColumns = kCanonicalColumns, kTiles = kCanonicalRows / kRows;
constexpr Index kLines = kLanes < 8 ? kLanes : 8;  // lines transposed at a time

Index min(Index a, Index b) { return a < b ? a : b; }

// to[p * stride + i] = from[i * ld + p] for i in [0, kLines), p in [0, depth); lines from `valid` on repeat the last.
void transpose_lines(float* to, Index stride, const float* from, Index ld, Index valid, Index depth) {
  const float* line[kLines];
  for (Index i = 0; i < kLines; ++i) line[i] = from + min(i, valid - 1) * ld;
  Index p = 0;
#if defined(__AVX2__)
  for (; p + 8 <= depth; p += 8) {
    // At e = 0 and 4: elements e .. e + 3 of line q in the low half, of line q + 4 in the high half.
    for (int e = 0; e < 8; e += 4) {
      __m256 part[4];
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        part[q] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(line[q] + p + e)),
                                       _mm_loadu_ps(line[q + 4] + p + e), 1);
      }
      const __m256 low01 = _mm256_unpacklo_ps(part[0], part[1]), high01 = _mm256_unpackhi_ps(part[0], part[1]);
      const __m256 low23 = _mm256_unpacklo_ps(part[2], part[3]), high23 = _mm256_unpackhi_ps(part[2], part[3]);
      float* const row = to + (p + e) * stride;
      _mm256_storeu_ps(row, _mm256_shuffle_ps(low01, low23, 0x44));
      _mm256_storeu_ps(row + stride, _mm256_shuffle_ps(low01, low23, 0xee));
      _mm256_storeu_ps(row + 2 * stride, _mm256_shuffle_ps(high01, high23, 0x44));
      _mm256_storeu_ps(row + 3 * stride, _mm256_shuffle_ps(high01, high23, 0xee));
    }
  }
#endif
  for (; p < depth; ++p) {
    for (Index i = 0; i < kLines; ++i) to[p * stride + i] = line[i][p];
  }
}

// The width in vectors of the block that begins `left` vectors before the end of a panel.
Index block_vectors(Index left) { return left == kVectors + 1 ? (left + 1) / 2 : min(left, kVectors); }

// b(p0 + p, j0 + j) for p in [0, depth), j in [0, columns), as blocks of columns, each with its rows one after the
// other; the last block is filled up to whole vectors with copies of its last column.
void pack_right(float* to, const CanonicalProduct& x, Index p0, Index j0, Index depth, Index columns) {
  const Index vectors = (columns + kLanes - 1) / kLanes;
  for (Index v = 0, w = 0; v < vectors; v += w) {
    w = block_vectors(vectors - v);
    const Index begin = v * kLanes, width = w * kLanes, valid = min(width, columns - begin);
    float* const block = to + begin * depth;
    if (x.b_transposed) {
      for (Index j = 0; j < width; j += kLines) {
        const Index line = min(j, valid - 1);
        transpose_lines(block + j, width, x.b + (j0 + begin + line) * x.ld_b + p0, x.ld_b, valid - line, depth);
      }
      continue;
    }
    const float* const from = x.b + p0 * x.ld_b + j0 + begin;
    for (Index p = 0; p < depth; ++p) {
      if (valid == width) {
        for (Index j = 0; j < width; j += kLanes) store(block + p * width + j, load(from + p * x.ld_b + j));
      } else {
        for (Index j = 0; j < width; ++j) block[p * width + j] = from[p * x.ld_b + min(j, valid - 1)];
      }
    }
  }
}

// a(i0 + i, p0 + p) of a transposed a, for i in [0, rows), p in [0, depth), as tiles of kRows rows, each with its
// columns one after the other; the last tile is filled up with copies of its last row. An a that is not transposed is
// read where it is: the rows of a block of outputs are as many streams.
void pack_left(float* to, const CanonicalProduct& x, Index i0, Index p0, Index rows, Index depth) {
  const float* from = x.a + p0 * x.ld_a + i0;
  const Index whole = rows / kRows;
  for (Index p = 0; p < depth; ++p) {
    for (Index t = 0; t < whole; ++t) {
      __builtin_memcpy(to + (t * depth + p) * kRows, from + p * x.ld_a + t * kRows, kRows * sizeof(float));
    }
    for (Index i = 0; whole * kRows < rows && i < kRows; ++i) {
      to[(whole * depth + p) * kRows + i] = from[p * x.ld_a + min(whole * kRows + i, rows - 1)];
    }
  }
}

// One block of outputs, kRows rows of V vectors: from zero or from what `out` holds, `depth` links more of each chain.
// `rows` are the rows of a (packed: the tile). A function of its own for each width keeps the block in registers.
template <int V, bool kPacked>
void block(float* out, Index ld_out, const float* const* rows, const float* b, Index depth, bool first) {
  Vec sum[kRows][V];
  const float* row[kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    row[i] = kPacked ? rows[0] + i : rows[i];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[i][v] = first ? zeros() : load(out + i * ld_out + v * kLanes);
  }
  for (Index p = 0; p < depth; ++p) {
    Vec right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) right[v] = load(b + p * V * kLanes + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec left = broadcast(row[i] + p * (kPacked ? kRows : 1));
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[i][v] = fma(left, right[v], sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(out + i * ld_out + v * kLanes, sum[i][v]);
  }
}

using Block = void (*)(float*, Index, const float* const*, const float*, Index, bool);

template <bool kPacked>
Block block_of(Index vectors) {
  if constexpr (kVectors >= 3) {
    if (vectors == 3) return block<3, kPacked>;
  }
  if constexpr (kVectors >= 2) {
    if (vectors == 2) return block<2, kPacked>;
  }
  return block<1, kPacked>;
}

// A block of outputs that ends past the last row or column: computed in full beside the outputs, of which only
// `rows` x `columns` exist.
void edge_block(Block run, float* out, Index ld_out, const float* const* rows, const float* b, Index depth, bool first,
                Index valid_rows, Index valid_columns) {
  float tile[kRows * kVectors * kLanes] = {};
  constexpr Index kLd = kVectors * kLanes;
  for (Index i = 0; i < valid_rows && !first; ++i) {
    for (Index j = 0; j < valid_columns; ++j) tile[i * kLd + j] = out[i * ld_out + j];
  }
  run(tile, kLd, rows, b, depth, first);
  for (Index i = 0; i < valid_rows; ++i) {
    for (Index j = 0; j < valid_columns; ++j) out[i * ld_out + j] = tile[i * kLd + j];
  }
}

// The products of a packed panel of b (`depth` x `columns`) with rows i0 .. i0 + rows - 1 of a, added to the chains of
// outputs from column j0 on.
void multiply_panel(const CanonicalProduct& x, const float* right, const float* left, Index i0, Index j0, Index p0,
                    Index rows, Index columns, Index depth) {
  const Index vectors = (columns + kLanes - 1) / kLanes;
  for (Index v = 0, w = 0; v < vectors; v += w) {
    w = block_vectors(vectors - v);
    const Block run = x.a_transposed ? block_of<true>(w) : block_of<false>(w);
    const Index valid_columns = min(w * kLanes, columns - v * kLanes);
    for (Index i = 0; i < rows; i += kRows) {
      const Index valid_rows = min(kRows, rows - i);
      const float* row[kRows];
      for (Index r = 0; r < kRows; ++r) {
        row[r] = x.a_transposed ? left + i * depth : x.a + (i0 + min(i + r, rows - 1)) * x.ld_a + p0;
      }
      float* const out = x.out + (i0 + i) * x.ld_out + j0 + v * kLanes;
      const float* const b = right + v * kLanes * depth;
      if (valid_rows == kRows && valid_columns == w * kLanes) {
        run(out, x.ld_out, row, b, depth, p0 == 0);
      } else {
        edge_block(run, out, x.ld_out, row, b, depth, p0 == 0, valid_rows, valid_columns);
      }
    }
  }
}

}  // namespace

#define ZERO_JOIN_TOKENS(a, b) a##b
#define ZERO_JOIN(a, b) ZERO_JOIN_TOKENS(a, b)

void ZERO_JOIN(canonical_product_, ZERO_ISA)(const CanonicalProduct& x) {
  float* const right = x.workspace;
  float* const left = x.workspace + kDepth * kColumns;
  for (Index j0 = 0; j0 < x.n; j0 += kColumns) {
    const Index columns = min(kColumns, x.n - j0);
    for (Index p0 = 0; p0 < x.k; p0 += kDepth) {
      const Index depth = min(kDepth, x.k - p0);
      pack_right(right, x, p0, j0, depth, columns);
      for (Index i0 = 0; i0 < x.m; i0 += kTiles * kRows) {
        const Index rows = min(kTiles * kRows, x.m - i0);
        if (x.a_transposed) pack_left(left, x, i0, p0, rows, depth);
        multiply_panel(x, right, left, i0, j0, p0, rows, columns, depth);
      }
    }
  }
}

}  // namespace zero
