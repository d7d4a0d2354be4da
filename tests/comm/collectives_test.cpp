// The collectives in every world from 1 to 8 ranks, over both transports.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "tests/comm/comm_data.h"
#include "tests/support/mpi_main.h"

namespace zero::testing {
namespace {

struct Setting {
  CollectiveKind kind = CollectiveKind::canonical;
  TransportKind transport = TransportKind::shared;
  CommLimits limits;
};

const CommLimits kTiny = {4096, 1000};  // blocks of some hundred bytes; MPI counts of at most 1000

/// Every transport with ordinary and with tiny limits.
std::vector<Setting> settings(CollectiveKind kind) {
  std::vector<Setting> all;
  for (const auto transport : {TransportKind::shared, TransportKind::messages}) {
    for (const auto& limits : {CommLimits{}, kTiny}) all.push_back({kind, transport, limits});
  }
  return all;
}

/// What a case works with: this rank's group, a communicator for it, and the largest bucket.
struct Case {
  const Group& group;
  Communicator& communicator;
  Index slice;
  Index largest_bucket;
};

/// Runs `check` for every N that the ranks can make, every setting, and slices cut into several buckets or one.
void for_every_world(CollectiveKind kind, const std::function<void(const Case&)>& check) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  for (int n = 1; n <= world_size(); ++n) {
    const Group group(n);
    for (const Setting& setting : settings(kind)) {
      for (const auto& [slice, largest] : {std::pair<Index, Index>{32, 32}, {224, 100}, {1600, 1600}, {1600, 999}}) {
        SCOPED_TRACE("N " + std::to_string(group.size()) + ", slice " + std::to_string(slice) + ", bucket " +
                     std::to_string(largest) + ", transport " + std::to_string(static_cast<int>(setting.transport)) +
                     ", staging " + std::to_string(setting.limits.staging_bytes));
        const auto communicator = make_communicator(group.comm(), setting.kind, setting.transport, *device, kTimeout,
                                                    slice, largest, setting.limits);
        check({group, *communicator, slice, largest});
      }
    }
  }
}

/// Reduce-scatters rank's `unit` bucket by bucket, checking that the sink sees consecutive parts.
std::vector<float> reduce_scatter(const Case& c, const std::vector<float>& unit) {
  std::vector<float> sums;
  for (const Bucket bucket : buckets(c.slice, c.largest_bucket)) {
    c.communicator.reduce_scatter(view(unit), bucket, Purpose::gradients, [&](Index begin, Array sum) {
      EXPECT_EQ(begin, static_cast<Index>(sums.size()));
      EXPECT_LE(begin + sum.size, bucket.begin + bucket.size);
      const auto* first = static_cast<const float*>(sum.data);
      sums.insert(sums.end(), first, first + sum.size);
    });
    EXPECT_EQ(static_cast<Index>(sums.size()), bucket.begin + bucket.size);
  }
  return sums;
}

/// What this rank should get: `sum` of the ranks' elements of each index of its slice.
std::vector<float> expected(const Case& c, Element element, const std::function<float(std::span<const float>)>& sum) {
  std::vector<float> sums;
  std::vector<float> terms(static_cast<std::size_t>(c.group.size()));
  for (Index i = 0; i < c.slice; ++i) {
    for (int r = 0; r < c.group.size(); ++r) {
      terms[static_cast<std::size_t>(r)] = element(r, c.group.rank() * c.slice + i);
    }
    sums.push_back(sum(terms));
  }
  return sums;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  Index different = 0;
  for (std::size_t i = 0; i < got.size(); ++i) different += bits_of(got[i]) == bits_of(want[i]) ? 0 : 1;
  EXPECT_EQ(different, 0);
}

void expect_sent(const Case& c, Purpose purpose, const std::string& collective) {
  const Traffic& traffic = c.communicator.traffic(purpose);
  const Index once = (c.group.size() - 1) * c.slice * 4;
  EXPECT_EQ(traffic.sent, c.communicator.counts_bytes() ? once : 0);
  EXPECT_EQ(traffic.calls, static_cast<Index>(buckets(c.slice, c.largest_bucket).size()));
  EXPECT_EQ(traffic.collective, collective);
}

void expect_gathers(const Case& c) {
  const Index size = c.slice * c.group.size();
  std::vector<float> whole;
  for (int r = 0; r < c.group.size(); ++r) {
    for (Index i = 0; i < c.slice; ++i) whole.push_back(rough(r, i));
  }
  const std::vector<float> slice = unit_of(c.group.rank(), c.slice, rough);
  for (const bool from_slice : {false, true}) {
    std::vector<float> unit(static_cast<std::size_t>(size), -1.0F);
    if (!from_slice) std::copy(slice.begin(), slice.end(), unit.begin() + c.group.rank() * c.slice);
    c.communicator.clear_traffic();
    for (const Bucket bucket : buckets(c.slice, c.largest_bucket)) {
      const std::vector<float> before = unit;
      if (from_slice) {
        c.communicator.all_gather(view(unit), view(slice), bucket, Purpose::parameters).wait();
      } else {
        c.communicator.all_gather(view(unit), bucket, Purpose::parameters).wait();
      }
      for (Index i = 0; i < size; ++i) {  // other columns stay as they are
        const Index column = i % c.slice;
        if (column >= bucket.begin && column < bucket.begin + bucket.size) continue;
        ASSERT_EQ(unit[static_cast<std::size_t>(i)], before[static_cast<std::size_t>(i)]);
      }
    }
    expect_same_bits(unit, whole);
    expect_sent(c, Purpose::parameters, "all_gather");
  }
}

TEST(Canonical, ReduceScatterGivesTheTreeOrderBitForBit) {
  for_every_world(CollectiveKind::canonical, [](const Case& c) {
    const auto unit = unit_of(c.group.rank(), c.slice * c.group.size(), rough);
    expect_same_bits(reduce_scatter(c, unit), expected(c, rough, tree));
    expect_sent(c, Purpose::gradients, "reduce_scatter");
  });
}

TEST(Ring, ReduceScatterGivesTheRingOrderBitForBit) {
  for_every_world(CollectiveKind::ring, [](const Case& c) {
    const auto unit = unit_of(c.group.rank(), c.slice * c.group.size(), rough);
    const auto ring = [&](std::span<const float> terms) {
      const auto n = terms.size();
      const auto first = static_cast<std::size_t>(c.group.rank() + 1) % n;
      float sum = terms[first];
      for (std::size_t step = 1; step < n; ++step) sum += terms[(first + step) % n];
      return sum;
    };
    expect_same_bits(reduce_scatter(c, unit), expected(c, rough, ring));
    expect_sent(c, Purpose::gradients, "reduce_scatter");
  });
}

TEST(Ring, AndNativeGiveTheExactSumOfSmallIntegers) {
  for (const auto kind : {CollectiveKind::ring, CollectiveKind::native}) {
    for_every_world(kind, [](const Case& c) {
      const auto unit = unit_of(c.group.rank(), c.slice * c.group.size(), smooth);
      expect_same_bits(reduce_scatter(c, unit), expected(c, smooth, tree));
      expect_sent(c, Purpose::gradients, "reduce_scatter");
    });
  }
}

TEST(Ring, AndNativeAgreeWithTheTreeUpToRounding) {
  for (const auto kind : {CollectiveKind::ring, CollectiveKind::native}) {
    for_every_world(kind, [](const Case& c) {
      const auto unit = unit_of(c.group.rank(), c.slice * c.group.size(), rough);
      const auto magnitude = expected(c, rough, [](std::span<const float> terms) {
        float sum = 0;
        for (const float term : terms) sum += std::abs(term);
        return sum;
      });
      const auto got = reduce_scatter(c, unit);
      const auto want = expected(c, rough, tree);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 8 * 0x1p-23F * magnitude[i]);
    });
  }
}

TEST(AllGather, PutsEveryRanksBucketInPlaceAndTouchesNothingElse) {
  for (const auto kind : {CollectiveKind::canonical, CollectiveKind::ring, CollectiveKind::native}) {
    for_every_world(kind, expect_gathers);
  }
}

TEST(Collectives, OfSeveralMegabytesGiveTheSameBitsOverBothTransports) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  for (const int n : {2, 3, 8}) {
    const Group group(n);
    const Index slice = 32 * (40000 / group.size());
    for (const auto transport : {TransportKind::shared, TransportKind::messages}) {
      SCOPED_TRACE("N " + std::to_string(group.size()));
      const auto communicator =
          make_communicator(group.comm(), CollectiveKind::canonical, transport, *device, kTimeout, slice, slice);
      const Case c = {group, *communicator, slice, slice};
      auto unit = unit_of(group.rank(), slice * group.size(), rough);
      const auto want = expected(c, rough, tree);
      const auto sums = reduce_scatter(c, unit);
      expect_same_bits(sums, want);
      communicator->all_gather(view(unit), view(sums), {0, slice}, Purpose::gradients).wait();
      const auto whole = communicator->traffic(Purpose::gradients);
      EXPECT_EQ(whole.collective, "reduce_scatter + all_gather");
      EXPECT_EQ(whole.sent, 2 * (group.size() - 1) * slice * 4);
      // The neighbour's slice, computed here.
      const int neighbour = (group.rank() + 1) % group.size();
      std::vector<float> terms(static_cast<std::size_t>(group.size()));
      for (Index i = 0; i < slice; i += 97) {
        const Index at = neighbour * slice + i;
        for (int r = 0; r < group.size(); ++r) terms[static_cast<std::size_t>(r)] = rough(r, at);
        ASSERT_EQ(bits_of(unit[static_cast<std::size_t>(at)]), bits_of(tree(terms)));
      }
    }
  }
}

TEST(ReduceScatter, LetsTheSinkOverwriteTheRanksOwnSlice) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  for (const auto kind : {CollectiveKind::canonical, CollectiveKind::ring, CollectiveKind::native}) {
    for (int n = 1; n <= world_size(); ++n) {
      const Group group(n);
      const auto communicator =
          make_communicator(group.comm(), kind, TransportKind::automatic, *device, kTimeout, 640, 300, kTiny);
      const Case c = {group, *communicator, 640, 300};
      auto unit = unit_of(group.rank(), 640 * group.size(), smooth);
      for (const Bucket bucket : buckets(640, 300)) {
        communicator->reduce_scatter(view(unit), bucket, Purpose::gradients, [&](Index begin, Array sum) {
          const std::vector<float> values(static_cast<const float*>(sum.data),
                                          static_cast<const float*>(sum.data) + sum.size);
          std::copy(values.begin(), values.end(), unit.begin() + group.rank() * 640 + begin);
        });
      }
      const std::vector<float> own(unit.begin() + group.rank() * 640, unit.begin() + (group.rank() + 1) * 640);
      expect_same_bits(own, expected(c, smooth, tree));
    }
  }
}

TEST(GatherBytes, ConcatenatesInRankOrderAndCountsWhatLeaves) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  for (int n = 1; n <= world_size(); ++n) {
    const Group group(n);
    for (const auto transport : {TransportKind::shared, TransportKind::messages}) {
      const auto communicator =
          make_communicator(group.comm(), CollectiveKind::canonical, transport, *device, kTimeout, 32, 32, kTiny);
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{10001}}) {
        communicator->clear_traffic();
        const std::vector<std::byte> mine(size, static_cast<std::byte>(group.rank() + 1));
        const auto all = communicator->gather_bytes(mine, Purpose::scalars, "a test");
        ASSERT_EQ(all.size(), size * static_cast<std::size_t>(group.size()));
        for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(static_cast<std::size_t>(all[i]), i / size + 1);
        EXPECT_EQ(communicator->traffic(Purpose::scalars).sent, (group.size() - 1) * static_cast<Index>(size));
        EXPECT_EQ(communicator->traffic(Purpose::scalars).calls, 1);
        EXPECT_EQ(communicator->traffic(Purpose::control).calls, 0);
      }
      const auto ranks = communicator->gather(group.rank(), Purpose::control, "ranks");
      for (int r = 0; r < group.size(); ++r) EXPECT_EQ(ranks[static_cast<std::size_t>(r)], r);
      communicator->barrier();
    }
  }
}

TEST(Seconds, LeaveControlOut) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  const auto communicator =
      make_communicator(MPI_COMM_WORLD, CollectiveKind::canonical, TransportKind::automatic, *device, kTimeout, 32, 32);
  communicator->gather(1, Purpose::control, "a test");
  EXPECT_EQ(communicator->seconds(), 0);
  communicator->gather(1, Purpose::scalars, "a test");
  EXPECT_GT(communicator->seconds(), 0);
  communicator->clear_traffic();
  EXPECT_EQ(communicator->seconds(), 0);
}

TEST(Buckets, HoldTheSameBytesOverEitherTransportAndNothingWithOneRank) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  const auto held = [&] { return device->ledger().current(Tier::device, Category::buckets); };
  for (int n = 1; n <= world_size(); ++n) {
    const Group group(n);
    for (const auto transport : {TransportKind::shared, TransportKind::messages}) {
      const auto held_by = [&](CollectiveKind kind, Index slice, Index bucket) {
        const auto communicator = make_communicator(group.comm(), kind, transport, *device, kTimeout, slice, bucket);
        return held();
      };
      const Index n64 = group.size();
      const bool alone = group.size() == 1;
      EXPECT_EQ(held_by(CollectiveKind::canonical, 640, 320), alone ? 0 : kStagingBytes + kSumBytes);
      EXPECT_EQ(held_by(CollectiveKind::ring, 640, 320), alone ? 0 : kStagingBytes + kSumBytes);
      EXPECT_EQ(held_by(CollectiveKind::native, 640, 640), alone ? 0 : kStagingBytes + 4 * 640);
      EXPECT_EQ(held_by(CollectiveKind::native, 640, 320), alone ? 0 : kStagingBytes + 4 * 320 * (1 + n64));
      EXPECT_EQ(held(), 0);
    }
  }
}

TEST(BucketCuts, AreWholeFirstAndCoverTheSliceOnce) {
  EXPECT_TRUE(buckets(0, 5).empty());
  ASSERT_EQ(buckets(64, 64).size(), 1U);
  ASSERT_EQ(buckets(64, 1000).size(), 1U);
  const auto cut = buckets(64, 30);
  ASSERT_EQ(cut.size(), 3U);
  EXPECT_EQ(cut[1].begin, 30);
  EXPECT_EQ(cut[2].begin, 60);
  EXPECT_EQ(cut[2].size, 4);
}

}  // namespace
}  // namespace zero::testing
