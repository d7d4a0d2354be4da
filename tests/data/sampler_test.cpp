#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/data/batches.h"
#include "tests/support/scratch.h"

namespace zero {
namespace {

constexpr Index kContext = 5;

/// Text in which the sequence that starts at 5 i starts with the letter i.
std::string numbered(Index sequences, Index tail) {
  std::string text;
  for (Index i = 0; i < sequences; ++i) text += static_cast<char>(i) + std::string("....");
  return text + std::string(static_cast<std::size_t>(tail), '.');
}

class SamplerTest : public ::testing::Test {
 protected:
  testing::Scratch scratch_;
};

TEST_F(SamplerTest, VisitsEverySequenceOncePerEpochInANewOrder) {
  constexpr Index kSequences = 97;
  const TokenFile file(scratch_.write("text", numbered(kSequences, 1)), kContext, 256);
  const Sampler sampler(file, kContext, 7);
  ASSERT_EQ(sampler.sequences(), kSequences);
  std::vector<std::vector<Index>> orders;
  for (Index epoch = 0; epoch < 4; ++epoch) {
    std::vector<Index> order;
    for (Index i = 0; i < kSequences; ++i) order.push_back(sampler.position(epoch * kSequences + i));
    std::vector<Index> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (Index i = 0; i < kSequences; ++i) ASSERT_EQ(sorted[static_cast<std::size_t>(i)], i * kContext);
    for (const std::vector<Index>& earlier : orders) EXPECT_NE(order, earlier);
    EXPECT_NE(order, sorted);
    orders.push_back(order);
  }
}

TEST_F(SamplerTest, LeavesOutTheTailThatDoesNotFillASequenceAndItsTarget) {
  for (const Index tail : {0, 1, 4}) {
    const TokenFile file(scratch_.write("text", numbered(10, tail)), kContext, 256);
    EXPECT_EQ(Sampler(file, kContext, 1).sequences(), tail == 0 ? 9 : 10);
  }
}

TEST_F(SamplerTest, TargetsAreTheNextTokens) {
  const TokenFile file(scratch_.write("text", "abcdefghijk"), kContext, 256);
  const Sampler sampler(file, kContext, 1);
  ASSERT_EQ(sampler.sequences(), 2);
  std::vector<std::int32_t> tokens(3 * kContext), targets(3 * kContext);
  sampler.load(0, tokens, targets);
  for (Index row = 0; row < 3; ++row) {
    for (Index i = 0; i < kContext; ++i) {
      const auto at = static_cast<std::size_t>(row * kContext + i);
      EXPECT_EQ(tokens[at], 'a' + sampler.position(row) + i);
      EXPECT_EQ(targets[at], tokens[at] + 1);
    }
  }
}

/// Which sequences each of N ranks sees in the steps of `samples` samples, leaf m * N + r of a step being rank r's.
std::vector<std::vector<Index>> by_rank(const Sampler& sampler, Index N, Index micro_batch, Index samples) {
  std::vector<std::vector<Index>> seen(static_cast<std::size_t>(N));
  for (Index leaf = 0; leaf * micro_batch < samples; ++leaf) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(micro_batch * kContext)), targets(tokens.size());
    sampler.load(leaf * micro_batch, tokens, targets);
    for (Index row = 0; row < micro_batch; ++row) {
      seen[static_cast<std::size_t>(leaf % N)].push_back(tokens[static_cast<std::size_t>(row * kContext)]);
    }
  }
  return seen;
}

TEST_F(SamplerTest, RanksSeeDisjointSequencesAndTogetherTheSameForEveryWorld) {
  constexpr Index kSequences = 120;
  const TokenFile file(scratch_.write("text", numbered(kSequences, 1)), kContext, 256);
  const Sampler sampler(file, kContext, 3);
  for (const Index N : {1, 2, 3, 5}) {
    std::multiset<Index> all;
    for (const std::vector<Index>& rank : by_rank(sampler, N, 2, kSequences)) {
      EXPECT_EQ(static_cast<Index>(rank.size()), kSequences / N) << "every rank makes the same number of steps";
      all.insert(rank.begin(), rank.end());
    }
    EXPECT_EQ(static_cast<Index>(all.size()), kSequences) << N;
    for (Index i = 0; i < kSequences; ++i) EXPECT_EQ(all.count(i), 1U) << "N = " << N << ", sequence " << i;
  }
}

// 10 sequences, 3 ranks, micro-batch 2: an epoch ends in the middle of a step.
TEST_F(SamplerTest, EpochsEndForAllRanksTogetherInTheMiddleOfAStep) {
  const TokenFile file(scratch_.write("text", numbered(10, 1)), kContext, 256);
  const Sampler sampler(file, kContext, 3);
  std::vector<Index> order;
  for (Index leaf = 0; leaf < 15; ++leaf) {
    std::vector<std::int32_t> tokens(2 * kContext), targets(2 * kContext);
    sampler.load(leaf * 2, tokens, targets);
    order.push_back(tokens[0]);
    order.push_back(tokens[kContext]);
  }
  for (Index epoch = 0; epoch < 3; ++epoch) {
    const auto begin = order.begin() + epoch * 10;
    EXPECT_EQ(std::set<Index>(begin, begin + 10).size(), 10U) << "epoch " << epoch;
  }
}

TEST_F(SamplerTest, OrderIsKeyedByTheSeedAlone) {
  const TokenFile file(scratch_.write("text", numbered(100, 1)), kContext, 256);
  const Sampler one(file, kContext, 1), again(file, kContext, 1), two(file, kContext, 2);
  bool differs = false;
  for (Index sample = 0; sample < 300; ++sample) {
    EXPECT_EQ(one.position(sample), again.position(sample));
    differs = differs || one.position(sample) != two.position(sample);
  }
  EXPECT_TRUE(differs);
}

TEST_F(SamplerTest, OneSequenceIsSeenAgainAndAgain) {
  const TokenFile file(scratch_.write("text", "abcdef"), kContext, 256);
  const Sampler sampler(file, kContext, 1);
  for (Index sample = 0; sample < 5; ++sample) EXPECT_EQ(sampler.position(sample), 0);
}

}  // namespace
}  // namespace zero
