// The formulas against cases worked by hand, and against what they restate of the code: layouts, buffers, accumulators.
// Each stage's own runs are compared with its formula to the byte in tests/exactness.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "common/base/order_free_sum.h"
#include "common/comm/communicator.h"
#include "common/device/device.h"
#include "common/formula/formula.h"
#include "common/model/gpt2.h"
#include "stage3_params/formula.h"
#include "tools/plan_report.h"
#include "tools/stages.h"
#include "tools/surprises.h"

namespace zero {
namespace {

using formula::Setting;

Setting small(Index world, Index micro_steps = 1) {
  Setting s;
  s.layers = 2;
  s.heads = 1;
  s.width = 11;
  s.context = 20;
  s.vocab = 61;
  s.world = world;
  s.micro_steps = micro_steps;
  return s;
}

formula::Formula of(const char* label, const Setting& setting) {
  return tools::stage_of_label(label)->formula(setting);
}

TEST(Shapes, TheSmallModelHas4103ParametersPaddedAsWorkedByHand) {
  EXPECT_EQ(formula::parameters(small(1)), 4103);
  EXPECT_EQ(formula::padded_units(small(1)), (std::vector<Index>{960, 1856, 1856}));
  EXPECT_EQ(formula::padded_units(small(3)), (std::vector<Index>{960, 1920, 1920}));
  EXPECT_EQ(formula::padded_units(small(7)), (std::vector<Index>{1120, 2016, 2016}));
  Setting wrapped = small(3);
  wrapped.wrap = 2;
  EXPECT_EQ(formula::padded_units(wrapped), (std::vector<Index>{960, 3744}));
}

TEST(Shapes, UnitsAreThoseOfTheModelForEveryWorldAndWrap) {
  for (const Index world : {1, 2, 3, 5, 7, 8}) {
    for (const Index wrap : {1, 2, 3, 9}) {
      for (const Index layers : {0, 1, 2, 5}) {
        Setting s = small(world);
        s.wrap = wrap;
        s.layers = layers;
        std::vector<Index> sizes;
        for (const FlatUnit& unit : model_units({s.layers, s.heads, s.width, s.context, s.vocab}, wrap, world)) {
          sizes.push_back(unit.size());
        }
        EXPECT_EQ(formula::padded_units(s), sizes) << "world " << world << " wrap " << wrap << " layers " << layers;
      }
    }
  }
}

TEST(Memory, ActivationsAndWorkspaceAreWhatTheModelAllocates) {
  for (const Index micro_batch : {1, 3}) {
    for (const ProductKind products : {ProductKind::canonical, ProductKind::library}) {
      for (const int threads : {1, 2}) {
        Setting s = small(1);
        s.micro_batch = micro_batch;
        s.threads = threads;
        s.library_products = products == ProductKind::library;
        std::unique_ptr<Device> device;
        try {
          device = make_cpu_device(products, threads);
        } catch (const std::exception&) {
          ASSERT_TRUE(s.library_products) << "only the library may be missing from a build";
          continue;
        }
        const std::vector<FlatUnit> units = model_units({s.layers, s.heads, s.width, s.context, s.vocab}, 1, 1);
        const Gpt2 model({s.layers, s.heads, s.width, s.context, s.vocab}, micro_batch, units, {}, *device);
        const auto memory = formula::common(s).memory;
        EXPECT_EQ(memory.at("activations"), device->ledger().peak(Tier::device, Category::activations));
        EXPECT_EQ(memory.at("workspace"), device->ledger().peak(Tier::device, Category::workspace));
      }
    }
  }
}

TEST(Memory, BucketsAreTheTransportsStagingAndTheCollectivesBlocks) {
  EXPECT_EQ(formula::bucket_memory(small(1)), 0);
  EXPECT_EQ(formula::bucket_memory(small(2)), kStagingBytes + kSumBytes);
  Setting native = small(3);
  native.native = true;
  EXPECT_EQ(formula::bucket_memory(native), kStagingBytes + 4 * 640);  // the largest slice, in one piece
  native.bucket = 3 * 4 * 100;
  EXPECT_EQ(formula::bucket_memory(native), kStagingBytes + 4 * 100 + 3 * 4 * 100);
}

TEST(Memory, ModelStatesNeverGrowFromStageToStageAndShrinkAsThePaperSays) {
  for (const bool bf16 : {false, true}) {
    for (const Index world : {1, 2, 3, 8}) {
      Setting s = small(world);
      s.bf16 = bf16;
      const Index P = formula::padded_parameters(s);
      EXPECT_EQ(formula::model_states(of("0", s)), 16 * P);
      EXPECT_EQ(formula::model_states(of("1", s)), bf16 ? 4 * P + 12 * P / world : 8 * P + 8 * P / world);
      EXPECT_EQ(formula::model_states(of("2", s)), bf16 ? 2 * P + 14 * P / world : 4 * P + 12 * P / world);
      EXPECT_EQ(formula::model_states(of("3", s)), 16 * P / world);
      for (const auto& [more, less] : {std::pair{"0", "1"}, {"1", "2"}, {"2", "3"}}) {
        EXPECT_GE(formula::model_states(of(more, s)), formula::model_states(of(less, s)));
      }
    }
  }
}

TEST(Memory, GradientsInFlightAreTheLargestUnit) {
  EXPECT_EQ(of("2", small(3)).memory.at("gradient_in_flight"), 4 * 1920);
  Setting nothing = small(3);
  nothing.layers = 0;
  EXPECT_EQ(of("3", nothing).memory.at("gradient_in_flight"), 4 * 960);
  EXPECT_FALSE(of("1", small(3)).memory.contains("gradient_in_flight"));
}

TEST(Memory, PartialSumsAreKeptOnlyWhereSomethingIsAccumulated) {
  EXPECT_FALSE(of("1", small(3)).memory.contains("partial_sums"));
  EXPECT_EQ(of("1", small(3, 4)).memory.at("partial_sums"), 2 * 4 * 1600);
  EXPECT_EQ(of("baseline", small(5, 3)).memory.at("partial_sums"), (2 + 1) * 4 * 4672);
  EXPECT_FALSE(of("baseline", small(1)).memory.contains("partial_sums"));
  Setting local = small(3, 4);
  local.local_first = true;
  EXPECT_EQ(of("0", local).memory.at("partial_sums"), 4 * 4800);
}

TEST(Traffic, TheNormAccumulatorHasTheSizeThatRanksSend) {
  EXPECT_EQ(formula::kNormAccumulatorBytes, static_cast<Index>(sizeof(OrderFreeSum)));
}

TEST(Traffic, ScalarsAreLossesAndWhereSlicesAreSummedTheNorm) {
  EXPECT_EQ(of("0", small(3, 4)).communication.at("scalars").bytes, 2 * 8 * 4);
  EXPECT_EQ(of("1", small(3, 4)).communication.at("scalars").bytes, 2 * (8 * 4 + 184));
  EXPECT_TRUE(of("baseline", small(3)).communication.empty());
}

TEST(Traffic, BucketsChangeTheNumberOfCallsAndNeverTheBytes) {
  const formula::Formula whole = of("3", small(3));
  EXPECT_EQ(whole.communication.at("gradients").calls, 3);
  EXPECT_EQ(whole.communication.at("parameters").calls, 6);
  for (const Index bucket : {1, 1200, 7680, 1 << 20}) {
    Setting s = small(3);
    s.bucket = bucket;
    const formula::Formula cut = of("3", s);
    EXPECT_EQ(cut.communication.at("parameters").bytes, whole.communication.at("parameters").bytes);
    EXPECT_EQ(formula::bucket_columns(s, 640), bucket == 1 ? 1 : std::min<Index>(640, bucket / 12));
  }
  Setting hundred = small(3);
  hundred.bucket = 1200;  // 100 columns of slices of 320, 640 and 640
  EXPECT_EQ(of("3", hundred).communication.at("gradients").calls, 4 + 7 + 7);
}

TEST(Gathers, FollowTheUsesOfAMicroStep) {
  // Uses with three units of blocks: E 1 2 3 E 3 2 1.
  const auto check = [](Index prefetch, bool reshard, std::vector<Index> times, Index peak) {
    const formula::Gathers got = formula::gathers({10, 100, 200, 300}, prefetch, reshard);
    EXPECT_EQ(got.times, times) << "prefetch " << prefetch;
    EXPECT_EQ(got.peak, peak) << "prefetch " << prefetch;
  };
  check(0, true, {2, 2, 2, 2}, 300);
  check(1, true, {2, 2, 2, 2}, 500);
  check(2, true, {2, 2, 2, 1}, 600);
  check(3, true, {2, 2, 2, 1}, 610);
  check(4, true, {1, 2, 1, 1}, 610);
  check(6, true, {1, 1, 1, 1}, 610);
  check(std::numeric_limits<Index>::max(), true, {1, 1, 1, 1}, 610);
  check(0, false, {1, 1, 1, 1}, 610);
}

TEST(Gathers, EqualAPlainSimulationForEveryDepth) {
  for (std::size_t count = 1; count <= 6; ++count) {
    std::vector<Index> sizes(count);
    for (std::size_t i = 0; i < count; ++i) sizes[i] = static_cast<Index>(7 * i * i + 3);
    std::vector<std::size_t> uses(count);
    std::iota(uses.begin(), uses.end(), 0);
    uses.push_back(0);
    for (std::size_t unit = count - 1; unit > 0; --unit) uses.push_back(unit);
    for (std::size_t prefetch = 0; prefetch < 14; ++prefetch) {
      for (const bool reshard : {true, false}) {
        std::vector<Index> times(count, 0);
        std::set<std::size_t> held;
        Index peak = 0;
        for (std::size_t now = 0; now < uses.size(); ++now) {
          const std::size_t end = std::min(now + 1 + prefetch, uses.size());
          for (std::size_t use = now; use < end; ++use) {
            if (held.insert(uses[use]).second) ++times[uses[use]];
          }
          Index sum = 0;
          for (const std::size_t unit : held) sum += sizes[unit];
          peak = std::max(peak, sum);
          const auto kept_until = uses.begin() + static_cast<std::ptrdiff_t>(reshard ? end : uses.size());
          if (std::find(uses.begin() + static_cast<std::ptrdiff_t>(now) + 1, kept_until, uses[now]) == kept_until)
            held.erase(uses[now]);
        }
        const auto got = formula::gathers(sizes, static_cast<Index>(prefetch), reshard);
        EXPECT_EQ(got.times, times);
        EXPECT_EQ(got.peak, peak);
      }
    }
  }
}

TEST(Plan, TheLargestModelThatFitsDoesAndOneLayerMoreDoesNot) {
  constexpr Index kMemory = 64 << 20;
  for (const tools::Stage& stage : tools::stages()) {
    Setting s = small(4);
    s.width = 64;
    s.layers = tools::largest_that_fits(stage, s, {.device = kMemory, .host = {}});
    ASSERT_GT(s.layers, 0);
    EXPECT_LE(formula::total_memory(stage.formula(s)), kMemory);
    ++s.layers;
    EXPECT_GT(formula::total_memory(stage.formula(s)), kMemory);
    EXPECT_EQ(tools::largest_that_fits(stage, s, {.device = 1000, .host = {}}), -1);
  }
}

TEST(Plan, RefusesToCountWhatLeaves64Bits) {
  EXPECT_TRUE(formula::countable(small(8)));
  Setting wide = small(2);
  wide.width = Index{1} << 40;
  EXPECT_FALSE(formula::countable(wide));
  Setting deep = small(2);
  deep.layers = Index{1} << 50;
  EXPECT_FALSE(formula::countable(deep));
  Setting many = small(2);
  many.micro_batch = Index{1} << 60;
  EXPECT_FALSE(formula::countable(many));
}

}  // namespace
}  // namespace zero
