// Library products on the GPU ask cuBLAS for the product that is meant, in the workspace that is booked: answered by
// the CPU's library (tests/fakes/cublas_on_host), they have its bits.
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "common/base/error.h"
#include "common/device/cuda/cuda_device.h"
#include "common/device/cuda/cuda_products.h"
#include "common/device/products_factory.h"
#include "tests/device/views.h"
#include "tests/fakes/cublas_on_host/control.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/products/case.h"

namespace zero {
namespace {

using test::bits;

constexpr Index kCublasBytes = Index{32} << 20;

/// Products that take matrices in host memory: brings them to the device and back.
class ThroughDevice final : public Products {
 public:
  void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) override {
    const Buffer on_device = uploaded(out), left = uploaded(a.data), right = uploaded(b.data);
    device_.synchronize(device_.mark());  // should the product fail, nothing is left that uses the buffers
    device_.products().multiply(on_device.array(), ld_out, {left.array(), a.ld, a.transposed},
                                {right.array(), b.ld, b.transposed}, m, n, k);
    device_.download(out.data, on_device.array());
  }
  [[nodiscard]] std::string description() const override { return "through the device"; }
  CudaDevice& device() { return device_; }

 private:
  Buffer uploaded(ConstArray host) {
    Buffer buffer = device_.allocate_uninitialized(Category::activations, host.size, host.dtype);
    device_.upload(buffer.array(), host.data);
    return buffer;
  }

  CudaDevice device_{ProductKind::library, 0};
};

/// What the fake answers with.
class CpuLibrary {
 public:
  CpuLibrary() {
    try {
      products_ = make_library_products(1);
    } catch (const UnusableInput&) {  // a build without oneDNN
      products_ = make_canonical_products(1);
    }
    workspace_ = cpu_->allocate(Category::workspace, products_->workspace_elements());
    products_->set_workspace(workspace_.array());
  }
  [[nodiscard]] Products& products() { return *products_; }

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device(ProductKind::canonical, 1);
  Buffer workspace_;
  std::unique_ptr<Products> products_;
};

Case random_case(Index m, Index n, Index k, int variant) {
  std::mt19937 random(static_cast<unsigned>(variant));
  Case c{m, n, k};
  c.a_transposed = variant % 2 == 1;
  c.b_transposed = variant / 2 % 2 == 1;
  c.gap = variant / 4 % 2 * 3;
  c.fill([&] { return static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F; });
  return c;
}

TEST(CublasProducts, OfAnyShapeTransposeStrideAndTypeAreThoseOfTheCpusLibrary) {
  ThroughDevice gpu;
  CpuLibrary cpu;
  constexpr Index kSizes[] = {1, 2, 7, 16, 33, 64, 90};
  std::mt19937 random(1);
  constexpr std::pair<Dtype, Dtype> kTypes[] = {
      {Dtype::fp32, Dtype::fp32}, {Dtype::bf16, Dtype::bf16}, {Dtype::bf16, Dtype::fp32}};
  for (int variant = 0; variant < 32; ++variant) {
    const auto size = [&] { return kSizes[random() % std::size(kSizes)]; };
    for (const auto& [operands, outputs] : kTypes) {
      Case c = random_case(size(), size(), size(), variant);
      if (operands == Dtype::bf16) c.round_operands();
      const auto products = cublas_on_host::products();
      const std::vector<float> got = c.multiply(gpu, operands, outputs);
      EXPECT_EQ(cublas_on_host::products(), products + 1);
      ASSERT_EQ(bits(got), bits(c.multiply(cpu.products(), operands, outputs))) << c.text();
    }
  }
}

TEST(CublasProducts, ThatCublasHasNoCallForAreOurOwn) {
  ThroughDevice gpu;
  const auto products = cublas_on_host::products();
  for (int variant = 0; variant < 8; ++variant) {
    const Case c = random_case(17, 9, 33, variant);
    std::vector<float> expected = c.chains();
    for (float& x : expected) x = to_float(from_float<Bf16>(x));
    EXPECT_EQ(bits(c.multiply(gpu, Dtype::fp32, Dtype::bf16)), bits(expected)) << c.text();
  }
  Case empty{3, 4, 0};
  for (const Dtype type : {Dtype::fp32, Dtype::bf16}) {
    EXPECT_EQ(empty.multiply(gpu, type, type), std::vector<float>(12, 0.0F));
  }
  float out = kUntouched;
  const ConstArray none;
  gpu.multiply({&out, 1}, 1, {none, 4}, {none, 0}, 3, 0, 4);
  gpu.multiply({&out, 1}, 3, {none, 4}, {none, 3}, 0, 3, 4);
  EXPECT_EQ(out, kUntouched);
  EXPECT_EQ(cublas_on_host::products(), products);
}

TEST(CublasProducts, GoToThePresentQueueAndKeepTheirWorkspace) {
  ThroughDevice gpu;
  CpuLibrary cpu;
  const Case c = random_case(20, 30, 40, 1);
  const std::vector<float> expected = c.multiply(cpu.products());
  for (const Queue queue : {Queue::compute, Queue::communication, Queue::compute, Queue::copies, Queue::compute}) {
    const OnQueue on_queue(gpu.device(), queue);
    EXPECT_EQ(bits(c.multiply(gpu)), bits(expected));
  }
}

TEST(CublasProducts, BookTheirWorkspaceAndSayWhatRuns) {
  const std::size_t before = cuda_on_host::live_allocations();
  {
    CudaDevice device(ProductKind::library, 0);
    EXPECT_EQ(device.ledger().current(Tier::device, Category::workspace), CudaKernels::scratch_bytes() + kCublasBytes);
    EXPECT_EQ(device.products().description(), "cuBLAS 13.0, fp32 without TF32");
    EXPECT_EQ(device.products().bf16_description(), "cuBLAS 13.0, bf16 on tensor cores, sums in fp32");
  }
  EXPECT_EQ(cuda_on_host::live_allocations(), before);
}

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ResourceFailure& failure) {
    return failure.what();
  }
  return "no failure";
}

TEST(CublasProducts, ThatFailSayWhatCublasSays) {
  const std::size_t before = cuda_on_host::live_allocations();
  cublas_on_host::fail_next("cublasCreate", CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(failure_of([] { (void)make_cuda_device(ProductKind::library, 0); }),
            "cublasCreate failed: the resource allocation failed (cuBLAS status 3)");
  EXPECT_EQ(cuda_on_host::live_allocations(), before);
  ThroughDevice gpu;
  const Case c = random_case(2, 3, 4, 0);
  cublas_on_host::fail_next("cublasGemmEx", CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(failure_of([&] { (void)c.multiply(gpu); }),
            "cublasGemmEx failed: the function failed to launch on the GPU (cuBLAS status 13)");
  cublas_on_host::fail_next("cublasSetWorkspace", CUBLAS_STATUS_INTERNAL_ERROR);
  {
    const OnQueue queue(gpu.device(), Queue::communication);
    EXPECT_NE(failure_of([&] { (void)c.multiply(gpu); }), "no failure");
  }
  EXPECT_EQ(failure_of([&] { (void)c.multiply(gpu); }), "no failure");  // the stream and the workspace are set again
  EXPECT_EQ(failure_of([] {
              const cuda::Stream stream;
              const Case one = random_case(1, 1, 1, 0);
              (void)one.multiply(*make_cublas_products(stream.handle()));
            }),
            "library products were given no workspace");
}

TEST(CublasProducts, RefuseOperandsOfTwoTypesAndSidesThatCublasCannotCount) {
  CudaDevice device(ProductKind::library, 0);
  const Buffer wide = device.allocate(Category::activations, 1);
  const Buffer narrow = device.allocate(Category::activations, 1, Dtype::bf16);
  const Matrix a{wide.array(), 1}, b{narrow.array(), 1};
  EXPECT_THROW(device.products().multiply(wide.array(), 1, a, b, 1, 1, 1), std::logic_error);
  EXPECT_THROW(device.products().multiply(wide.array(), 1, a, a, 1, Index{1} << 31, 1), ResourceFailure);
}

}  // namespace
}  // namespace zero
