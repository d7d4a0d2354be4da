// The one operation of a transport, and how it is chosen.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/comm/transport.h"
#include "tests/comm/comm_data.h"
#include "tests/support/mpi_main.h"

namespace zero::testing {
namespace {

std::byte value_of(int from, int to, int round, Index i) {
  const auto key = static_cast<std::uint64_t>(((from * 16 + to) * 256 + round) * 65536 + i);
  return static_cast<std::byte>(mix(key));
}

/// Sizes differ by pair and round, and some are empty.
Index size_of_block(int from, int to, int round, Index most) {
  const auto key = static_cast<std::uint64_t>(from * 31 + to * 7 + round);
  return mix(key) % 4 == 0 ? 0 : static_cast<Index>(mix(key) % static_cast<std::uint64_t>(most + 1));
}

std::vector<std::byte> block_of(int from, int to, int round, Index most) {
  std::vector<std::byte> block(static_cast<std::size_t>(size_of_block(from, to, round, most)));
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = value_of(from, to, round, static_cast<Index>(i));
  return block;
}

TEST(Transport, DeliversEveryBlockOfEveryRoundToItsRank) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  for (int n = 1; n <= world_size(); ++n) {
    const Group group(n);
    for (const auto kind : {TransportKind::shared, TransportKind::messages}) {
      for (const Index staging : {Index{4096}, Index{40000}}) {
        SCOPED_TRACE("N " + std::to_string(group.size()) + ", staging " + std::to_string(staging));
        const auto transport = make_transport(group.comm(), kind, *device, kTimeout, staging);
        ASSERT_EQ(transport->rank(), group.rank());
        ASSERT_EQ(transport->size(), group.size());
        EXPECT_EQ(transport->max_block() % 128, 0);
        const Index most = transport->max_block() < 5000 ? transport->max_block() : 5000;
        for (int round = 0; round < 40; ++round) {
          std::vector<std::vector<std::byte>> blocks;
          for (int p = 0; p < group.size(); ++p) blocks.push_back(block_of(group.rank(), p, round, most));
          const std::vector<ConstBytes> offered(blocks.begin(), blocks.end());
          std::vector<std::size_t> expected;
          for (int p = 0; p < group.size(); ++p) expected.push_back(block_of(p, group.rank(), round, most).size());
          transport->exchange(
              offered, expected,
              [&](std::span<const ConstBytes> received) {
                ASSERT_TRUE(received[static_cast<std::size_t>(group.rank())].empty());
                for (int p = 0; p < group.size(); ++p) {
                  if (p == group.rank()) continue;
                  const ConstBytes got = received[static_cast<std::size_t>(p)];
                  ASSERT_EQ(std::vector<std::byte>(got.begin(), got.end()), block_of(p, group.rank(), round, most));
                }
              },
              "a test");
          const auto same_for_all = [&](int from) {  // as long on all ranks
            std::vector<std::byte> block = block_of(from, 0, round, most);
            block.resize(block_of(0, 0, round, most).size());
            return block;
          };
          transport->exchange_same(
              same_for_all(group.rank()),
              [&](std::span<const ConstBytes> received) {
                for (int p = 0; p < group.size(); ++p) {
                  if (p == group.rank()) continue;
                  const ConstBytes got = received[static_cast<std::size_t>(p)];
                  ASSERT_EQ(std::vector<std::byte>(got.begin(), got.end()), same_for_all(p));
                }
              },
              "a test");
        }
      }
    }
  }
}

TEST(Transport, LetsConsumeWriteToWhatWasOffered) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  for (const auto kind : {TransportKind::shared, TransportKind::messages}) {
    const auto transport = make_transport(MPI_COMM_WORLD, kind, *device, kTimeout);
    std::vector<std::byte> mine(static_cast<std::size_t>(transport->max_block()), static_cast<std::byte>(world_rank()));
    for (int round = 0; round < 5; ++round) {
      transport->exchange_same(
          mine,
          [&](std::span<const ConstBytes> received) {
            std::fill(mine.begin(), mine.end(), std::byte{0xFF});
            for (int p = 0; p < world_size(); ++p) {
              for (const std::byte b : received[static_cast<std::size_t>(p)]) ASSERT_EQ(b, static_cast<std::byte>(p));
            }
          },
          "a test");
      std::fill(mine.begin(), mine.end(), static_cast<std::byte>(world_rank()));
    }
  }
}

TEST(Transport, TakesWindowsByItselfOnOneHostAndSaysSo) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  const auto automatic = make_transport(MPI_COMM_WORLD, TransportKind::automatic, *device, kTimeout);
  EXPECT_EQ(automatic->description(), "shared memory windows, 4 MiB a rank");
  const auto messages = make_transport(MPI_COMM_WORLD, TransportKind::messages, *device, kTimeout);
  EXPECT_EQ(messages->description(), "messages");
}

TEST(Transport, TakesMessagesWhereTheFolderOfWindowsHasNoRoomAndSaysWhy) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  setenv("OMPI_MCA_osc_sm_backing_directory", "/proc", 1);  // a file system that is always full
  const auto automatic = make_transport(MPI_COMM_WORLD, TransportKind::automatic, *device, kTimeout);
  EXPECT_EQ(automatic->description().rfind("messages (/proc has 0.0 MiB free", 0), 0U) << automatic->description();
  try {
    make_transport(MPI_COMM_WORLD, TransportKind::shared, *device, kTimeout);
    ADD_FAILURE() << "windows were made where there is no room";
  } catch (const UnusableInput& error) {
    const std::string sentence = error.what();
    EXPECT_NE(sentence.find("--transport shared"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("--transport messages would do"), std::string::npos) << sentence;
  }
  unsetenv("OMPI_MCA_osc_sm_backing_directory");
  EXPECT_EQ(device->ledger().current(Tier::device, Category::buckets), kStagingBytes);  // what `automatic` holds
}

TEST(Transport, ThatOneRankHasNoMemoryForFailsOnAllRanksAlike) {
  for (const auto kind : {TransportKind::shared, TransportKind::messages}) {
    const auto device = make_cpu_device(ProductKind::canonical, 1);
    MemoryLedger& ledger = device->ledger();
    if (world_rank() == world_size() - 1)
      ledger.set_cap(Tier::device, ledger.current(Tier::device) + kStagingBytes - 1);
    try {
      make_transport(MPI_COMM_WORLD, kind, *device, kTimeout);
      FAIL() << "a cap was passed";
    } catch (const ResourceFailure& error) {
      const std::string start = "rank " + std::to_string(world_size() - 1) + ": ";
      EXPECT_EQ(std::string(error.what()).rfind(start, 0), 0U) << error.what();
    }
  }
}

}  // namespace
}  // namespace zero::testing
