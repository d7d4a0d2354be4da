// Canonical products on the GPU, run on the host, are the chains that the CPU computes.
#include <gtest/gtest.h>

#include <stdexcept>

#include "common/device/products_factory.h"
#include "tests/cuda/gpu.h"
#include "tests/products/case.h"

namespace zero {
namespace {

using namespace test;  // NOLINT: a test of what is there

/// Products that take matrices in host memory: brings them to the GPU and back.
class ThroughGpu final : public Products {
 public:
  explicit ThroughGpu(Order order) : gpu_(order), products_(make_cuda_canonical_products(gpu_.stream())) {}

  void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) override {
    const DeviceMemory memory_out(bytes(out)), memory_a(bytes(a.data)), memory_b(bytes(b.data));
    upload(memory_out, out);
    upload(memory_a, a.data);
    upload(memory_b, b.data);
    a.data.data = memory_a.data();
    b.data.data = memory_b.data();
    products_->multiply({memory_out.data(), out.size, out.dtype}, ld_out, a, b, m, n, k);
    if (out.size > 0) cuda::read_back(out.data, memory_out.data(), bytes(out), gpu_.stream());
  }
  [[nodiscard]] std::string description() const override { return products_->description(); }

 private:
  static std::size_t bytes(const ConstArray& array) { return static_cast<std::size_t>(array.bytes()); }
  void upload(const DeviceMemory& memory, const ConstArray& array) {
    if (array.size == 0) return;
    cuda::check(cudaMemcpyAsync(memory.data(), array.data, bytes(array), cudaMemcpyHostToDevice, gpu_.stream()),
                "cudaMemcpyAsync");
  }

  Gpu gpu_;
  std::unique_ptr<Products> products_;
};

constexpr std::pair<Dtype, Dtype> kTypes[] = {
    {Dtype::fp32, Dtype::fp32}, {Dtype::bf16, Dtype::bf16}, {Dtype::bf16, Dtype::fp32}, {Dtype::fp32, Dtype::bf16}};

/// Values of every sign over many binades, so that another order of additions gives other bits.
struct Wide {
  std::mt19937 bits;
  float operator()() {
    const float unit = static_cast<float>(bits() >> 8) * 0x1p-24F - 0.5F;
    return std::ldexp(unit, static_cast<int>(bits() % 12));
  }
};

/// The chains, and the CPU's own canonical products.
void expect_chains(const Case& c, Order order) {
  ThroughGpu gpu(order);
  const std::unique_ptr<Products> cpu = make_canonical_products(1, CpuIsa::generic);
  std::vector<float> workspace(static_cast<std::size_t>(cpu->workspace_elements()));
  cpu->set_workspace(view(workspace));
  for (const auto& [operands, outputs] : kTypes) {
    Case rounded = c;
    if (operands == Dtype::bf16) rounded.round_operands();
    std::vector<float> expected = rounded.chains();
    for (float& x : expected) x = outputs == Dtype::bf16 ? to_float(from_float<Bf16>(x)) : x;
    const std::vector<float> got = rounded.multiply(gpu, operands, outputs);
    ASSERT_EQ(bits(got), bits(expected)) << name(order) << ": " << c.text();
    if (c.k > 0) {
      ASSERT_EQ(bits(got), bits(rounded.multiply(*cpu, operands, outputs))) << c.text();
    }
  }
}

TEST(CudaProducts, EveryOutputIsOneChainOfFmaInRisingKForAnyShapeTransposeAndStride) {
  Wide draw{std::mt19937(1)};
  constexpr Index kSizes[] = {1, 2, 3, 5, 15, 16, 17, 31, 33, 48, 63, 64, 65, 97, 131};
  for (int trial = 0; trial < 48; ++trial) {
    const auto size = [&] { return kSizes[draw.bits() % std::size(kSizes)]; };
    Case c{size(), size(), size()};
    c.a_transposed = trial % 2 == 1;
    c.b_transposed = trial / 2 % 2 == 1;
    c.gap = trial / 4 % 3 * 5;
    c.fill(draw);
    expect_chains(c, kOrders[trial % 3]);
  }
}

TEST(CudaProducts, AChainGoesOnUnbrokenFromOnePanelToTheNextInEveryOrderOfThreads) {
  Wide draw{std::mt19937(2)};
  for (const Order order : kOrders) {
    for (Case c : {Case{20, 37, 401}, Case{1, 1, 3000}}) {
      c.gap = 3;
      c.fill(draw);
      expect_chains(c, order);
    }
  }
}

TEST(CudaProducts, AnyBitsGoThroughTheChain) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 12; ++trial) {
    Case c{33, 20, trial % 4 + 1};
    c.fill([&] { return float_of(static_cast<std::uint32_t>(random())); });
    expect_chains(c, kOrders[trial % 3]);
  }
}

TEST(CudaProducts, OfMinusZeroEndAsTheChainDoesAndNoLater) {
  // -0 + -0 is -0 as long as no +0 is added: a chain that went on past k, with zeros, would end at +0.
  Case c{2, 2, 1};
  c.fill([] { return 0x1p-100F; });
  for (float& x : c.a) x = -x;
  expect_chains(c, Order::forward);
}

TEST(CudaProducts, WithKZeroWriteZerosAndNothingElse) {
  Case c{5, 70, 0};
  c.gap = 2;
  expect_chains(c, Order::reverse);
}

TEST(CudaProducts, WithoutRowsOrColumnsTouchNothing) {
  ThroughGpu gpu(Order::forward);
  float out = kUntouched;
  const ConstArray none;
  gpu.multiply({&out, 1}, 1, {none, 4}, {none, 0}, 3, 0, 4);
  gpu.multiply({&out, 1}, 3, {none, 4}, {none, 3}, 0, 3, 4);
  EXPECT_EQ(out, kUntouched);
}

TEST(CudaProducts, RefuseOperandsOfTwoTypes) {
  ThroughGpu gpu(Order::forward);
  float x = 1;
  Bf16 half{0x3F80};
  const Matrix wide{{&x, 1}, 1}, narrow{{&half, 1, Dtype::bf16}, 1};
  EXPECT_THROW(gpu.multiply({&x, 1}, 1, wide, narrow, 1, 1, 1), std::logic_error);
}

}  // namespace
}  // namespace zero
