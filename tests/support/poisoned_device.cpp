#include "tests/support/poisoned_device.h"

#include <cstdlib>
#include <cstring>

#include "common/device/cpu_isa.h"
#include "common/device/cpu_kernels.h"
#include "common/device/products_factory.h"

namespace zero::test {
namespace {

class PoisonedProducts final : public Products {
 public:
  PoisonedProducts(std::unique_ptr<Products> products, Kernels& kernels, Poison* poison)
      : products_(std::move(products)), kernels_(kernels), poison_(poison) {}

  void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) override {
    products_->multiply(out, ld_out, a, b, m, n, k);
    if (poison_ == nullptr || poison_->spent || poison_->where != ProductShape{m, n, k}) return;
    kernels_.fill(out.part(0, 1), poison_->value);
    poison_->spent = true;
  }
  [[nodiscard]] Index workspace_elements() const override { return products_->workspace_elements(); }
  void set_workspace(Array workspace) override { products_->set_workspace(workspace); }
  [[nodiscard]] std::string description() const override { return products_->description(); }

 private:
  std::unique_ptr<Products> products_;
  Kernels& kernels_;
  Poison* poison_;
};

class PoisonedDevice final : public Device {
 public:
  explicit PoisonedDevice(Poison* poison) {
    kernels_ = std::make_unique<CpuKernels>(cpu_isa());
    products_ = std::make_unique<PoisonedProducts>(make_canonical_products(1), *kernels_, poison);
    workspace_ = allocate_uninitialized(Category::workspace, products_->workspace_elements());
    products_->set_workspace(workspace_.array());
  }
  [[nodiscard]] std::string description() const override { return "cpu, poisoned"; }

 private:
  void* acquire(Tier /*tier*/, Category /*category*/, Index bytes) override {
    constexpr Index kPage = 4096;
    return std::aligned_alloc(kPage, static_cast<std::size_t>((bytes + kPage - 1) / kPage * kPage));
  }
  void release(Tier /*tier*/, void* memory, Index /*bytes*/) override { std::free(memory); }
  void fill_zero(Tier /*tier*/, void* memory, Index bytes) override {
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
  }
  void copy_now(void* out, const void* in, Index bytes) override {
    std::memcpy(out, in, static_cast<std::size_t>(bytes));
  }

  Buffer workspace_;
};

}  // namespace

std::unique_ptr<Device> make_poisoned_device(Poison* poison) { return std::make_unique<PoisonedDevice>(poison); }

}  // namespace zero::test
