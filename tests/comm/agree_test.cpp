// agree(): all ranks go on together, or throw the same error together.

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "common/comm/process.h"
#include "tests/comm/comm_data.h"
#include "tests/support/mpi_main.h"

namespace zero::testing {
namespace {

using Mine = std::optional<Error>;
using Agree = std::function<void(const Mine& mine)>;

/// Runs `check` with agree() by MPI, and over communicators of both transports with blocks shorter than a sentence.
void for_every_way(const std::function<void(const Agree&)>& check) {
  check([](const Mine& mine) { agree(MPI_COMM_WORLD, mine); });
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  for (const auto transport : {TransportKind::shared, TransportKind::messages}) {
    const auto communicator = make_communicator(MPI_COMM_WORLD, CollectiveKind::canonical, transport, *device, kTimeout,
                                                32, 32, {1536, 1000});
    check([&](const Mine& mine) { agree(*communicator, mine); });
    EXPECT_EQ(communicator->seconds(), 0) << "agreement is not part of a step";
  }
}

void expect_error(const Agree& agree_by, const Mine& mine, ExitStatus status, const std::string& sentence) {
  try {
    agree_by(mine);
    FAIL() << "nothing was thrown on rank " << world_rank();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    EXPECT_EQ(error.what(), sentence);
  }
}

TEST(Agree, ReturnsWhenNoRankHasAnError) {
  for_every_way([](const Agree& agree_by) { EXPECT_NO_THROW(agree_by(std::nullopt)); });
}

TEST(Agree, ThrowsTheOneRanksErrorOnAllRanksWithItsRank) {
  const std::string sentence = "cannot read corpus.txt" + std::string(300, '!');
  for_every_way([&](const Agree& agree_by) {
    for (int failing = 0; failing < world_size(); ++failing) {
      const Mine mine = world_rank() == failing ? Mine(UnusableInput(sentence)) : Mine();
      expect_error(agree_by, mine, ExitStatus::unusable, "rank " + std::to_string(failing) + ": " + sentence);
    }
  });
}

TEST(Agree, SaysTheSentenceOfAllRanksWithoutARank) {
  for_every_way([](const Agree& agree_by) {
    expect_error(agree_by, ResultFailure("the loss is not finite"), ExitStatus::differs, "the loss is not finite");
  });
}

TEST(Agree, TakesTheLowestRankWhenSentencesDiffer) {
  for_every_way([](const Agree& agree_by) {
    const Mine mine = world_rank() == 0
                          ? Mine()
                          : Mine(ResourceFailure("disk " + std::string(static_cast<std::size_t>(world_rank()), 'x')));
    expect_error(agree_by, mine, ExitStatus::failed, "rank 1: disk x");
  });
}

TEST(Agree, MakesTheErrorsClassFromItsStatus) {
  for_every_way([](const Agree& agree_by) {
    EXPECT_THROW(agree_by(UnusableInput("a")), UnusableInput);
    EXPECT_THROW(agree_by(ResourceFailure("a")), ResourceFailure);
    EXPECT_THROW(agree_by(ResultFailure("a")), ResultFailure);
  });
}

}  // namespace
}  // namespace zero::testing
