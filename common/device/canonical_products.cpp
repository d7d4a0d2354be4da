#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>

#include "common/base/error.h"
#include "common/base/thread_pool.h"
#include "common/device/cpu/canonical_product.h"
#include "common/device/products_factory.h"
#include "common/device/products_storage.h"

namespace zero {
namespace {

using Loops = void (*)(const CanonicalProduct&);

Loops loops_for(CpuIsa isa) {
  if (!available(isa)) {
    throw UnusableInput(fmt::format("this processor or build has no {} code for products; use generic", name(isa)));
  }
#ifdef ZERO_HAVE_X86_ISAS
  if (isa == CpuIsa::avx512) return canonical_product_avx512;
  if (isa == CpuIsa::avx2) return canonical_product_avx2;
#endif
  return canonical_product_generic;
}

// Threads share rows or columns in steps that cut no block of outputs.
constexpr Index kStep = 48;
// Below this many fma a second thread costs more than it saves.
constexpr Index kWorthSharing = 1 << 18;

class CanonicalProducts : public Products {
 public:
  CanonicalProducts(int threads, CpuIsa isa) : loops_(loops_for(isa)), pool_(threads) {}

  void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) override {
    require_dtypes(out, a, b);
    const CanonicalProduct whole = {.out = out.data,
                                    .out_is_bf16 = out.dtype == Dtype::bf16,
                                    .ld_out = ld_out,
                                    .a = a.data.data,
                                    .ld_a = a.ld,
                                    .a_transposed = a.transposed,
                                    .b = b.data.data,
                                    .ld_b = b.ld,
                                    .b_transposed = b.transposed,
                                    .operands_are_bf16 = a.data.dtype == Dtype::bf16,
                                    .m = m,
                                    .n = n,
                                    .k = k,
                                    .workspace = workspace_};
    if (m == 0 || n == 0) return;
    if (k == 0) {
      write_zeros(out, ld_out, m, n);
      return;
    }
    if (workspace_ == nullptr) throw ResourceFailure("canonical products were given no workspace");
    if (pool_.threads() == 1 || m * n * k < kWorthSharing) {
      loops_(whole);
      return;
    }
    const Index share = round_up(divide_up(std::max(m, n), pool_.threads()), kStep);
    const int parts = static_cast<int>(divide_up(std::max(m, n), share));
    const auto multiply_part = [&](int part) { loops_(part_of(whole, part, share)); };
    pool_.parallel_for(parts, std::cref(multiply_part));
  }

  [[nodiscard]] Index workspace_elements() const override { return pool_.threads() * kCanonicalWorkspace; }

  void set_workspace(Array workspace) override {
    if (workspace.size < workspace_elements())
      throw ResourceFailure("the workspace of canonical products is too small");
    workspace_ = static_cast<float*>(workspace.data);
  }

  [[nodiscard]] std::string description() const override { return "canonical"; }

 private:
  // Part `part` of the longer side of the outputs, cut into pieces of `share`. The chains stay whole.
  static CanonicalProduct part_of(CanonicalProduct x, int part, Index share) {
    const Index begin = part * share;
    const Index out_bytes = size_of(x.out_is_bf16 ? Dtype::bf16 : Dtype::fp32);
    const Index bytes = size_of(x.operands_are_bf16 ? Dtype::bf16 : Dtype::fp32);
    if (x.m >= x.n) {
      x.out = static_cast<std::byte*>(x.out) + begin * x.ld_out * out_bytes;
      x.a = static_cast<const std::byte*>(x.a) + begin * (x.a_transposed ? 1 : x.ld_a) * bytes;
      x.m = std::min(share, x.m - begin);
    } else {
      x.out = static_cast<std::byte*>(x.out) + begin * out_bytes;
      x.b = static_cast<const std::byte*>(x.b) + begin * (x.b_transposed ? x.ld_b : 1) * bytes;
      x.n = std::min(share, x.n - begin);
    }
    x.workspace += part * kCanonicalWorkspace;
    return x;
  }

  Loops loops_;
  ThreadPool pool_;
  float* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Products> make_canonical_products(int threads, CpuIsa isa) {
  if (threads < 1) throw UnusableInput(fmt::format("{} product threads were asked for; at least 1 is needed", threads));
  return std::make_unique<CanonicalProducts>(threads, isa);
}

std::unique_ptr<Products> make_canonical_products(int threads) { return make_canonical_products(threads, cpu_isa()); }

}  // namespace zero
