// Canonical products: packed panels and a block of outputs in registers, as every fast product has, with one rule
// more. Each output is one chain of fma in rising p: the block of outputs is reloaded between panels of p, and p is
// never split over lanes, accumulators or threads. So blocking, vector width and compiler cannot change a bit.
//
// bf16 operands are widened while they are packed. The chains of a bf16 `out` stand in fp32 in the workspace until they
// are complete; each output is rounded once.
#include "common/device/cpu/canonical_product.h"

#include <cstddef>
#include <cstdint>

#include "common/device/cpu/canonical_vectors.h"
#include "common/device/scalar_math.h"

namespace zero {
namespace {

using Index = std::int64_t;

// The panels in the workspace: of b kDepth x kColumns, which the second-level cache keeps, and of an a that is
// transposed or bf16 kPanelRows rows of kDepth.
constexpr Index kDepth = kCanonicalDepth, kColumns = kCanonicalColumns, kPanelRows = kCanonicalRows / kRows * kRows;
// Rows of chains in the workspace: whole panels of rows, so that every block of outputs is in full there.
constexpr Index kChainRows = kCanonicalChainRows / kPanelRows * kPanelRows;
constexpr Index kLines = kLanes < 8 ? kLanes : 8;  // lines transposed at a time

Index min(Index a, Index b) { return a < b ? a : b; }

// to[p * stride + i] = from[i * ld + p] for i in [0, kLines), p in [0, depth); lines from `valid` on repeat the last.
template <class T>
void transpose_lines(float* to, Index stride, const T* from, Index ld, Index valid, Index depth) {
  const T* line[kLines];
  for (Index i = 0; i < kLines; ++i) line[i] = from + min(i, valid - 1) * ld;
  Index p = 0;
#if defined(__AVX2__)
  for (; p + 8 <= depth; p += 8) {
    // At e = 0 and 4: elements e .. e + 3 of line q in the low half, of line q + 4 in the high half.
    for (int e = 0; e < 8; e += 4) {
      __m256 part[4];
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        part[q] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(load_four(line[q] + p + e)), load_four(line[q + 4] + p + e), 1);
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
    for (Index i = 0; i < kLines; ++i) to[p * stride + i] = to_float(line[i][p]);
  }
}

// The width in vectors of the block that begins `left` vectors before the end of a panel.
Index block_vectors(Index left) { return left == kVectors + 1 ? (left + 1) / 2 : min(left, kVectors); }

// b(p0 + p, j0 + j) for p in [0, depth), j in [0, columns), as blocks of columns, each with its rows one after the
// other; the last block is filled up to whole vectors with copies of its last column.
template <class T>
void pack_right(float* to, const CanonicalProduct& x, Index p0, Index j0, Index depth, Index columns) {
  const T* const right = static_cast<const T*>(x.b);
  const Index vectors = (columns + kLanes - 1) / kLanes;
  for (Index v = 0, w = 0; v < vectors; v += w) {
    w = block_vectors(vectors - v);
    const Index begin = v * kLanes, width = w * kLanes, valid = min(width, columns - begin);
    float* const block = to + begin * depth;
    if (x.b_transposed) {
      for (Index j = 0; j < width; j += kLines) {
        const Index line = min(j, valid - 1);
        transpose_lines(block + j, width, right + (j0 + begin + line) * x.ld_b + p0, x.ld_b, valid - line, depth);
      }
      continue;
    }
    const T* const from = right + p0 * x.ld_b + j0 + begin;
    for (Index p = 0; p < depth; ++p) {
      if (valid == width) {
        for (Index j = 0; j < width; j += kLanes) store(block + p * width + j, load(from + p * x.ld_b + j));
      } else {
        for (Index j = 0; j < width; ++j) block[p * width + j] = to_float(from[p * x.ld_b + min(j, valid - 1)]);
      }
    }
  }
}

// a(i0 + i, p0 + p) of a transposed a, for i in [0, rows), p in [0, depth), as tiles of kRows rows, each with its
// columns one after the other; the last tile is filled up with copies of its last row.
template <class T>
void pack_left_transposed(float* to, const CanonicalProduct& x, Index i0, Index p0, Index rows, Index depth) {
  const T* from = static_cast<const T*>(x.a) + p0 * x.ld_a + i0;
  const Index whole = rows / kRows;
  for (Index p = 0; p < depth; ++p) {
    for (Index t = 0; t < whole; ++t) {
      for (Index i = 0; i < kRows; ++i) {
        to[(t * depth + p) * kRows + i] = to_float(from[p * x.ld_a + t * kRows + i]);
      }
    }
    for (Index i = 0; whole * kRows < rows && i < kRows; ++i) {
      to[(whole * depth + p) * kRows + i] = to_float(from[p * x.ld_a + min(whole * kRows + i, rows - 1)]);
    }
  }
}

// The rows of a.
struct Left {
  const float* from;
  Index stride;  // from one row to the next; 0: tiles of pack_left_transposed()
};

// Rows i0 .. i0 + rows - 1 of a, columns p0 .. p0 + depth - 1. An fp32 a that is not transposed is read where it is:
// the rows of a block of outputs are as many streams.
template <class T>
Left left_rows(float* panel, const CanonicalProduct& x, Index i0, Index p0, Index rows, Index depth) {
  if (x.a_transposed) {
    pack_left_transposed<T>(panel, x, i0, p0, rows, depth);
    return {panel, 0};
  }
  const T* const from = static_cast<const T*>(x.a) + i0 * x.ld_a + p0;
  if constexpr (sizeof(T) == sizeof(float)) {
    return {from, x.ld_a};
  } else {
    for (Index i = 0; i < rows; ++i) {
      Index p = 0;
      for (; p + kLanes <= depth; p += kLanes) store(panel + i * kDepth + p, load(from + i * x.ld_a + p));
      for (; p < depth; ++p) panel[i * kDepth + p] = to_float(from[i * x.ld_a + p]);
    }
    return {panel, kDepth};
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

// Where the chains of some rows and columns stand.
struct Chains {
  float* at;
  Index ld;
  bool in_workspace;  // then every block is there in full, and what is past the last row or column does not matter
};

// `depth` links, from p0 on, of the chains of `rows` rows and `columns` columns: with a packed panel of b.
void multiply_panel(const Chains& chains, const Left& left, const float* right, Index p0, Index rows, Index columns,
                    Index depth) {
  const Index vectors = (columns + kLanes - 1) / kLanes;
  for (Index v = 0, w = 0; v < vectors; v += w) {
    w = block_vectors(vectors - v);
    const Block run = left.stride == 0 ? block_of<true>(w) : block_of<false>(w);
    const Index valid_columns = min(w * kLanes, columns - v * kLanes);
    for (Index i = 0; i < rows; i += kRows) {
      const Index valid_rows = min(kRows, rows - i);
      const float* row[kRows];
      for (Index r = 0; r < kRows; ++r) {
        row[r] = left.stride == 0 ? left.from + i * depth : left.from + min(i + r, rows - 1) * left.stride;
      }
      float* const out = chains.at + i * chains.ld + v * kLanes;
      const float* const b = right + v * kLanes * depth;
      if (chains.in_workspace || (valid_rows == kRows && valid_columns == w * kLanes)) {
        run(out, chains.ld, row, b, depth, p0 == 0);
      } else {
        edge_block(run, out, chains.ld, row, b, depth, p0 == 0, valid_rows, valid_columns);
      }
    }
  }
}

// Rounds complete chains.
void round_chains(Bf16* out, Index ld_out, const Chains& chains, Index rows, Index columns) {
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) out[i * ld_out + j] = from_float<Bf16>(chains.at[i * chains.ld + j]);
  }
}

// Outputs of rows i0 .. i0 + rows - 1 and columns j0 .. j0 + columns - 1, kColumns at most, and kChainRows at most
// where `out` is bf16.
template <class T>
void multiply_rows(const CanonicalProduct& x, Index i0, Index j0, Index rows, Index columns) {
  float* const right = x.workspace;
  float* const panel = right + kDepth * kColumns;
  float* const chains_in_workspace = panel + kCanonicalRows * kDepth;
  for (Index p0 = 0; p0 < x.k; p0 += kDepth) {
    const Index depth = min(kDepth, x.k - p0);
    pack_right<T>(right, x, p0, j0, depth, columns);
    for (Index i = 0; i < rows; i += kPanelRows) {
      const Index panel_rows = min(kPanelRows, rows - i);
      const Left left = left_rows<T>(panel, x, i0 + i, p0, panel_rows, depth);
      const Index at = (i0 + i) * x.ld_out + j0;
      // Chains that end in their first panel need no room of their own.
      const Chains chains = x.out_is_bf16
                                ? Chains{chains_in_workspace + (x.k > kDepth ? i * kColumns : 0), kColumns, true}
                                : Chains{static_cast<float*>(x.out) + at, x.ld_out, false};
      multiply_panel(chains, left, right, p0, panel_rows, columns, depth);
      if (x.out_is_bf16 && p0 + depth == x.k) {
        round_chains(static_cast<Bf16*>(x.out) + at, x.ld_out, chains, panel_rows, columns);
      }
    }
  }
}

template <class T>
void multiply(const CanonicalProduct& x) {
  const Index row_step = x.out_is_bf16 && x.k > kDepth ? kChainRows : x.m;
  for (Index j0 = 0; j0 < x.n; j0 += kColumns) {
    for (Index i0 = 0; i0 < x.m; i0 += row_step) {
      multiply_rows<T>(x, i0, j0, min(row_step, x.m - i0), min(kColumns, x.n - j0));
    }
  }
}

}  // namespace

#define ZERO_JOIN_TOKENS(a, b) a##b
#define ZERO_JOIN(a, b) ZERO_JOIN_TOKENS(a, b)

void ZERO_JOIN(canonical_product_, ZERO_ISA)(const CanonicalProduct& x) {
  if (x.operands_are_bf16) {
    multiply<Bf16>(x);
  } else {
    multiply<float>(x);
  }
}

}  // namespace zero
