#include <fmt/format.h>

#include <memory>

#include "common/base/error.h"
#include "common/device/products_factory.h"

#ifdef ZERO_HAVE_DNNL

#include <algorithm>
#include <cstddef>

#include "common/device/cpu_kernels.h"
#include "common/device/onednn_bf16.h"
#include "common/device/products_storage.h"

// Of the OpenMP runtime that oneDNN is built on; <omp.h> would be that of the compiler, which can be another.
extern "C" void omp_set_num_threads(int threads);

namespace zero {
namespace {

// Blocks through which bf16 goes as fp32: one each of a, b and the outputs, kSide x kSide, in the workspace. The blocks
// of k go one after the other into one fp32 block of outputs, rounded when it is complete. (Blocks of full k would need
// a workspace that grows with k.)
constexpr Index kSide = 512;
constexpr Index kBlock = kSide * kSide;

class LibraryProducts : public Products {
 public:
  LibraryProducts(int threads, Bf16Route route) : threads_(threads), loops_(kernel_tables(cpu_isa()).bf16) {
    if (route == Bf16Route::best && OneDnnBf16::hardware() != nullptr) bf16_ = std::make_unique<OneDnnBf16>();
  }

  void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) override {
    require_dtypes(out, a, b);
    if (m == 0 || n == 0) return;
    if (k == 0) return write_zeros(out, ld_out, m, n);
    omp_set_num_threads(threads_);  // here and not at construction: OpenMP keeps it for each calling thread
    const bool bf16 = a.data.dtype == Dtype::bf16;
    if (!bf16 && out.dtype == Dtype::fp32) return sgemm(out, ld_out, a, b, m, n, k, 0.0F);
    if (bf16 && bf16_ && bf16_->multiply(out, ld_out, a, b, m, n, k)) return;
    multiply_through_fp32(out, ld_out, a, b, m, n, k);
  }

  [[nodiscard]] Index workspace_elements() const override { return 3 * kBlock; }

  void set_workspace(Array workspace) override {
    if (workspace.size < workspace_elements()) throw ResourceFailure("the workspace of library products is too small");
    workspace_ = static_cast<float*>(workspace.data);
  }

  [[nodiscard]] std::string description() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  }

  [[nodiscard]] std::string bf16_description() const override {
    return bf16_ ? fmt::format("{}, bf16 by {}", description(), OneDnnBf16::hardware())
                 : fmt::format("{}, bf16 through fp32", description());
  }

 private:
  // fp32 only: out = a b + beta out.
  static void sgemm(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k, float beta) {
    const dnnl_status_t status = dnnl_sgemm(
        a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0F, static_cast<const float*>(a.data.data), a.ld,
        static_cast<const float*>(b.data.data), b.ld, beta, static_cast<float*>(out.data), ld_out);
    if (status != dnnl_success) {
      throw ResourceFailure(
          fmt::format("oneDNN failed with status {} in a product of {} x {} x {}", static_cast<int>(status), m, n, k));
    }
  }

  void multiply_through_fp32(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) {
    if (workspace_ == nullptr) throw ResourceFailure("library products were given no workspace");
    for (Index i = 0; i < m; i += kSide) {
      const Index rows = std::min(kSide, m - i);
      for (Index j = 0; j < n; j += kSide) {
        const Index columns = std::min(kSide, n - j);
        const Array to{static_cast<std::byte*>(out.data) + (i * ld_out + j) * size_of(out.dtype), 0, out.dtype};
        const bool in_place = out.dtype == Dtype::fp32;
        const Array sums = in_place ? to : Array{workspace_ + 2 * kBlock, kBlock, Dtype::fp32};
        const Index ld_sums = in_place ? ld_out : columns;
        for (Index p = 0; p < k; p += kSide) {
          const Index depth = std::min(kSide, k - p);
          sgemm(sums, ld_sums, fp32_block(workspace_, a, i, p, rows, depth),
                fp32_block(workspace_ + kBlock, b, p, j, depth, columns), rows, columns, depth, p == 0 ? 0.0F : 1.0F);
        }
        for (Index r = 0; r < rows && !in_place; ++r) {
          loops_.round(static_cast<Bf16*>(to.data) + r * ld_out, static_cast<const float*>(sums.data) + r * ld_sums,
                       static_cast<std::size_t>(columns));
        }
      }
    }
  }

  // The operand's block of `rows` x `columns` from (row, column) on, widened to `room` where it is bf16.
  [[nodiscard]] Matrix fp32_block(float* room, Matrix operand, Index row, Index column, Index rows,
                                  Index columns) const {
    if (operand.transposed) {  // as it is stored
      std::swap(row, column);
      std::swap(rows, columns);
    }
    const Index begin = row * operand.ld + column;
    const ConstArray stored = operand.data.part(begin, (rows - 1) * operand.ld + columns);
    if (stored.dtype == Dtype::fp32) return {stored, operand.ld, operand.transposed};
    for (Index r = 0; r < rows; ++r) {
      loops_.widen(room + r * columns, static_cast<const Bf16*>(stored.data) + r * operand.ld,
                   static_cast<std::size_t>(columns));
    }
    return {{room, rows * columns, Dtype::fp32}, columns, operand.transposed};
  }

  int threads_;
  KernelTable<Bf16> loops_;
  std::unique_ptr<OneDnnBf16> bf16_;
  float* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Products> make_library_products(int threads, Bf16Route route) {
  if (threads < 1) throw UnusableInput(fmt::format("{} product threads were asked for; at least 1 is needed", threads));
  if (dnnl_version()->cpu_runtime != DNNL_RUNTIME_OMP) {
    throw UnusableInput("this oneDNN is not built on OpenMP, so its threads cannot be set; use --products canonical");
  }
  return std::make_unique<LibraryProducts>(threads, route);
}

}  // namespace zero

#else

namespace zero {

std::unique_ptr<Products> make_library_products(int, Bf16Route) {
  throw UnusableInput("this build has no oneDNN; install libdnnl-dev and build again, or use --products canonical");
}

}  // namespace zero

#endif
