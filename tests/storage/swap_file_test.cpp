// Swap files as files: round trips by every route, and who can see, share or keep them.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <csignal>
#include <set>

#include "common/base/error.h"
#include "tests/storage/blocks.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

namespace zero {
namespace {

using testing::Blocks;
using testing::in_child;
using testing::open_swap_files;
using testing::Scratch;

constexpr Index kMiB = Index{1} << 20;

/// Where the swap files of a test live: an ordinary directory, or memory.
enum class Place { temporary, shared_memory };

struct Way {
  FileRoute route;
  FileCache cache;
  Place place;
};

std::string text(const Way& way) {
  return std::string(way.route == FileRoute::io_uring ? "io_uring" : "positioned") +
         (way.cache == FileCache::automatic ? "_direct" : "_page_cache") +
         (way.place == Place::temporary ? "" : "_shared_memory");
}

class EveryWay : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (const std::string reason = testing::why_not(GetParam().route); !reason.empty()) GTEST_SKIP() << reason;
    if (GetParam().place == Place::shared_memory) {
      if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "this system has no /dev/shm";
      directory_ = "/dev/shm";
    } else {
      directory_ = scratch_.path();
    }
  }
  [[nodiscard]] std::unique_ptr<BlockFile> open_file(Index bytes, Index depth) const {
    return open_swap_file(directory_, 0, bytes, depth, GetParam().route, GetParam().cache);
  }

  Scratch scratch_;
  std::string directory_;
};

/// Moves blocks and says how many bytes were moved.
Index move_once(BlockFile& file, Transfer::Kind kind, Index offset, const Blocks& blocks) {
  file.start({kind, offset, blocks.data(), blocks.bytes(), 7});
  const Completion completion = file.wait();
  EXPECT_EQ(completion.id, 7U);
  return completion.result;
}

TEST_P(EveryWay, EveryByteOfEverySizeComesBack) {
  for (const Index bytes : {Index{1}, Index{511}, Index{512}, Index{513}, Index{4095}, Index{4097}, kMiB + 4}) {
    Blocks out(bytes);
    Blocks in(bytes);
    out.fill(static_cast<std::uint64_t>(bytes));
    const auto file = open_file(2 * out.bytes(), 4);
    for (const Index offset : {Index{0}, out.bytes()}) {
      in.fill_with(std::byte{0});
      ASSERT_EQ(move_once(*file, Transfer::Kind::write, offset, out), out.bytes());
      ASSERT_EQ(move_once(*file, Transfer::Kind::read, offset, in), in.bytes());
      EXPECT_EQ(in, out) << bytes << " bytes at " << offset;
    }
    EXPECT_EQ(file->size(), 2 * out.bytes());
  }
}

TEST_P(EveryWay, ManyTransfersUnderWayEachEndOnceWithTheirOwnBytes) {
  constexpr Index kDepth = 12;
  constexpr Index kTransfers = 60;
  constexpr Index kBytes = 3 * kBlockBytes;
  const auto file = open_file(kTransfers * kBytes, kDepth);
  EXPECT_EQ(file->depth(), kDepth);
  std::vector<Blocks> out;
  std::vector<Blocks> in;
  for (Index i = 0; i < kTransfers; ++i) {
    out.emplace_back(kBytes).fill(static_cast<std::uint64_t>(i));
    in.emplace_back(kBytes);
  }
  for (const auto kind : {Transfer::Kind::write, Transfer::Kind::read}) {
    std::set<std::uint64_t> ended;
    Index under_way = 0;
    const auto wait = [&] {
      const Completion completion = file->wait();
      EXPECT_EQ(completion.result, kBytes);
      EXPECT_TRUE(ended.insert(completion.id).second) << "ended twice";
      --under_way;
    };
    for (Index i = 0; i < kTransfers; ++i) {
      if (under_way == kDepth) wait();
      const Blocks& blocks = (kind == Transfer::Kind::write ? out : in)[static_cast<std::size_t>(i)];
      file->start({kind, (kTransfers - 1 - i) * kBytes, blocks.data(), kBytes, static_cast<std::uint64_t>(i)});
      ++under_way;
    }
    while (under_way > 0) wait();
    EXPECT_EQ(ended.size(), static_cast<std::size_t>(kTransfers));
  }
  EXPECT_EQ(in, out);
}

TEST_P(EveryWay, AReadPastTheEndIsShort) {
  const auto file = open_file(2 * kBlockBytes, 2);
  EXPECT_EQ(move_once(*file, Transfer::Kind::read, kBlockBytes, Blocks(2 * kBlockBytes)), kBlockBytes);
  EXPECT_EQ(move_once(*file, Transfer::Kind::read, 2 * kBlockBytes, Blocks(kBlockBytes)), 0);
}

TEST_P(EveryWay, ATransferThatTheSystemRefusesEndsWithItsError) {
  const auto file = open_file(kBlockBytes, 1);
  file->start({Transfer::Kind::write, 0, nullptr, kBlockBytes, 3});
  const Completion completion = file->wait();
  EXPECT_EQ(completion.id, 3U);
  EXPECT_EQ(completion.result, -EFAULT);
}

TEST_P(EveryWay, MoreThanTheDepthAndAWaitForNothingAreRefused) {
  const auto file = open_file(2 * kBlockBytes, 1);
  const Blocks blocks(kBlockBytes);
  EXPECT_THROW(file->wait(), std::logic_error);
  file->start({Transfer::Kind::write, 0, blocks.data(), kBlockBytes, 1});
  EXPECT_THROW(file->start({Transfer::Kind::write, 0, blocks.data(), kBlockBytes, 2}), std::logic_error);
  file->wait();
  EXPECT_THROW(file->wait(), std::logic_error);
  EXPECT_THROW(file->start({Transfer::Kind::write, 0, blocks.data(), kMostTransferBytes + kBlockBytes, 2}),
               std::logic_error);
}

TEST_P(EveryWay, AFileThatGoesHasWaitedForItsTransfers) {
  std::vector<Blocks> memory;
  memory.reserve(8);
  for (int i = 0; i < 8; ++i) memory.emplace_back(kMiB);
  for (int round = 0; round < 5; ++round) {
    {
      const auto file = open_file(8 * kMiB, 8);
      for (Index i = 0; i < 8; ++i) {
        Blocks& blocks = memory[static_cast<std::size_t>(i)];
        blocks.fill_with(std::byte{1});
        file->start({Transfer::Kind::read, i * kMiB, blocks.data(), kMiB, static_cast<std::uint64_t>(i)});
      }
    }
    // Space that was reserved and never written reads as zeros: all of it must have come by now.
    for (const Blocks& blocks : memory) EXPECT_EQ(blocks, Blocks(kMiB));
  }
}

TEST_P(EveryWay, SignalsDoNotDisturbTransfers) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};  // without SA_RESTART: calls return EINTR
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 500}, {0, 500}};
  const itimerval never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  {
    const auto file = open_file(8 * kMiB, 4);
    Blocks out(8 * kMiB);
    Blocks in(8 * kMiB);
    for (std::uint64_t round = 0; round < 10; ++round) {
      out.fill(round);
      EXPECT_EQ(move_once(*file, Transfer::Kind::write, 0, out), out.bytes());
      EXPECT_EQ(move_once(*file, Transfer::Kind::read, 0, in), in.bytes());
      EXPECT_EQ(in, out);
    }
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Storage, EveryWay,
                         ::testing::Values(Way{FileRoute::io_uring, FileCache::automatic, Place::temporary},
                                           Way{FileRoute::io_uring, FileCache::page_cache, Place::temporary},
                                           Way{FileRoute::io_uring, FileCache::automatic, Place::shared_memory},
                                           Way{FileRoute::positioned, FileCache::automatic, Place::temporary},
                                           Way{FileRoute::positioned, FileCache::page_cache, Place::temporary},
                                           Way{FileRoute::positioned, FileCache::automatic, Place::shared_memory}),
                         [](const ::testing::TestParamInfo<Way>& way) { return text(way.param); });

TEST(SwapFile, HasModeOwnerOnlyNoNameAndAllItsSpace) {
  const Scratch scratch;
  const mode_t before = umask(0);
  const auto file = open_swap_file(scratch.path(), 2, kMiB, 1);
  umask(before);
  EXPECT_EQ(file->path().find(scratch.path() + "zero-swap-rank2-"), 0U) << file->path();
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  const std::vector<std::string> open = open_swap_files();
  ASSERT_EQ(open.size(), 1U);
  struct stat about {};
  ASSERT_EQ(stat(open[0].c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777U, 0600U);
  EXPECT_EQ(about.st_nlink, 0U);
  EXPECT_EQ(about.st_size, kMiB);
  EXPECT_GE(about.st_blocks * 512, kMiB) << "not reserved";
}

TEST(SwapFile, IsNotInheritedByProgramsThatAreStarted) {
  const Scratch scratch;
  const auto file = open_swap_file(scratch.path(), 0, kBlockBytes, 1);
  const SwapDirectoryLock lock(scratch.path());
  ASSERT_EQ(open_swap_files().size(), 1U);
  // The shell's children see what it inherited.
  EXPECT_NE(std::system("ls -l /proc/self/fd | grep -q -e zero-swap-rank -e zero_test_"), 0);
}

TEST(SwapFile, IsGoneAfterKill) {
  const Scratch scratch;
  const std::string ending = in_child([&] {
    const auto file = open_swap_file(scratch.path(), 0, kMiB, 1);
    const SwapDirectoryLock lock(scratch.path());
    raise(SIGKILL);
    return std::string();
  });
  EXPECT_EQ(ending, "the child ended by signal 9");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  const SwapDirectoryLock next(scratch.path());
}

TEST(SwapFile, IsAlwaysANewOne) {
  const Scratch scratch;
  // The system would refuse to create without O_EXCL, which follows no link and opens nothing that is there.
  const std::string answer = in_child([&] {
    testing::refuse_calls({{SYS_openat, EPERM, 2, O_CREAT | O_EXCL, O_CREAT}});
    if (open(scratch.path("probe").c_str(), O_RDWR | O_CREAT, 0600) >= 0) return std::string("nothing was refused");
    const auto file = open_swap_file(scratch.path(), 0, kBlockBytes, 1, FileRoute::positioned);
    return std::string("made");
  });
  if (answer.find(testing::kNotPermitted) == 0) GTEST_SKIP() << answer;
  EXPECT_EQ(answer, "made");
}

TEST(SwapFile, LeavesAloneWhatStandsInItsDirectory) {
  const Scratch scratch;
  const std::string target = scratch.write("target", "precious");
  for (int i = 0; i < 100; ++i) {
    const std::string name = "zero-swap-rank0-" + std::to_string(100000 + i);
    std::filesystem::create_symlink(target, scratch.path(name));
  }
  scratch.write("zero-swap-rank0-abcdef", "of an earlier run");
  Blocks blocks(kBlockBytes);
  blocks.fill(1);
  for (int i = 0; i < 100; ++i) {
    const auto file = open_swap_file(scratch.path(), 0, kBlockBytes, 1);
    EXPECT_EQ(move_once(*file, Transfer::Kind::write, 0, blocks), kBlockBytes);
  }
  EXPECT_EQ(scratch.read("target"), "precious");
  EXPECT_EQ(scratch.read("zero-swap-rank0-abcdef"), "of an earlier run");
}

TEST(SwapFile, ADirectoryGivenThroughALinkWorks) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("real"));
  std::filesystem::create_directory_symlink(scratch.path("real"), scratch.path("link"));
  const SwapDirectoryLock lock(scratch.path("link"));
  const auto file = open_swap_file(scratch.path("link"), 0, kBlockBytes, 1);
  EXPECT_THROW(SwapDirectoryLock(scratch.path("real")), UnusableInput) << "the same directory by another name";
}

TEST(SwapFile, TwoOfOneRankShareNothing) {
  const Scratch scratch;
  const auto one = open_swap_file(scratch.path(), 0, kBlockBytes, 1);
  const auto other = open_swap_file(scratch.path(), 0, kBlockBytes, 1);
  EXPECT_NE(one->path(), other->path());
  Blocks blocks(kBlockBytes);
  Blocks in(kBlockBytes);
  blocks.fill(1);
  move_once(*one, Transfer::Kind::write, 0, blocks);
  move_once(*other, Transfer::Kind::read, 0, in);
  EXPECT_EQ(in, Blocks(kBlockBytes));
}

TEST(SwapFile, OfNoBytesWorks) {
  const Scratch scratch;
  EXPECT_EQ(open_swap_file(scratch.path(), 0, 0, 1)->size(), 0);
}

TEST(SwapDirectoryLock, IsHeldByOneRunAtATime) {
  const Scratch scratch;
  const auto try_it = [&] {
    const SwapDirectoryLock lock(scratch.path());
    return std::string("taken");
  };
  {
    const SwapDirectoryLock lock(scratch.path());
    const std::string refusal =
        "--nvme-path " + scratch.path() + " is in use by another run; another directory would do";
    EXPECT_EQ(in_child(try_it), refusal) << "another process";
    EXPECT_THROW(try_it(), UnusableInput) << "this process";
  }
  EXPECT_EQ(in_child(try_it), "taken");
  EXPECT_EQ(try_it(), "taken");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

}  // namespace
}  // namespace zero
