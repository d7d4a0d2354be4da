// A process that never starts MPI: everything works with one rank.

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "common/comm/process.h"
#include "tests/comm/comm_data.h"

namespace zero::testing {
namespace {

TEST(OneRank, NeedsNoMpiForAnyCollective) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  for (const MPI_Comm ranks : {MPI_COMM_SELF, static_cast<MPI_Comm>(MPI_COMM_NULL)}) {
    for (const auto kind : {CollectiveKind::canonical, CollectiveKind::ring, CollectiveKind::native}) {
      const auto communicator = make_communicator(ranks, kind, TransportKind::automatic, *device, kTimeout, 320, 100);
      EXPECT_EQ(communicator->size(), 1);
      auto unit = unit_of(0, 320, rough);
      const auto before = unit;
      std::vector<float> sums;
      for (const Bucket bucket : buckets(320, 100)) {
        communicator->reduce_scatter(view(unit), bucket, Purpose::gradients, [&](Index begin, Array sum) {
          EXPECT_EQ(begin, static_cast<Index>(sums.size()));
          const auto* first = static_cast<const float*>(sum.data);
          sums.insert(sums.end(), first, first + sum.size);
        });
        communicator->all_gather(view(unit), bucket, Purpose::parameters).wait();
      }
      EXPECT_EQ(sums, before);
      EXPECT_EQ(unit, before);
      std::vector<float> copy(320);
      communicator->all_gather(view(copy), view(unit), {0, 320}, Purpose::parameters).wait();
      EXPECT_EQ(copy, before);
      EXPECT_EQ(communicator->gather(7, Purpose::scalars, "a test"), std::vector<int>{7});
      communicator->barrier();
      EXPECT_EQ(communicator->traffic(Purpose::gradients).calls, 4);
      EXPECT_EQ(communicator->traffic(Purpose::gradients).sent, 0);
      EXPECT_EQ(communicator->traffic(Purpose::parameters).sent, 0);
      EXPECT_EQ(device->ledger().peak(Tier::device, Category::buckets), 0);
      EXPECT_EQ(communicator->description(), "canonical over self");
    }
  }
}

TEST(OneRank, AgreesWithItself) {
  EXPECT_NO_THROW(agree(MPI_COMM_SELF, std::nullopt));
  EXPECT_NO_THROW(agree(MPI_COMM_NULL, std::nullopt));
  try {
    agree(MPI_COMM_SELF, UnusableInput("--steps 0 is not at least 1; 20 would do"));
    FAIL();
  } catch (const UnusableInput& error) {
    EXPECT_STREQ(error.what(), "--steps 0 is not at least 1; 20 would do");
  }
}

TEST(AbortJob, EndsAProcessWithoutMpiWithTheStatus) {
  EXPECT_EXIT(abort_job(ExitStatus::failed), ::testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace zero::testing
