#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include "common/base/error.h"
#include "common/device/products_factory.h"
#include "tests/products/case.h"

namespace zero {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Canonical products with the workspace they ask for, full of NaN.
struct Canonical {
  Canonical(int threads, CpuIsa isa) : text(std::string(name(isa)) + ", " + std::to_string(threads) + " threads") {
    products = make_canonical_products(threads, isa);
    workspace.assign(static_cast<std::size_t>(products->workspace_elements()), kNan);
    products->set_workspace({workspace.data(), products->workspace_elements()});
  }
  std::string text;
  std::vector<float> workspace;
  std::unique_ptr<Products> products;
};

std::vector<Canonical> all_available() {
  std::vector<Canonical> all;
  for (CpuIsa isa : {CpuIsa::generic, CpuIsa::avx2, CpuIsa::avx512}) {
    for (int threads = 1; threads <= 3 && available(isa); ++threads) all.emplace_back(threads, isa);
  }
  return all;
}

// Equal bits; any NaN equals any other.
void expect_equal(const std::vector<float>& got, const std::vector<float>& want, const std::string& text) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
        << text << ": element " << i << " is " << got[i] << " and should be " << want[i];
  }
}

void expect_chains(const Case& c, std::vector<Canonical>& all) {
  const std::vector<float> want = c.chains();
  for (Canonical& one : all) expect_equal(c.multiply(*one.products), want, one.text + ": " + c.text());
}

// Values of every sign over many binades, so that another order of additions gives other bits.
struct Wide {
  std::mt19937 bits;
  float operator()() {
    const float unit = static_cast<float>(bits() >> 8) * 0x1p-24F - 0.5F;
    return std::ldexp(unit, static_cast<int>(bits() % 12));
  }
};

TEST(CanonicalProducts, EveryOutputIsOneChainOfFmaInRisingKForAnyShapeTransposeStrideIsaAndThreads) {
  std::vector<Canonical> all = all_available();
  Wide draw{std::mt19937(1)};
  constexpr Index kSizes[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 47, 48, 49, 50, 64, 65, 97, 128, 131};
  for (int trial = 0; trial < 160; ++trial) {
    const auto size = [&] { return kSizes[draw.bits() % std::size(kSizes)]; };
    Case c{size(), size(), size()};
    c.a_transposed = trial % 2 == 1;
    c.b_transposed = trial / 2 % 2 == 1;
    c.gap = trial / 4 % 3 * 5;
    c.fill(draw);
    expect_chains(c, all);
  }
}

TEST(CanonicalProducts, AChainGoesOnUnbrokenFromOnePanelToTheNext) {
  std::vector<Canonical> all = all_available();
  Wide draw{std::mt19937(2)};
  for (int transposes = 0; transposes < 4; ++transposes) {
    for (Case c : {Case{37, 20, 1201}, Case{9, 801, 400}, Case{203, 50, 385}, Case{1, 1, 5000}}) {
      c.a_transposed = transposes % 2 == 1;
      c.b_transposed = transposes / 2 == 1;
      c.gap = 3;
      c.fill(draw);
      expect_chains(c, all);
    }
  }
}

TEST(CanonicalProducts, TiesSubnormalsAndCancellationRoundLikeOneFma) {
  std::vector<Canonical> all = all_available();
  std::mt19937 bits(3);
  // Few significant bits: many sums end halfway between two floats, many cancel.
  const auto few_bits = [&] {
    const float whole = static_cast<float>(static_cast<int>(bits() % 8191) - 4095);
    return std::ldexp(whole, static_cast<int>(bits() % 24) - 12);
  };
  const auto tiny = [&] { return std::ldexp(few_bits(), -80); };
  // Any bit pattern: every exponent, subnormals, infinities and NaNs.
  const auto any = [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(bits())); };
  for (int trial = 0; trial < 20; ++trial) {
    Case c{33, 50, trial < 10 ? 3 : 40};
    c.fill(few_bits);
    expect_chains(c, all);
    c.fill(tiny);
    expect_chains(c, all);
    c.k = trial % 4 + 1;
    c.fill(any);
    expect_chains(c, all);
  }
}

TEST(CanonicalProducts, ATermFarBelowHalfAStepDecidesATie) {
  std::vector<Canonical> all = all_available();
  std::mt19937 bits(8);
  // Products of 13-bit odd numbers have 25 or 26 bits: about half lie halfway between two floats. The sum that they
  // are added to is not zero, but beyond the reach of a double.
  Case c{33, 50, 2};
  c.fill([&] { return static_cast<float>(static_cast<int>(bits() % 8192) - 4096) * 2 + 1; });
  for (std::size_t i = 0; i < 33; ++i) c.a[2 * i] = i % 3 == 0 ? -0x1p-60F : 0x1p-60F;
  for (std::size_t j = 0; j < 50; ++j) c.b[j] = j % 2 == 0 ? -1.0F : 1.0F;
  expect_chains(c, all);
}

TEST(CanonicalProducts, ZerosInfinitiesAndNansGoThroughTheChain) {
  std::vector<Canonical> all = all_available();
  constexpr float kValues[] = {0.0F, -0.0F, 1.0F, -1.0F, kInf, -kInf, kNan, 3e38F, -3e38F, 1e-45F, -1e-45F, 0x1p-126F};
  std::mt19937 bits(4);
  for (std::size_t values : {std::size_t{2}, std::size_t{4}, std::size_t{6}, std::size(kValues)}) {
    for (Index k : {1, 2, 5}) {
      Case c{20, 51, k};
      c.fill([&] { return kValues[bits() % values]; });
      expect_chains(c, all);
    }
  }
  Case negative{1, 1, 1};  // the chain starts from +0: -0 + +0 is +0
  negative.a = {-0.0F};
  negative.b = {1.0F};
  EXPECT_FALSE(std::signbit(negative.multiply(*all[0].products)[0]));
}

// The chains of the widened operands, in fp32 or rounded once; what stands between the rows is kUntouched, as stored.
void expect_chains(const Case& c, std::vector<Canonical>& all, Dtype operands, Dtype outputs) {
  std::vector<float> want = c.chains();
  for (float& x : want) x = outputs == Dtype::bf16 ? to_float(from_float<Bf16>(x)) : x;
  for (Canonical& one : all) {
    expect_equal(c.multiply(*one.products, operands, outputs), want, one.text + ": " + c.text());
  }
}

constexpr std::pair<Dtype, Dtype> kWithBf16[] = {
    {Dtype::bf16, Dtype::bf16}, {Dtype::bf16, Dtype::fp32}, {Dtype::fp32, Dtype::bf16}};

TEST(CanonicalProducts, OfBf16AreTheChainsOfTheWidenedOperandsRoundedOnce) {
  std::vector<Canonical> all = all_available();
  Wide draw{std::mt19937(11)};
  constexpr Index kSizes[] = {1, 2, 5, 7, 8, 15, 16, 17, 31, 33, 47, 48, 49, 50, 64, 65, 97, 131};
  for (int trial = 0; trial < 96; ++trial) {
    const auto size = [&] { return kSizes[draw.bits() % std::size(kSizes)]; };
    Case c{size(), size(), size()};
    c.a_transposed = trial % 2 == 1;
    c.b_transposed = trial / 2 % 2 == 1;
    c.gap = trial / 4 % 3 * 5;
    c.fill(draw);
    c.round_operands();
    for (const auto& [operands, outputs] : kWithBf16) expect_chains(c, all, operands, outputs);
  }
}

TEST(CanonicalProducts, OfBf16RoundAChainOnlyWhenItsLastPanelIsDone) {
  std::vector<Canonical> all = all_available();
  Wide draw{std::mt19937(12)};
  for (int transposes = 0; transposes < 4; ++transposes) {
    // Several panels of k; more columns than a panel; more rows than the workspace has chains for, shared by threads
    // too.
    for (Case c : {Case{37, 20, 1201}, Case{9, 801, 400}, Case{1700, 20, 385}, Case{1, 1, 5000}}) {
      c.a_transposed = transposes % 2 == 1;
      c.b_transposed = transposes / 2 == 1;
      c.gap = 3;
      c.fill(draw);
      c.round_operands();
      for (const auto& [operands, outputs] : kWithBf16) expect_chains(c, all, operands, outputs);
    }
  }
}

TEST(CanonicalProducts, OfBf16KeepInfinitiesAndNans) {
  std::vector<Canonical> all = all_available();
  constexpr float kValues[] = {0.0F, -0.0F, 1.0F, -1.0F, kInf, -kInf, kNan, 0x1p127F, -0x1p127F, 0x1p-133F};
  std::mt19937 bits(13);
  for (std::size_t values : {std::size_t{4}, std::size_t{6}, std::size(kValues)}) {
    for (Index k : {1, 2, 5}) {
      Case c{20, 51, k};
      c.fill([&] { return kValues[bits() % values]; });
      for (const auto& [operands, outputs] : kWithBf16) expect_chains(c, all, operands, outputs);
    }
  }
}

TEST(CanonicalProducts, RefuseOperandsOfTwoTypes) {
  const Canonical one(1, CpuIsa::generic);
  float x = 1;
  Bf16 half{0x3F80};
  const Matrix wide{{&x, 1}, 1}, narrow{{&half, 1, Dtype::bf16}, 1};
  EXPECT_THROW(one.products->multiply({&x, 1}, 1, wide, narrow, 1, 1, 1), std::logic_error);
  EXPECT_THROW(one.products->multiply({&x, 1, Dtype::int32}, 1, wide, wide, 1, 1, 1), std::logic_error);
}

TEST(CanonicalProducts, WithKZeroWritesZerosAndNothingElse) {
  for (Canonical& one : all_available()) {
    Case c{5, 7, 0};
    c.gap = 2;
    expect_equal(c.multiply(*one.products), c.chains(), one.text);
    const Case dense{5, 7, 0};
    expect_equal(dense.multiply(*one.products, Dtype::bf16, Dtype::bf16), dense.chains(), one.text);
  }
}

TEST(CanonicalProducts, WithoutRowsOrColumnsTouchNothing) {
  for (Canonical& one : all_available()) {
    float out = kUntouched;
    const ConstArray none;
    one.products->multiply({&out, 1}, 1, {none, 4}, {none, 0}, 3, 0, 4);
    one.products->multiply({&out, 1}, 3, {none, 4}, {none, 3}, 0, 3, 4);
    EXPECT_EQ(out, kUntouched);
  }
}

TEST(CanonicalProducts, TakeAWorkspaceThatDependsOnTheThreadsOnly) {
  for (const Canonical& one : all_available()) {
    const int threads = one.text[one.text.find(',') + 2] - '0';
    EXPECT_EQ(one.products->workspace_elements(), 356352 * threads) << one.text;
  }
}

TEST(CanonicalProducts, RefuseToRunWithoutTheirWorkspace) {
  const std::unique_ptr<Products> products = make_canonical_products(1, CpuIsa::generic);
  float x = 1;
  EXPECT_THROW(products->set_workspace({&x, 1}), ResourceFailure);
  EXPECT_THROW(products->multiply({&x, 1}, 1, {{&x, 1}, 1}, {{&x, 1}, 1}, 1, 1, 1), ResourceFailure);
}

TEST(CanonicalProducts, RefuseLessThanOneThread) {
  EXPECT_THROW(make_canonical_products(0), UnusableInput);
  EXPECT_THROW(make_canonical_products(-1), UnusableInput);
}

}  // namespace
}  // namespace zero
