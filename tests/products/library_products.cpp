#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/device/products_factory.h"
#include "tests/products/case.h"

namespace zero {
namespace {

#ifdef ZERO_HAVE_DNNL

TEST(LibraryProducts, AreCloseToSumsInDoubleForEveryTransposeAndStride) {
  std::mt19937 bits(5);
  const auto draw = [&] { return static_cast<float>(bits() >> 8) * 0x1p-24F - 0.5F; };
  for (int threads = 1; threads <= 2; ++threads) {
    const std::unique_ptr<Products> products = make_library_products(threads);
    EXPECT_EQ(products->workspace_elements(), 0);
    for (int trial = 0; trial < 40; ++trial) {
      Case c{static_cast<Index>(1 + bits() % 90), static_cast<Index>(1 + bits() % 90),
             static_cast<Index>(1 + bits() % 200)};
      c.a_transposed = trial % 2 == 1;
      c.b_transposed = trial / 2 % 2 == 1;
      c.gap = trial / 4 % 3 * 5;
      c.fill(draw);
      const std::vector<float> out = c.multiply(*products);
      for (Index i = 0; i < c.m; ++i) {
        for (Index j = 0; j < c.ld_out(); ++j) {
          double sum = 0, size = 0;
          for (Index p = 0; p < c.k && j < c.n; ++p) {
            const double term = static_cast<double>(c.a_at(i, p)) * c.b_at(p, j);
            sum += term;
            size += std::abs(term);
          }
          const float got = out[static_cast<std::size_t>(i * c.ld_out() + j)];
          ASSERT_NEAR(got, j < c.n ? sum : kUntouched, 2e-6 * size) << c.text() << " at " << i << ", " << j;
        }
      }
    }
  }
}

TEST(LibraryProducts, GiveTheSameBitsAgain) {
  std::mt19937 bits(6);
  const std::unique_ptr<Products> products = make_library_products(1);
  Case c{130, 97, 310};
  c.fill([&] { return static_cast<float>(bits() >> 8) * 0x1p-24F - 0.5F; });
  const std::vector<float> first = c.multiply(*products);
  EXPECT_EQ(c.multiply(*products), first);
}

TEST(LibraryProducts, WithKZeroWriteZerosAndNothingElse) {
  const std::unique_ptr<Products> products = make_library_products(1);
  Case c{5, 7, 0};
  c.gap = 2;
  EXPECT_EQ(c.multiply(*products), c.chains());
}

TEST(LibraryProducts, WithoutRowsOrColumnsTouchNothing) {
  const std::unique_ptr<Products> products = make_library_products(1);
  float out = kUntouched;
  products->multiply({&out, 1}, 1, {{}, 4}, {{}, 1}, 3, 0, 4);
  products->multiply({&out, 1}, 3, {{}, 4}, {{}, 3}, 0, 3, 4);
  EXPECT_EQ(out, kUntouched);
}

TEST(LibraryProducts, SayWhichLibraryRuns) {
  EXPECT_EQ(make_library_products(1)->description().substr(0, 7), "oneDNN ");
  EXPECT_THROW(make_library_products(0), UnusableInput);
}

#else

TEST(LibraryProducts, AreRefusedByABuildWithoutOneDnn) { EXPECT_THROW(make_library_products(1), UnusableInput); }

#endif

}  // namespace
}  // namespace zero
