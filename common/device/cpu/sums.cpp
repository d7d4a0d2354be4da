// Sums over terms in a fixed order, sums over blocks, and digests.
#include "common/device/cpu/kernel_table.h"
#include "common/device/cpu/loops.h"
#include "common/device/scalar_math.h"

namespace zero {
namespace {

template <class T>
constexpr bool kIsBf16 = false;
template <>
constexpr bool kIsBf16<Bf16> = true;

/// The tree over a number of terms known to the compiler.
template <std::size_t kTerms, class T>
inline float tree_of(const T* const* terms, std::size_t i) {
  if constexpr (kTerms == 1) {
    return to_float(terms[0][i]);
  } else {
    constexpr std::size_t kSplit = kTerms > 4 ? 4 : kTerms > 2 ? 2 : 1;
    return tree_of<kSplit>(terms, i) + tree_of<kTerms - kSplit>(terms + kSplit, i);
  }
}

template <std::size_t kTerms, class T, class Out>
inline void tree_loop(Out* out, const T* const* terms, std::size_t n) {
  const T* local[kTerms];
  for (std::size_t t = 0; t < kTerms; ++t) local[t] = terms[t];
  ZERO_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] = from_float<Out>(tree_of<kTerms>(local, i));
}

template <class T, class Out>
void small_tree(Out* out, const T* const* terms, std::size_t count, std::size_t n) {
  switch (count) {
    case 1: return tree_loop<1>(out, terms, n);
    case 2: return tree_loop<2>(out, terms, n);
    case 3: return tree_loop<3>(out, terms, n);
    case 4: return tree_loop<4>(out, terms, n);
    case 5: return tree_loop<5>(out, terms, n);
    case 6: return tree_loop<6>(out, terms, n);
    case 7: return tree_loop<7>(out, terms, n);
    default: return tree_loop<8>(out, terms, n);
  }
}

constexpr std::size_t kPiece = 512;  ///< elements handled at a time where a loop needs room for partial results
constexpr std::size_t kFew = 8;      ///< the most terms of a tree that the compiler knows

/// The addresses of terms of one storage type, from element `begin` on; false when there are other terms.
template <class T>
bool all_of_type(const T** addresses, const Term* terms, std::size_t count, std::size_t begin) {
  for (std::size_t t = 0; t < count; ++t) {
    if (terms[t].bf16 != kIsBf16<T>) return false;
    addresses[t] = static_cast<const T*>(terms[t].data) + begin;
  }
  return true;
}

/// Elements [begin, begin + n) of a term, in fp32.
inline void widen(float* out, const Term& term, std::size_t begin, std::size_t n) {
  if (term.bf16) {
    const Bf16* in = static_cast<const Bf16*>(term.data) + begin;
    for (std::size_t i = 0; i < n; ++i) out[i] = to_float(in[i]);
  } else {
    const float* in = static_cast<const float*>(term.data) + begin;
    for (std::size_t i = 0; i < n; ++i) out[i] = in[i];
  }
}

/// The tree over at most kFew terms of which some are fp32 and some bf16, for n <= kPiece elements from `begin` on.
void mixed_tree(float* out, const Term* terms, std::size_t count, std::size_t begin, std::size_t n) {
  float wide[kFew][kPiece];
  const float* addresses[kFew];
  for (std::size_t t = 0; t < count; ++t) {
    widen(wide[t], terms[t], begin, n);
    addresses[t] = wide[t];
  }
  small_tree(out, addresses, count, n);
}

/// The tree over any number of terms, for n <= kPiece elements of each from `begin` on, in fp32.
void piece_of_tree(float* out, const Term* terms, std::size_t count, std::size_t begin, std::size_t n) {
  if (count <= kFew) {
    const float* fp32[kFew];
    const Bf16* bf16[kFew];
    if (all_of_type(fp32, terms, count, begin)) return small_tree(out, fp32, count, n);
    if (all_of_type(bf16, terms, count, begin)) return small_tree(out, bf16, count, n);
    return mixed_tree(out, terms, count, begin, n);
  }
  const std::size_t split = tree_split(count);
  float right[kPiece];
  piece_of_tree(out, terms, split, begin, n);
  piece_of_tree(right, terms + split, count - split, begin, n);
  ZERO_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] += right[i];
}

template <class T>
void tree_sum(T* out, const Term* terms, std::size_t count, std::size_t n) {
  if (count <= kFew) {
    const float* fp32[kFew];
    const Bf16* bf16[kFew];
    if (all_of_type(fp32, terms, count, 0)) return small_tree(out, fp32, count, n);
    if (all_of_type(bf16, terms, count, 0)) return small_tree(out, bf16, count, n);
  }
  float sum[kPiece];  // `out` may be a term: it is written when the piece has been read from all of them
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t piece = n - begin < kPiece ? n - begin : kPiece;
    piece_of_tree(sum, terms, count, begin, piece);
    for (std::size_t i = 0; i < piece; ++i) out[begin + i] = from_float<T>(sum[i]);
  }
}

/// sum = term + sum.
template <class T>
inline void add_to(float* sum, const T* term, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) sum[i] = to_float(term[i]) + sum[i];
}

template <class T>
void merge_sums(T* out, const Term* terms, std::size_t count, float divisor, std::size_t n) {
  float sum[kPiece];
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t piece = n - begin < kPiece ? n - begin : kPiece;
    widen(sum, terms[count - 1], begin, piece);
    for (std::size_t t = count - 1; t-- > 0;) {
      if (terms[t].bf16) {
        add_to(sum, static_cast<const Bf16*>(terms[t].data) + begin, piece);
      } else {
        add_to(sum, static_cast<const float*>(terms[t].data) + begin, piece);
      }
    }
    // Division by 1 changes no bit.
    for (std::size_t i = 0; i < piece; ++i) out[begin + i] = from_float<T>(sum[i] / divisor);
  }
}

template <class T>
void block_squares(double* sums, const T* in, std::size_t n) {
  constexpr std::size_t kBlock = 32;
  constexpr std::size_t kTogether = 8;  // independent chains, so that they overlap
  std::size_t begin = 0;
  for (; begin + kTogether * kBlock <= n; begin += kTogether * kBlock) {
    double chain[kTogether] = {};
    for (std::size_t i = 0; i < kBlock; ++i) {
      for (std::size_t b = 0; b < kTogether; ++b) {
        const double x = static_cast<double>(to_float(in[begin + b * kBlock + i]));
        chain[b] += x * x;
      }
    }
    for (std::size_t b = 0; b < kTogether; ++b) sums[begin / kBlock + b] = chain[b];
  }
  for (; begin < n; begin += kBlock) {
    double chain = 0;
    for (std::size_t i = begin; i < n && i < begin + kBlock; ++i) {
      const double x = static_cast<double>(to_float(in[i]));
      chain += x * x;
    }
    sums[begin / kBlock] = chain;
  }
}

template <class T>
inline bool not_finite(T x) {
  return (bits_of(to_float(x)) & 0x7F800000U) == 0x7F800000U;
}

template <class T>
void digest(std::uint64_t* low, std::uint64_t* high, const T* in, std::uint64_t tensor, std::uint64_t first,
            std::size_t n) {
  const std::uint64_t key = tensor_key(tensor);
  constexpr std::size_t kCarryFree = std::size_t{1} << 30;
  for (std::size_t begin = 0; begin < n; begin += kCarryFree) {
    const std::size_t end = n - begin < kCarryFree ? n : begin + kCarryFree;
    HashSum sum = {};
    for (std::size_t i = begin; i < end; ++i) {
      add_hash(sum, element_hash(key, first + i, bits_of(to_float(in[i]))));
    }
    const ElementHash added = total_of(sum);
    *low += added.low;
    *high += added.high + (*low < added.low ? 1U : 0U);
  }
}

template <class T>
void add_kernels(KernelTable<T>& table) {
  table.tree_sum = tree_sum<T>;
  table.merge_sums = merge_sums<T>;
  table.block_squares = block_squares<T>;
  table.digest = digest<T>;
}

}  // namespace

void ZERO_FOR_ISA(add_sum_kernels)(KernelTables& tables) {
  add_kernels(tables.fp32);
  add_kernels(tables.bf16);
}

}  // namespace zero
