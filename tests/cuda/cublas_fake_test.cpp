// cuBLAS on the host gives the bits of the CPU's library products and refuses what this project must not ask for.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/base/error.h"
#include "common/device/products_factory.h"
#include "tests/cuda/gpu.h"
#include "tests/fakes/cublas_on_host/control.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/products/case.h"

namespace zero {
namespace {

using namespace test;  // NOLINT: a test of what is there

std::unique_ptr<Products> cpu_products() {
  try {
    return make_library_products(1);
  } catch (const UnusableInput&) {  // a build without oneDNN
    return make_canonical_products(1);
  }
}

constexpr float kOne = 1, kZero = 0;

/// A handle as the backend sets it up, on a stream of its own.
class Cublas {
 public:
  Cublas() : workspace_(1024) {
    EXPECT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_NOT_ALLOWED), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetStream(handle, stream()), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetWorkspace(handle, workspace_.data(), 1024), CUBLAS_STATUS_SUCCESS);
  }
  ~Cublas() { cublasDestroy(handle); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  [[nodiscard]] cudaStream_t stream() const { return stream_.handle(); }

  cublasHandle_t handle = nullptr;

 private:
  cuda::Stream stream_;
  DeviceMemory workspace_;
};

/// Row-major products by cuBLAS, of matrices in host memory.
class ThroughCublas final : public Products {
 public:
  void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) override {
    const DeviceMemory on_gpu_out(bytes(out)), on_gpu_a(bytes(a.data)), on_gpu_b(bytes(b.data));
    upload(on_gpu_out, out);
    upload(on_gpu_a, a.data);
    upload(on_gpu_b, b.data);
    const auto type = [](Dtype dtype) { return dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F; };
    const auto op = [](const Matrix& x) { return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    EXPECT_EQ(cublasGemmEx(cublas_.handle, op(b), op(a), static_cast<int>(n), static_cast<int>(m), static_cast<int>(k),
                           &kOne, on_gpu_b.data(), type(b.data.dtype), static_cast<int>(b.ld), on_gpu_a.data(),
                           type(a.data.dtype), static_cast<int>(a.ld), &kZero, on_gpu_out.data(), type(out.dtype),
                           static_cast<int>(ld_out), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    cuda::read_back(out.data, on_gpu_out.data(), bytes(out), cublas_.stream());
  }
  [[nodiscard]] std::string description() const override { return "cuBLAS"; }

 private:
  static std::size_t bytes(const ConstArray& array) { return static_cast<std::size_t>(array.bytes()); }
  void upload(const DeviceMemory& memory, const ConstArray& array) {
    cuda::check(cudaMemcpyAsync(memory.data(), array.data, bytes(array), cudaMemcpyHostToDevice, cublas_.stream()),
                "cudaMemcpyAsync");
  }
  Cublas cublas_;
};

TEST(CublasFake, ProductsHaveTheBitsOfTheCpuForAnyShapeTransposeAndStride) {
  std::mt19937 random(5);
  const std::unique_ptr<Products> cpu = cpu_products();
  std::vector<float> workspace(static_cast<std::size_t>(cpu->workspace_elements()));
  cpu->set_workspace(view(workspace));
  ThroughCublas cublas;
  constexpr std::pair<Dtype, Dtype> kTypes[] = {
      {Dtype::fp32, Dtype::fp32}, {Dtype::bf16, Dtype::bf16}, {Dtype::bf16, Dtype::fp32}};
  constexpr Index kSizes[] = {1, 3, 16, 33, 64, 100};
  for (int trial = 0; trial < 32; ++trial) {
    const auto size = [&] { return kSizes[random() % std::size(kSizes)]; };
    Case c{size(), size(), size()};
    c.a_transposed = trial % 2 == 1;
    c.b_transposed = trial / 2 % 2 == 1;
    c.gap = trial / 4 % 3 * 5;
    c.fill([&] { return static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F; });
    for (const auto& [operands, outputs] : kTypes) {
      Case rounded = c;
      if (operands == Dtype::bf16) rounded.round_operands();
      ASSERT_EQ(bits(rounded.multiply(cublas, operands, outputs)), bits(rounded.multiply(*cpu, operands, outputs)))
          << c.text();
    }
  }
}

/// A product of 2 x 2 matrices with one thing changed.
struct Call {
  cublasOperation_t transa = CUBLAS_OP_N;
  float alpha = 1, beta = 0;
  cudaDataType a = CUDA_R_32F, b = CUDA_R_32F, c = CUDA_R_32F;
  int lda = 2;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;

  [[nodiscard]] cublasStatus_t operator()(const Cublas& cublas, const void* memory_of_a, void* other) const {
    return cublasGemmEx(cublas.handle, transa, CUBLAS_OP_N, 2, 2, 2, &alpha, memory_of_a, a, lda, other, b, 2, &beta,
                        other, c, 2, compute, CUBLAS_GEMM_DEFAULT);
  }
};

TEST(CublasFake, WhatIsNoPlainSumInFp32IsRefused) {
  const Cublas cublas;
  const DeviceMemory four(4 * sizeof(float)), other(4 * sizeof(float));
  const auto status = [&](const Call& call) { return call(cublas, four.data(), other.data()); };
  EXPECT_EQ(status({.transa = CUBLAS_OP_C}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({.alpha = 2}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({.beta = 1}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({.a = CUDA_R_16BF}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({.c = CUDA_R_16BF}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({.compute = CUBLAS_COMPUTE_32F_FAST_TF32}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({.lda = 1}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(status({.lda = 3}), CUBLAS_STATUS_INVALID_VALUE);  // beyond the allocation
  EXPECT_EQ(status({}), CUBLAS_STATUS_SUCCESS);
  float host[4] = {};
  EXPECT_EQ(Call{}(cublas, host, other.data()), CUBLAS_STATUS_INVALID_VALUE);
  cublasSetMathMode(cublas.handle, CUBLAS_TF32_TENSOR_OP_MATH);
  EXPECT_EQ(status({}), CUBLAS_STATUS_NOT_SUPPORTED);
  cublasSetMathMode(cublas.handle, CUBLAS_DEFAULT_MATH);
  cublasSetStream(cublas.handle, cublas.stream());  // takes the workspace away
  EXPECT_EQ(status({}), CUBLAS_STATUS_NOT_SUPPORTED);
  cuda::check(cudaStreamSynchronize(cublas.stream()), "cudaStreamSynchronize");
}

TEST(CublasFake, AProductWaitsInItsStreamAndCatchesMemoryThatWasFreed) {
  const Cublas cublas;
  const std::uint64_t before = cublas_on_host::products();
  const DeviceMemory other(4 * sizeof(float));
  {
    const DeviceMemory freed(4 * sizeof(float));
    EXPECT_EQ(Call{}(cublas, freed.data(), other.data()), CUBLAS_STATUS_SUCCESS);
  }
  EXPECT_EQ(cublas_on_host::products() - before, 1U);
  EXPECT_THROW(static_cast<void>(cudaStreamSynchronize(cublas.stream())), cuda_on_host::Fault);
}

TEST(CublasFake, AFailureThatATestAsksForIsReported) {
  cublas_on_host::fail_next("cublasCreate", CUBLAS_STATUS_NOT_INITIALIZED);
  cublasHandle_t handle = nullptr;
  EXPECT_EQ(cublasCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_STREQ(cublasGetStatusString(CUBLAS_STATUS_NOT_INITIALIZED), "the library was not initialized");
}

}  // namespace
}  // namespace zero
