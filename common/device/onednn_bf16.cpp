#ifdef ZERO_HAVE_DNNL

#include "common/device/onednn_bf16.h"

#include <fmt/format.h>

#include <string_view>

#include "common/base/error.h"

namespace zero {
namespace {

using dnnl::memory;

constexpr std::size_t kKept = 256;  // primitives; a model has about twenty shapes

memory::desc matrix(Index rows, Index columns, memory::data_type type, Index ld, bool transposed) {
  return {{rows, columns}, type, transposed ? memory::dims{1, ld} : memory::dims{ld, 1}};
}

}  // namespace

const char* OneDnnBf16::hardware() {
#if defined(__x86_64__)
  const auto has = [isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa())](dnnl_cpu_isa_t wanted) {
    return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
  };
  if (has(dnnl_cpu_isa_avx512_core_amx)) return "AMX";
  if (has(dnnl_cpu_isa_avx512_core_bf16)) return "AVX512-BF16";
#endif
  return nullptr;
}

std::optional<OneDnnBf16::Primitive> OneDnnBf16::make(const Shape& shape) const {
  const auto [m, n, k, ld_a, a_transposed, ld_b, b_transposed, ld_out, out_is_bf16] = shape;
  const memory::desc a = matrix(m, k, memory::data_type::bf16, ld_a, a_transposed != 0);
  const memory::desc b = matrix(k, n, memory::data_type::bf16, ld_b, b_transposed != 0);
  const memory::desc out =
      matrix(m, n, out_is_bf16 != 0 ? memory::data_type::bf16 : memory::data_type::f32, ld_out, false);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(engine_, a, b, out, {}, true);
#else
  const dnnl::matmul::primitive_desc description({a, b, out}, engine_, true);
#endif
  if (!description || std::string_view(description.impl_info_str()).starts_with("ref")) return std::nullopt;
  return Primitive{dnnl::matmul(description),
                   {{DNNL_ARG_SRC, memory(a, engine_, DNNL_MEMORY_NONE)},
                    {DNNL_ARG_WEIGHTS, memory(b, engine_, DNNL_MEMORY_NONE)},
                    {DNNL_ARG_DST, memory(out, engine_, DNNL_MEMORY_NONE)}}};
}

bool OneDnnBf16::multiply(Array out, Index ld_out, const Matrix& a, const Matrix& b, Index m, Index n, Index k) {
  const Shape shape = {m, n, k, a.ld, a.transposed, b.ld, b.transposed, ld_out, out.dtype == Dtype::bf16};
  try {
    auto at = primitives_.find(shape);
    if (at == primitives_.end()) {
      if (primitives_.size() >= kKept) primitives_.clear();
      at = primitives_.emplace(shape, make(shape)).first;
    }
    if (!at->second) return false;
    auto& [run, arguments] = *at->second;
    arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(a.data.data));      // NOLINT: oneDNN only reads them
    arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(b.data.data));  // NOLINT
    arguments.at(DNNL_ARG_DST).set_data_handle(out.data);
    run.execute(stream_, arguments);
    stream_.wait();
  } catch (const dnnl::error& error) {
    throw ResourceFailure(fmt::format("oneDNN failed ({}) in a bf16 product of {} x {} x {}", error.what(), m, n, k));
  }
  return true;
}

}  // namespace zero

#endif
