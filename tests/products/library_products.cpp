#include <gtest/gtest.h>

#include <stdexcept>

#include "common/base/error.h"
#include "common/device/products_factory.h"
#include "tests/products/case.h"

namespace zero {
namespace {

#ifdef ZERO_HAVE_DNNL

// Library products with the workspace they ask for, full of NaN.
struct Library {
  explicit Library(int threads, Bf16Route route = Bf16Route::best) : products(make_library_products(threads, route)) {
    workspace.assign(static_cast<std::size_t>(products->workspace_elements()), std::nanf(""));
    products->set_workspace({workspace.data(), products->workspace_elements()});
  }
  std::vector<float> workspace;
  std::unique_ptr<Products> products;
};

// Outputs within a few roundings of fp32, and one of bf16 where they are stored so, of sums in double.
void expect_close(const Case& c, const std::vector<float>& out, Dtype outputs) {
  const double half_step = outputs == Dtype::bf16 ? 0x1p-8 : 0;
  for (Index i = 0; i < c.m; ++i) {
    for (Index j = 0; j < c.ld_out(); ++j) {
      double sum = 0, size = 0;
      for (Index p = 0; p < c.k && j < c.n; ++p) {
        const double term = static_cast<double>(c.a_at(i, p)) * c.b_at(p, j);
        sum += term;
        size += std::abs(term);
      }
      const double want = j < c.n ? sum : kUntouched;
      const float got = out[static_cast<std::size_t>(i * c.ld_out() + j)];
      ASSERT_NEAR(got, want, 2e-6 * size + half_step * std::abs(want)) << c.text() << " at " << i << ", " << j;
    }
  }
}

TEST(LibraryProducts, AreCloseToSumsInDoubleForEveryTransposeAndStride) {
  std::mt19937 bits(5);
  const auto draw = [&] { return static_cast<float>(bits() >> 8) * 0x1p-24F - 0.5F; };
  for (int threads = 1; threads <= 2; ++threads) {
    Library library(threads);
    for (int trial = 0; trial < 40; ++trial) {
      Case c{static_cast<Index>(1 + bits() % 90), static_cast<Index>(1 + bits() % 90),
             static_cast<Index>(1 + bits() % 200)};
      c.a_transposed = trial % 2 == 1;
      c.b_transposed = trial / 2 % 2 == 1;
      c.gap = trial / 4 % 3 * 5;
      c.fill(draw);
      expect_close(c, c.multiply(*library.products), Dtype::fp32);
    }
  }
}

TEST(LibraryProducts, OfBf16AreCloseToSumsInDoubleByBothRoutes) {
  std::mt19937 bits(15);
  const auto draw = [&] { return static_cast<float>(bits() >> 8) * 0x1p-24F - 0.5F; };
  for (const Bf16Route route : {Bf16Route::best, Bf16Route::through_fp32}) {
    Library library(route == Bf16Route::best ? 1 : 2, route);
    for (int trial = 0; trial < 60; ++trial) {
      Case c{static_cast<Index>(1 + bits() % 90), static_cast<Index>(1 + bits() % 90),
             static_cast<Index>(1 + bits() % 200)};
      c.a_transposed = trial % 2 == 1;
      c.b_transposed = trial / 2 % 2 == 1;
      c.gap = trial / 4 % 3 * 5;
      c.fill(draw);
      c.round_operands();
      for (const Dtype outputs : {Dtype::fp32, Dtype::bf16}) {
        expect_close(c, c.multiply(*library.products, Dtype::bf16, outputs), outputs);
      }
      expect_close(c, c.multiply(*library.products, Dtype::fp32, Dtype::bf16), Dtype::bf16);
    }
  }
}

TEST(LibraryProducts, OfBf16BeyondABlockOfTheWorkspaceAreWhole) {
  std::mt19937 bits(16);
  const auto draw = [&] { return static_cast<float>(bits() >> 8) * 0x1p-24F - 0.5F; };
  for (const Bf16Route route : {Bf16Route::best, Bf16Route::through_fp32}) {
    Library library(1, route);
    for (Case c : {Case{530, 30, 40}, Case{30, 1030, 40}, Case{20, 30, 1500}, Case{515, 514, 20}}) {
      c.gap = 2;
      for (int transposes = 0; transposes < 4; ++transposes) {
        c.a_transposed = transposes % 2 == 1;
        c.b_transposed = transposes / 2 == 1;
        c.fill(draw);
        c.round_operands();
        for (const Dtype outputs : {Dtype::fp32, Dtype::bf16}) {
          expect_close(c, c.multiply(*library.products, Dtype::bf16, outputs), outputs);
        }
      }
    }
  }
}

TEST(LibraryProducts, GiveTheSameBitsAgain) {
  std::mt19937 bits(6);
  for (const Bf16Route route : {Bf16Route::best, Bf16Route::through_fp32}) {
    Library library(1, route);
    Case c{130, 97, 310};
    c.fill([&] { return static_cast<float>(bits() >> 8) * 0x1p-24F - 0.5F; });
    c.round_operands();
    EXPECT_EQ(c.multiply(*library.products), c.multiply(*library.products));
    const std::vector<float> first = c.multiply(*library.products, Dtype::bf16, Dtype::bf16);
    for (Index n = 1; n <= 300; ++n) {  // more shapes than are kept
      Case other{1, n, 2};
      other.fill([] { return 1.0F; });
      EXPECT_EQ(other.multiply(*library.products, Dtype::bf16, Dtype::fp32)[0], 2.0F);
    }
    EXPECT_EQ(c.multiply(*library.products, Dtype::bf16, Dtype::bf16), first);
    EXPECT_EQ(c.multiply(*Library(1, route).products, Dtype::bf16, Dtype::bf16), first);
  }
}

TEST(LibraryProducts, WithKZeroWriteZerosAndNothingElse) {
  const Library library(1);
  Case c{5, 7, 0};
  c.gap = 2;
  EXPECT_EQ(c.multiply(*library.products), c.chains());
  Case no_gap{5, 7, 0};
  EXPECT_EQ(no_gap.multiply(*library.products, Dtype::bf16, Dtype::bf16), no_gap.chains());
}

TEST(LibraryProducts, TakeTheSameWorkspaceWhateverTheRouteAndThreads) {
  for (const Bf16Route route : {Bf16Route::best, Bf16Route::through_fp32}) {
    for (int threads = 1; threads <= 2; ++threads) {
      EXPECT_EQ(make_library_products(threads, route)->workspace_elements(), 786432);
    }
  }
}

TEST(LibraryProducts, RefuseToGoThroughFp32WithoutTheirWorkspaceAndOperandsOfTwoTypes) {
  const std::unique_ptr<Products> products = make_library_products(1, Bf16Route::through_fp32);
  float x = 1;
  Bf16 half{0x3F80};
  const Matrix wide{{&x, 1}, 1}, narrow{{&half, 1, Dtype::bf16}, 1};
  EXPECT_THROW(products->set_workspace({&x, 1}), ResourceFailure);
  EXPECT_THROW(products->multiply({&x, 1}, 1, narrow, narrow, 1, 1, 1), ResourceFailure);
  EXPECT_THROW(products->multiply({&x, 1}, 1, wide, narrow, 1, 1, 1), std::logic_error);
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
  const std::string text = make_library_products(1)->description();
  EXPECT_EQ(make_library_products(1, Bf16Route::through_fp32)->bf16_description(), text + ", bf16 through fp32");
  const std::string best = make_library_products(1)->bf16_description();
  EXPECT_TRUE(best == text + ", bf16 through fp32" || best == text + ", bf16 by AVX512-BF16" ||
              best == text + ", bf16 by AMX")
      << best;
  EXPECT_THROW(make_library_products(0), UnusableInput);
}

#else

TEST(LibraryProducts, AreRefusedByABuildWithoutOneDnn) { EXPECT_THROW(make_library_products(1), UnusableInput); }

#endif

}  // namespace
}  // namespace zero
