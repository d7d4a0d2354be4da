#include <cublas_v2.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/device/products_factory.h"
#include "tests/fakes/cublas_on_host/control.h"
#include "tests/fakes/cuda_on_host/memory.h"
#include "tests/fakes/cuda_on_host/settings.h"
#include "tests/fakes/cuda_on_host/streams.h"

struct cublasContext {  // NOLINT: cuBLAS's name
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  bool atomics = false, tf32 = false, pointers_on_host = true;
};

namespace cublas_on_host {
namespace {

using cuda_on_host::Tier;
using zero::Dtype;
using zero::Index;

auto& next_failures = *new std::map<std::string, cublasStatus_t>;  // never destroyed
std::uint64_t queued = 0;
int threads = static_cast<int>(cuda_on_host::number_setting("CUBLAS_ON_HOST_THREADS", 1));

cublasStatus_t planned_failure(const char* call) {
  const auto found = next_failures.find(call);
  if (found == next_failures.end()) return CUBLAS_STATUS_SUCCESS;
  const cublasStatus_t status = found->second;
  next_failures.erase(found);
  return status;
}

/// A call on a handle, whose work is body().
template <class Body>
cublasStatus_t answer(const char* call, cublasHandle_t handle, Body body) {
  if (const cublasStatus_t planned = planned_failure(call); planned != CUBLAS_STATUS_SUCCESS) return planned;
  return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : body();
}

/// The CPU's products, with memory of their own for scratch.
class CpuProducts {
 public:
  CpuProducts() {
    try {
      products_ = zero::make_library_products(threads);
    } catch (const zero::UnusableInput&) {  // a build without oneDNN
      products_ = zero::make_canonical_products(threads);
    }
    workspace_.resize(static_cast<std::size_t>(products_->workspace_elements()) + kAlignment);
    void* begin = workspace_.data();
    std::size_t space = workspace_.size() * sizeof(float);
    std::align(kAlignment, space - kAlignment, begin, space);
    products_->set_workspace({begin, products_->workspace_elements(), Dtype::fp32});
  }
  [[nodiscard]] zero::Products& products() { return *products_; }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::unique_ptr<zero::Products> products_;
  std::vector<float> workspace_;
};

std::unique_ptr<CpuProducts>& cpu_products() {
  static auto& one = *new std::unique_ptr<CpuProducts>;
  if (one == nullptr) one = std::make_unique<CpuProducts>();
  return one;
}

bool known(cudaDataType type) { return type == CUDA_R_32F || type == CUDA_R_16BF; }
Dtype dtype_of(cudaDataType type) { return type == CUDA_R_16BF ? Dtype::bf16 : Dtype::fp32; }

/// A matrix as cuBLAS sees it: columns of `ld` elements.
struct Columns {
  const void* data;
  cudaDataType type;
  int ld, rows, columns;

  [[nodiscard]] bool sound() const { return rows >= 0 && columns >= 0 && ld >= (rows > 1 ? rows : 1); }
  [[nodiscard]] Index size() const { return rows == 0 || columns == 0 ? 0 : Index{columns - 1} * ld + rows; }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size() * zero::size_of(dtype_of(type))); }
  [[nodiscard]] bool on_gpu() const { return size() == 0 || cuda_on_host::owned(Tier::device, data, bytes()); }
  [[nodiscard]] zero::ConstArray view() const { return {data, size(), dtype_of(type)}; }
};

Columns stored(const void* data, cudaDataType type, int ld, bool transposed, int rows, int columns) {
  return transposed ? Columns{data, type, ld, columns, rows} : Columns{data, type, ld, rows, columns};
}

void run(const Columns& a, bool a_transposed, const Columns& b, bool b_transposed, const Columns& c, int k) {
  for (const Columns* each : {&a, &b, &c}) cuda_on_host::require_there(each->data, each->bytes(), "cublasGemmEx");
  // By rows, each stored matrix is its transpose: C^T = op(B)^T op(A)^T.
  const zero::Array out = {const_cast<void*>(c.data), c.size(), dtype_of(c.type)};
  cpu_products()->products().multiply(out, c.ld, {b.view(), b.ld, b_transposed}, {a.view(), a.ld, a_transposed},
                                      c.columns, c.rows, k);
}

}  // namespace

void fail_next(const std::string& call, cublasStatus_t status) { next_failures[call] = status; }
std::uint64_t products() { return queued; }
void set_threads(int new_threads) {
  threads = new_threads;
  cpu_products() = nullptr;
}

}  // namespace cublas_on_host

using cublas_on_host::answer;

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown status";
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "the function requires an architectural feature absent from the device";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
  }
  return "unknown status";
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (const auto planned = cublas_on_host::planned_failure("cublasCreate"); planned != CUBLAS_STATUS_SUCCESS) {
    return planned;
  }
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  return answer("cublasDestroy", handle, [&] {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int* version) {
  return answer("cublasGetVersion", handle, [&] {
    *version = 130000;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  return answer("cublasSetStream", handle, [&] {
    if (!cuda_on_host::usable(stream)) return CUBLAS_STATUS_INVALID_VALUE;
    handle->stream = stream;
    handle->workspace = nullptr;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  return answer("cublasSetWorkspace", handle, [&] {
    if (!cuda_on_host::owned(cuda_on_host::Tier::device, workspace, bytes)) return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return answer("cublasSetMathMode", handle, [&] {
    handle->tf32 = (static_cast<int>(mode) & 0xF) == CUBLAS_TF32_TENSOR_OP_MATH;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  return answer("cublasSetAtomicsMode", handle, [&] {
    handle->atomics = mode == CUBLAS_ATOMICS_ALLOWED;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
  return answer("cublasSetPointerMode", handle, [&] {
    handle->pointers_on_host = mode == CUBLAS_POINTER_MODE_HOST;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                            int k, const void* alpha, const void* A, cudaDataType Atype, int lda, const void* B,
                            cudaDataType Btype, int ldb, const void* beta, void* C, cudaDataType Ctype, int ldc,
                            cublasComputeType_t computeType, cublasGemmAlgo_t) {
  return answer("cublasGemmEx", handle, [&] {
    using namespace cublas_on_host;  // NOLINT: of this call alone
    const bool plain = computeType == CUBLAS_COMPUTE_32F || computeType == CUBLAS_COMPUTE_32F_PEDANTIC;
    const bool types = known(Atype) && Btype == Atype && (Ctype == CUDA_R_32F || Ctype == Atype);
    const bool modes = !handle->tf32 && !handle->atomics && handle->pointers_on_host && handle->workspace != nullptr;
    if (!plain || !types || !modes || transa == CUBLAS_OP_C || transb == CUBLAS_OP_C) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (*static_cast<const float*>(alpha) != 1.0F || *static_cast<const float*>(beta) != 0.0F) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const bool a_transposed = transa == CUBLAS_OP_T, b_transposed = transb == CUBLAS_OP_T;
    const Columns a = stored(A, Atype, lda, a_transposed, m, k);
    const Columns b = stored(B, Btype, ldb, b_transposed, k, n);
    const Columns c = {C, Ctype, ldc, m, n};
    for (const Columns* each : {&a, &b, &c}) {
      if (!each->sound() || !each->on_gpu()) return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!cuda_on_host::usable(handle->stream)) return CUBLAS_STATUS_EXECUTION_FAILED;
    cuda_on_host::queue(handle->stream, {"cublasGemmEx", [=, workspace = handle->workspace] {
                                           cuda_on_host::require_there(workspace, 0, "cublasGemmEx's workspace");
                                           run(a, a_transposed, b, b_transposed, c, k);
                                         }});
    ++queued;
    return CUBLAS_STATUS_SUCCESS;
  });
}
