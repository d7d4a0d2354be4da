#include <fmt/format.h>

#include <memory>

#include "common/base/error.h"
#include "common/device/products_factory.h"

#ifdef ZERO_HAVE_DNNL

#include <dnnl.h>

#include <algorithm>

// Of the OpenMP runtime that oneDNN is built on; <omp.h> would be that of the compiler, which can be another.
extern "C" void omp_set_num_threads(int threads);

namespace zero {
namespace {

class LibraryProducts : public Products {
 public:
  explicit LibraryProducts(int threads) : threads_(threads) {}

  void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) override {
    if (m == 0 || n == 0) return;
    if (k == 0) {
      for (Index i = 0; i < m; ++i) std::fill_n(static_cast<float*>(out.data) + i * ld_out, n, 0.0F);
      return;
    }
    omp_set_num_threads(threads_);  // here and not at construction: OpenMP keeps it for each calling thread
    const dnnl_status_t status = dnnl_sgemm(
        a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0F, static_cast<const float*>(a.data.data), a.ld,
        static_cast<const float*>(b.data.data), b.ld, 0.0F, static_cast<float*>(out.data), ld_out);
    if (status != dnnl_success) {
      throw ResourceFailure(
          fmt::format("oneDNN failed with status {} in a product of {} x {} x {}", static_cast<int>(status), m, n, k));
    }
  }

  [[nodiscard]] std::string description() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<Products> make_library_products(int threads) {
  if (threads < 1) throw UnusableInput(fmt::format("{} product threads were asked for; at least 1 is needed", threads));
  if (dnnl_version()->cpu_runtime != DNNL_RUNTIME_OMP) {
    throw UnusableInput("this oneDNN is not built on OpenMP, so its threads cannot be set; use --products canonical");
  }
  return std::make_unique<LibraryProducts>(threads);
}

}  // namespace zero

#else

namespace zero {

std::unique_ptr<Products> make_library_products(int) {
  throw UnusableInput("this build has no oneDNN; install libdnnl-dev and build again, or use --products canonical");
}

}  // namespace zero

#endif
