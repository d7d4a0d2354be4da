#pragma once
/// \file
/// Matrix products, the one operation whose order of additions a library would choose for us.

#include <string>

#include "common/device/array.h"

namespace zero {

/// A matrix in row-major storage with `ld` elements from one row to the next; `transposed` means that the stored
/// matrix is the transpose of the operand.
struct Matrix {
  ConstArray data;
  Index ld = 0;
  bool transposed = false;
};

/// Computes products. Implementations: `canonical` (our own order, equal bits everywhere) and `library`.
class Products {
 public:
  virtual ~Products() = default;

  /// out[i * ld_out + j] = sum over p in [0, k) of a(i, p) * b(p, j), i in [0, m), j in [0, n):
  /// \code
  ///   for i, j:  sum = 0;  for p = 0 .. k-1:  sum = fma(a(i, p), b(p, j), sum);  out(i, j) = sum
  /// \endcode
  /// `a` and `b` are both fp32 or both bf16, `out` is fp32 or bf16 (else std::logic_error); bf16 is widened on the way
  /// in, the chain is fp32, and an output is rounded once when its chain is complete. Canonical products compute
  /// exactly this chain for each output. Sizes may be 0 (k = 0 writes zeros). `out` must not overlap the operands.
  virtual void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) = 0;

  /// Elements (fp32) of scratch memory that multiply() needs; a constant of the kind of products and the thread count,
  /// the same for every storage type, instruction set and machine. 0: none.
  [[nodiscard]] virtual Index workspace_elements() const { return 0; }

  /// Lends the scratch memory: `workspace` has workspace_elements() fp32 elements, aligned to 64 bytes, and outlives
  /// these products. The Device calls this once, before the first multiply(), with a buffer of Category::workspace;
  /// multiply() allocates nothing itself. What the memory holds before or between products is of no concern.
  virtual void set_workspace(Array workspace) { (void)workspace; }

  /// What runs, for the plan: "canonical", "oneDNN 2.6.3".
  [[nodiscard]] virtual std::string description() const = 0;

  /// The same for bf16 operands: "canonical", "oneDNN 2.6.3, bf16 by AVX512-BF16", "oneDNN 2.6.3, bf16 through fp32".
  [[nodiscard]] virtual std::string bf16_description() const { return description(); }
};

}  // namespace zero
