#include <gtest/gtest.h>

#include <vector>

#include "common/base/bytes.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/philox.h"
#include "common/base/random.h"

namespace zero {
namespace {

void expect_block(const PhiloxBlock& block, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  EXPECT_EQ(block.word[0], a);
  EXPECT_EQ(block.word[1], b);
  EXPECT_EQ(block.word[2], c);
  EXPECT_EQ(block.word[3], d);
}

// The known answers that come with the authors' Random123 library.
TEST(Philox, GivesTheKnownAnswers) {
  expect_block(philox4x32_10({{0, 0, 0, 0}}, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  expect_block(philox4x32_10({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes), 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
               0x6d5451fd);
  expect_block(philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0), 0xd16cfe09,
               0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(RandomBits, AreTheFirstTwoWordsOfTheBlock) {
  EXPECT_EQ(random_bits(0, 0, 0), 0xe169c58d6627e8d5U);
  EXPECT_EQ(random_bits(~0ULL, ~0ULL, ~0ULL), 0x41c83b0e408f276dU);
  EXPECT_EQ(random_bits(0x299f31d0a4093822U, 0x0370734413198a2eU, 0x85a308d3243f6a88U), 0x94fdccebd16cfe09U);
}

TEST(RandomPermutation, IsABijection) {
  for (const Index n : {1, 2, 3, 4, 5, 16, 17, 61, 64, 1000, 4097}) {
    for (const std::uint64_t stream : {0, 1}) {
      std::vector<int> hits(static_cast<std::size_t>(n), 0);
      for (Index i = 0; i < n; ++i) {
        const Index to = random_permutation(42, stream, i, n);
        ASSERT_GE(to, 0);
        ASSERT_LT(to, n);
        ++hits[static_cast<std::size_t>(to)];
      }
      EXPECT_EQ(hits, std::vector<int>(static_cast<std::size_t>(n), 1)) << "n = " << n;
    }
  }
}

TEST(RandomPermutation, DependsOnSeedAndStreamAndLeavesFewInPlace) {
  constexpr Index kSize = 1000;
  int fixed = 0, same_stream = 0, same_seed = 0;
  for (Index i = 0; i < kSize; ++i) {
    const Index to = random_permutation(1, 1, i, kSize);
    fixed += to == i ? 1 : 0;
    same_stream += to == random_permutation(2, 1, i, kSize) ? 1 : 0;
    same_seed += to == random_permutation(1, 2, i, kSize) ? 1 : 0;
  }
  // About one of a thousand is expected in each.
  EXPECT_LT(fixed, 10);
  EXPECT_LT(same_stream, 10);
  EXPECT_LT(same_seed, 10);
}

TEST(RandomPermutation, ReachesSizesBeyond32Bits) {
  constexpr Index kSize = Index{1} << 62;
  const Index to = random_permutation(1, 1, kSize - 1, kSize);
  EXPECT_GE(to, 0);
  EXPECT_LT(to, kSize);
}

TEST(Digest, CarriesIntoTheHighHalfAndPrintsItFirst) {
  Digest digest{.low = ~0ULL, .high = 1};
  digest.add({.low = 2, .high = 0x10});
  EXPECT_EQ(to_hex(digest), "00000000000000120000000000000001");
}

TEST(Bytes, AreFormattedInTheLargestUnit) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1), "1 byte");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(Index{512} << 20), "512.0 MiB");
  EXPECT_EQ(format_bytes(Index{1536} << 20), "1.5 GiB");
  EXPECT_EQ(format_bytes(Index{5} << 50), "5120.0 TiB");
}

TEST(Bytes, AreParsedExactly) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("1048576"), 1048576);
  EXPECT_EQ(parse_bytes("17B"), 17);
  EXPECT_EQ(parse_bytes("4KiB"), 4096);
  EXPECT_EQ(parse_bytes("512MiB"), Index{512} << 20);
  EXPECT_EQ(parse_bytes("1.5 GiB"), Index{1536} << 20);
  EXPECT_EQ(parse_bytes("2TiB"), Index{2} << 40);
  EXPECT_EQ(parse_bytes("3kB"), 3000);
  EXPECT_EQ(parse_bytes("3MB"), 3000000);
  EXPECT_EQ(parse_bytes("3.25GB"), 3250000000);
  EXPECT_EQ(parse_bytes("3TB"), 3000000000000);
  EXPECT_EQ(parse_bytes("9223372036854775807"), 9223372036854775807);
}

TEST(Bytes, RefusesEverythingElseNamingTheValue) {
  for (const char* text : {"",
                           " ",
                           "-1",
                           "-1MiB",
                           "+1",
                           "12abc",
                           "1 ",
                           " 1",
                           "nan",
                           "inf",
                           "1e9",
                           "0x10",
                           "MiB",
                           "1.MiB",
                           ".5MiB",
                           "0.5",
                           "1.0000001GB",
                           "512mib",
                           "1KB",
                           "512MiB ",
                           "9223372036854775808",
                           "8388608TiB",
                           "99999999999999999999999",
                           "1,000"}) {
    try {
      const Index bytes = parse_bytes(text);
      ADD_FAILURE() << "'" << text << "' was taken for " << bytes;
    } catch (const UnusableInput& error) {
      EXPECT_NE(std::string(error.what()).find("'" + std::string(text) + "'"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace zero
