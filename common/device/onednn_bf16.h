#pragma once
/// \file
/// Products of bf16 operands by oneDNN, where the processor multiplies bf16. Only in builds with oneDNN.

#include <array>
#include <dnnl.hpp>
#include <map>
#include <optional>
#include <unordered_map>

#include "common/device/products.h"

namespace zero {

/// Keeps the primitives of the shapes that it has seen, up to a limit: making one takes longer than a small product.
class OneDnnBf16 {
 public:
  /// What multiplies bf16 here: "AVX512-BF16", "AMX"; null where oneDNN would emulate it, at a third of the speed of
  /// fp32, or refuse. DNNL_MAX_CPU_ISA limits it.
  static const char* hardware();

  /// Products::multiply() of bf16 operands, for sizes above 0; false, with nothing done, where oneDNN has only its slow
  /// reference code for the shape, the same for the same shape on a machine. Throws ResourceFailure when oneDNN fails.
  bool multiply(Array out, Index ld_out, const Matrix& a, const Matrix& b, Index m, Index n, Index k);

 private:
  using Shape = std::array<Index, 9>;
  struct Primitive {
    dnnl::matmul run;
    std::unordered_map<int, dnnl::memory> arguments;
  };

  /// Empty where there is only reference code.
  [[nodiscard]] std::optional<Primitive> make(const Shape& shape) const;

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Shape, std::optional<Primitive>> primitives_;
};

}  // namespace zero
