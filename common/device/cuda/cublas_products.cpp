// Library products. cuBLAS stores matrices by columns: to it a row-major matrix is its own transpose, so that it is
// asked for out^T = b^T a^T.
#include <cublas_v2.h>
#include <fmt/format.h>

#include <limits>

#include "common/base/error.h"
#include "common/device/cuda/cuda_products.h"
#include "common/device/products_storage.h"

namespace zero {
namespace cuda {
namespace {

constexpr Index kWorkspaceBytes = Index{32} << 20;

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw ResourceFailure(
      fmt::format("{} failed: {} (cuBLAS status {})", call, cublasGetStatusString(status), static_cast<int>(status)));
}

/// A size as cuBLAS takes it.
int narrow(Index size) {
  if (size > std::numeric_limits<int>::max()) {
    throw ResourceFailure(
        fmt::format("a product has a side of {}, more than cuBLAS takes; use --products canonical", size));
  }
  return static_cast<int>(size);
}

cudaDataType_t type_of(Dtype dtype) { return dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

cublasOperation_t operation(const Matrix& matrix) { return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

class Handle {
 public:
  Handle() { check(cublasCreate(&handle_), "cublasCreate"); }
  ~Handle() { cublasDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator cublasHandle_t() const { return handle_; }  // NOLINT: it passes for one

 private:
  cublasHandle_t handle_ = nullptr;
};

class CublasProducts final : public Products {
 public:
  explicit CublasProducts(PresentStream stream) : stream_(stream), own_(make_cuda_canonical_products(stream)) {
    // TF32 is only used where it is asked for, which this mode does not; and parts of one output are added in fp32.
    const auto mode = static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    check(cublasSetMathMode(handle_, mode), "cublasSetMathMode");
    check(cublasSetAtomicsMode(handle_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
    check(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_HOST), "cublasSetPointerMode");
    int version = 0;
    check(cublasGetVersion(handle_, &version), "cublasGetVersion");
    description_ = fmt::format("cuBLAS {}.{}", version / 10000, version / 100 % 100);
  }

  void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) override {
    require_dtypes(out, a, b);
    if (m == 0 || n == 0) return;
    const bool no_call = a.data.dtype == Dtype::fp32 && out.dtype == Dtype::bf16;
    if (k == 0 || no_call) return own_->multiply(out, ld_out, a, b, m, n, k);
    use(stream_);
    const float one = 1, zero = 0;
    check(cublasGemmEx(handle_, operation(b), operation(a), narrow(n), narrow(m), narrow(k), &one, b.data.data,
                       type_of(b.data.dtype), narrow(b.ld), a.data.data, type_of(a.data.dtype), narrow(a.ld), &zero,
                       out.data, type_of(out.dtype), narrow(ld_out), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

  [[nodiscard]] Index workspace_elements() const override { return kWorkspaceBytes / size_of(Dtype::fp32); }

  void set_workspace(Array workspace) override {
    if (workspace.size < workspace_elements()) throw ResourceFailure("the workspace of library products is too small");
    workspace_ = workspace.data;
    used_ = nullptr;
  }

  [[nodiscard]] std::string description() const override { return description_ + ", fp32 without TF32"; }
  [[nodiscard]] std::string bf16_description() const override {
    return description_ + ", bf16 on tensor cores, sums in fp32";
  }

 private:
  /// A change of the stream takes the workspace away, so it is set again.
  void use(cudaStream_t stream) {
    if (workspace_ == nullptr) throw ResourceFailure("library products were given no workspace");
    if (stream == used_) return;
    used_ = nullptr;
    check(cublasSetStream(handle_, stream), "cublasSetStream");
    check(cublasSetWorkspace(handle_, workspace_, static_cast<std::size_t>(kWorkspaceBytes)), "cublasSetWorkspace");
    used_ = stream;
  }

  PresentStream stream_;
  std::unique_ptr<Products> own_;
  Handle handle_;
  cudaStream_t used_ = nullptr;  ///< the stream that cuBLAS works on
  void* workspace_ = nullptr;
  std::string description_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Products> make_cublas_products(cuda::PresentStream stream) {
  return std::make_unique<cuda::CublasProducts>(stream);
}

}  // namespace zero
