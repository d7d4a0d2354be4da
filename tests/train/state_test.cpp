// Digests and --verify over several ranks, with a trainer that computes nothing.
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "common/comm/process.h"
#include "common/train/digests.h"
#include "common/train/verify.h"
#include "tests/support/mpi_main.h"
#include "tests/support/scratch.h"
#include "tests/train/fake_trainer.h"

namespace zero {
namespace {

using testing::behavior;
using testing::FakeTrainer;

class StateTest : public ::testing::Test {
 protected:
  StateTest()
      : ranks_{MPI_COMM_WORLD, testing::world_rank(), testing::world_size()},
        file_(scratch_.write("data.txt", std::string(5000, '#')), 20, 61),
        sampler_(file_, 20, 1),
        device_(make_cpu_device(ProductKind::canonical, 1)),
        groups_(MPI_COMM_WORLD, {}, {}, *device_) {
    behavior = {};
    options_.config = {2, 1, 11, 20, 61};
    options_.micro_batch = 1;
    options_.steps = 4;
    options_.shard_group = ranks_.size;
  }

  std::unique_ptr<FakeTrainer> trainer() {
    return std::make_unique<FakeTrainer>(make_context(options_, ranks_.size, *device_, groups_, sampler_, timers_));
  }

  StateDigests digests() { return digest_state(*trainer(), *device_, groups_.world(), groups_.group()); }

  /// Takes `steps` steps beside the baseline; the sentence of the difference found, or "equal".
  std::string verify(Index steps, bool exact = true) {
    const std::unique_ptr<FakeTrainer> mine = trainer();
    Verifier verifier(ranks_, options_, ranks_.size, sampler_, *device_, exact);
    try {
      verifier.check(0, {}, *mine);
      for (Index t = 1; t <= steps; ++t) verifier.check(t, mine->train_step(t), *mine);
    } catch (const ResultFailure& error) {
      return error.what();
    } catch (const Error& error) {
      return error.status() == ExitStatus::differs ? error.what() : std::string("other: ") + error.what();
    }
    largest_ = verifier.largest_difference();
    return "equal";
  }

  /// The sentence with which digest_state() fails, on every rank the same.
  std::string digest_failure() {
    try {
      digests();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), ExitStatus::differs);
      return error.what();
    }
    return "";
  }

  Ranks ranks_;
  testing::Scratch scratch_;
  TokenFile file_;
  Sampler sampler_;
  std::unique_ptr<Device> device_;
  RankGroups groups_;
  Timers timers_;
  Options options_;
  double largest_ = -1;
};

TEST_F(StateTest, DigestsOfSlicesAreThoseOfTheWhole) {
  const StateDigests copied = digests();
  behavior.sharded = true;
  const StateDigests sharded = digests();
  EXPECT_EQ(copied, sharded);
  for (const Index wrap : {1, 2}) {
    options_.wrap = wrap;
    EXPECT_EQ(digests(), copied);
  }
}

TEST_F(StateTest, MasterIsTheParametersUnlessItIsShown) {
  const StateDigests plain = digests();
  EXPECT_EQ(plain[static_cast<std::size_t>(StateKind::master)], plain[static_cast<std::size_t>(StateKind::parameters)]);
  behavior.master = true;
  const StateDigests with_master = digests();
  EXPECT_NE(with_master[static_cast<std::size_t>(StateKind::master)],
            with_master[static_cast<std::size_t>(StateKind::parameters)]);
}

TEST_F(StateTest, ACopyThatDiffersOnOneRankIsNamed) {
  const std::unique_ptr<FakeTrainer> same = trainer();
  const int last = ranks_.size - 1;
  if (ranks_.rank == last) behavior.one_bit_off_at = 1;
  const std::unique_ptr<FakeTrainer> mine = trainer();
  mine->train_step(1);
  std::string said;
  try {
    digest_state(*mine, *device_, groups_.world(), groups_.group());
  } catch (const ResultFailure& error) {
    said = error.what();
  }
  if (ranks_.size > 1) {
    EXPECT_EQ(said,
              "the momentum of rank " + std::to_string(last) + " differ from those of rank 0, and should be a copy");
  }
}

TEST_F(StateTest, PaddingAndHiddenStateOfOneRankAreFoundOutOnAllRanks) {
  behavior.sharded = true;
  if (ranks_.rank == ranks_.size - 1) behavior.dirty_padding = true;
  EXPECT_NE(digest_failure().find("are not zero in the padding"), std::string::npos);
  behavior.dirty_padding = false;
  behavior.hides_a_unit = ranks_.rank == 0;
  EXPECT_NE(digest_failure().find("and the model has"), std::string::npos);
}

TEST_F(StateTest, VerifyIsSilentAboutEqualStatesCopiedOrSharded) {
  EXPECT_EQ(verify(3), "equal");
  behavior.sharded = true;
  EXPECT_EQ(verify(3), "equal");
  behavior.master = true;
  EXPECT_EQ(verify(2), "equal");
}

TEST_F(StateTest, VerifyNamesStepTensorElementRankAndValuesOnEveryRank) {
  behavior.one_bit_off_at = 2;
  behavior.sharded = true;
  const std::string said = verify(4);
  EXPECT_EQ(said.rfind("step 2: momentum of block 0 ", 0), 0U) << said;
  EXPECT_NE(said.find(", element 37, is "), std::string::npos) << said;
  EXPECT_NE(said.find(" in the baseline"), std::string::npos) << said;

  behavior.sharded = false;
  if (ranks_.rank != ranks_.size - 1) behavior.one_bit_off_at = 0;
  const std::string copy = verify(4);
  EXPECT_NE(copy.find(" on rank " + std::to_string(ranks_.size - 1)), std::string::npos) << copy;
}

TEST_F(StateTest, VerifyFindsStateThatIsNotShown) {
  behavior.hides_a_unit = true;
  behavior.sharded = true;
  EXPECT_NE(verify(1).find("and the baseline has"), std::string::npos);
}

TEST_F(StateTest, OrdersThatDifferAreMeasuredInsteadOfRefused) {
  behavior.one_bit_off_at = 2;
  behavior.sharded = true;
  EXPECT_EQ(verify(2, false), "equal");
  EXPECT_EQ(largest_, ranks_.rank == 0 ? 1 : 0);
}

}  // namespace
}  // namespace zero
