// Extents of a swap file: what comes back, what is counted and booked, and that nothing wrong comes back unnoticed.

#include "common/storage/swap_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "common/base/error.h"
#include "tests/storage/blocks.h"
#include "tests/support/faulty_file.h"
#include "tests/support/scratch.h"

namespace zero {
namespace {

using testing::Blocks;
using testing::Fault;
using testing::open_swap_files;
using testing::Scratch;

constexpr Index kMiB = Index{1} << 20;
constexpr int kRank = 2;

/// A space with three extents of 2, 257 and 1 blocks, each written, and the sentence of what then goes wrong.
class SwapSpaceTest : public ::testing::TestWithParam<FileRoute> {
 protected:
  void SetUp() override {
    if (const std::string reason = testing::why_not(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
  }

  void open(const Fault& fault = {}, Index most_transfer_bytes = kMostTransferBytes) {
    space_.emplace(*device_, kRank, most_transfer_bytes);
    for (const Index bytes : {2 * kBlockBytes, kMiB + 4, Index{1}}) {
      extents_.push_back(space_->reserve(Category::optimizer, bytes));
      memory_.emplace_back(bytes).fill(static_cast<std::uint64_t>(bytes));
    }
    space_->open(testing::with_fault(
        [this](Index bytes) {
          auto file = open_swap_file(scratch_.path(), kRank, bytes, 2, GetParam());
          path_ = file->path();
          return file;
        },
        fault));
  }
  void write(std::size_t i) { space_->wait(space_->start_write(extents_[i], memory_[i].data())); }
  void write_all() {
    for (std::size_t i = 0; i < extents_.size(); ++i) write(i);
  }
  void expect_read(std::size_t i) {
    Blocks in(memory_[i].bytes());
    space_->wait(space_->start_read(extents_[i], in.data()));
    EXPECT_EQ(in, memory_[i]) << "extent " << i;
  }
  /// What reading (or writing) extent i ends with, without the rank and the name of the file.
  std::string failure(std::size_t i, bool reads = true) {
    Blocks in(memory_[i].bytes());
    try {
      space_->wait(reads ? space_->start_read(extents_[i], in.data())
                         : space_->start_write(extents_[i], memory_[i].data()));
      return "none";
    } catch (const ResourceFailure& failed) {
      const std::string sentence = failed.what();
      const std::string beginning = "rank 2: " + path_ + ", ";
      EXPECT_EQ(sentence.find(beginning), 0U) << sentence;
      return sentence.substr(std::min(beginning.size(), sentence.size()));
    }
  }
  [[nodiscard]] static std::string the_file() {
    const std::vector<std::string> open = open_swap_files();
    EXPECT_EQ(open.size(), 1U);
    return open.at(0);
  }

  Scratch scratch_;
  std::unique_ptr<Device> device_ = make_cpu_device(ProductKind::canonical, 1);
  std::vector<Blocks> memory_;
  std::vector<SwapSpace::Extent> extents_;
  std::optional<SwapSpace> space_;
  std::string path_;
};

TEST_P(SwapSpaceTest, EveryExtentComesBackHoweverOftenItIsWritten) {
  open();
  EXPECT_EQ(space_->bytes(), (2 + 257 + 1) * kBlockBytes);
  for (std::uint64_t round = 0; round < 3; ++round) {
    write_all();
    for (const std::size_t i : {2U, 0U, 1U, 1U}) expect_read(i);
    for (Blocks& blocks : memory_) blocks.fill(100 + round);
  }
}

TEST_P(SwapSpaceTest, SizesThatFillNoBlockComeBack) {
  space_.emplace(*device_, kRank);
  for (const Index bytes : {Index{1}, Index{511}, Index{512}, Index{513}, Index{4095}, Index{4097}, kMiB + 4}) {
    extents_.push_back(space_->reserve(Category::parameters, bytes));
    memory_.emplace_back(bytes).fill(static_cast<std::uint64_t>(bytes));
  }
  space_->open([this](Index bytes) { return open_swap_file(scratch_.path(), kRank, bytes, 3, GetParam()); });
  write_all();
  for (std::size_t i = extents_.size(); i-- > 0;) expect_read(i);
}

TEST_P(SwapSpaceTest, MoreTicketsThanDepthAreWaitedForInAnyOrder) {
  open();
  std::vector<SwapSpace::Ticket> tickets;
  for (std::size_t i = 0; i < 3; ++i) tickets.push_back(space_->start_write(extents_[i], memory_[i].data()));
  for (const std::size_t i : {1U, 2U, 0U}) space_->wait(tickets[i]);
  std::vector<Blocks> in;
  for (std::size_t i = 0; i < 3; ++i)
    tickets[i] = space_->start_read(extents_[i], in.emplace_back(memory_[i].bytes()).data());
  for (const std::size_t i : {2U, 0U, 1U}) space_->wait(tickets[i]);
  EXPECT_EQ(in, memory_);
}

TEST_P(SwapSpaceTest, LargeExtentsMoveInSeveralTransfers) {
  open({}, 2 * kBlockBytes);
  write_all();
  for (const std::size_t i : {0U, 1U, 2U}) expect_read(i);
  EXPECT_EQ(device_->transfers().read, space_->bytes()) << "counted by extent";
}

TEST_P(SwapSpaceTest, AFaultInAnyPartOfALargeExtentIsFoundWithItsOffset) {
  open({Fault::Kind::fails, Transfer::Kind::read, 1 + 100}, 2 * kBlockBytes);  // extent 0 is one transfer
  write_all();
  expect_read(0);
  EXPECT_EQ(failure(1), "offset 827392: reading 8192 bytes failed: Input/output error");  // 8192 + 100 * 8192
  expect_read(1);
}

TEST_P(SwapSpaceTest, BytesAreCountedInWholeBlocks) {
  open();
  write_all();
  expect_read(2);
  EXPECT_EQ(device_->transfers().written, (2 + 257 + 1) * kBlockBytes);
  EXPECT_EQ(device_->transfers().read, kBlockBytes);
  EXPECT_EQ(device_->transfers().up, 0);
  device_->clear_transfers();
  expect_read(1);
  EXPECT_EQ(device_->transfers().written, 0);
  EXPECT_EQ(device_->transfers().read, 257 * kBlockBytes);
}

TEST_P(SwapSpaceTest, BytesAreBookedWhileTheSpaceIsThere) {
  open();
  EXPECT_EQ(device_->ledger().current(Tier::nvme, Category::optimizer), space_->bytes());
  space_.reset();
  EXPECT_EQ(device_->ledger().current(Tier::nvme), 0);
  EXPECT_EQ(device_->ledger().peak(Tier::nvme), (2 + 257 + 1) * kBlockBytes);
  EXPECT_TRUE(open_swap_files().empty());
}

TEST_P(SwapSpaceTest, PastTheCapOfTheTierIsRefusedAndBooksNothing) {
  device_->ledger().set_cap(Tier::nvme, 2 * kBlockBytes);
  SwapSpace space(*device_, kRank);
  space.reserve(Category::parameters, kBlockBytes + 1);
  EXPECT_THROW(space.reserve(Category::parameters, 1), ResourceFailure);
  EXPECT_EQ(space.bytes(), 2 * kBlockBytes);
  EXPECT_EQ(device_->ledger().current(Tier::nvme), 2 * kBlockBytes);
}

TEST_P(SwapSpaceTest, NothingReservedMakesNoFile) {
  SwapSpace space(*device_, kRank);
  space.open([](Index) -> std::unique_ptr<BlockFile> { throw std::logic_error("a file for nothing"); });
  EXPECT_EQ(space.description(), "");
}

TEST_P(SwapSpaceTest, ASpaceThatGoesHasWaitedForItsTransfers) {
  open();
  write_all();
  Blocks in(memory_[1].bytes());
  space_->start_read(extents_[1], in.data());
  space_.reset();
  EXPECT_EQ(in, memory_[1]);
}

TEST_P(SwapSpaceTest, WrongUseIsFoundOut) {
  open();
  Blocks in(2 * kBlockBytes);
  EXPECT_THROW(space_->start_read(extents_[0], in.data()), std::logic_error) << "never written";
  EXPECT_THROW(space_->start_write(extents_[0], in.data() + 128), std::logic_error) << "not aligned";
  EXPECT_THROW(space_->start_write(3, in.data()), std::logic_error) << "no such extent";
  EXPECT_THROW(space_->start_write(-1, in.data()), std::logic_error) << "no such extent";
  EXPECT_THROW(space_->reserve(Category::optimizer, 1), std::logic_error) << "after the file was made";
  const SwapSpace::Ticket ticket = space_->start_write(extents_[0], in.data());
  EXPECT_THROW(space_->start_write(extents_[0], in.data()), std::logic_error) << "twice at a time";
  space_->wait(ticket);
  EXPECT_THROW(space_->wait(ticket), std::logic_error) << "waited for twice";
  EXPECT_EQ(device_->transfers().written, 2 * kBlockBytes) << "what was refused was counted";
}

TEST_P(SwapSpaceTest, AFailedReadSaysWhichAndWhy) {
  open({Fault::Kind::fails, Transfer::Kind::read, 1});
  write_all();
  expect_read(0);
  EXPECT_EQ(failure(1), "offset 8192: reading 1052672 bytes failed: Input/output error");
  expect_read(1);
}

TEST_P(SwapSpaceTest, AFailedWriteSaysWhichAndWhyAndLeavesNothingToRead) {
  open({Fault::Kind::fails, Transfer::Kind::write, 3, ENOSPC});
  write_all();
  EXPECT_EQ(failure(0, false), "offset 0: writing 8192 bytes failed: No space left on device");
  EXPECT_THROW(expect_read(0), std::logic_error);
  expect_read(1);
  write(0);
  expect_read(0);
}

TEST_P(SwapSpaceTest, AShortReadIsAFailure) {
  open({Fault::Kind::is_short, Transfer::Kind::read, 0});
  write_all();
  EXPECT_EQ(failure(1), "offset 8192: read 526336 of 1052672 bytes");
}

TEST_P(SwapSpaceTest, AShortWriteIsAFailure) {
  open({Fault::Kind::is_short, Transfer::Kind::write, 1});
  write(0);
  EXPECT_EQ(failure(1, false), "offset 8192: wrote 526336 of 1052672 bytes");
}

TEST_P(SwapSpaceTest, AFlippedBitIsFoundByTheChecksum) {
  for (const Index at : {0, 1, 2}) {
    extents_.clear();
    memory_.clear();
    open({Fault::Kind::flips_a_bit, Transfer::Kind::read, at});
    write_all();
    for (std::size_t i = 0; i < 3; ++i) {
      const Index offset = std::vector<Index>{0, 8192, 8192 + 257 * kBlockBytes}[i];
      EXPECT_EQ(failure(i), static_cast<Index>(i) == at ? "offset " + std::to_string(offset) +
                                                              ": the bytes read are not those written (checksum)"
                                                        : "none");
    }
    space_.reset();
  }
}

TEST_P(SwapSpaceTest, ABitFlippedInTheFileIsFoundWhereItWas) {
  open();
  write_all();
  {
    std::fstream file(the_file(), std::ios::in | std::ios::out | std::ios::binary);
    const auto byte = static_cast<char>(memory_[1].data()[5000] ^ std::byte{1});
    file.seekp(2 * kBlockBytes + 5000);
    file.put(byte);
    ASSERT_TRUE(file.flush());
  }
  expect_read(0);
  EXPECT_EQ(failure(1), "offset 8192: the bytes read are not those written (checksum)");
  expect_read(2);
}

TEST_P(SwapSpaceTest, ATruncatedFileIsFoundAtTheNextTransferOfAnyExtent) {
  open();
  write_all();
  const Index whole = space_->bytes();
  std::filesystem::resize_file(the_file(), 3 * kBlockBytes);
  const std::string truncated = "the file was truncated by something else (it has 12288 bytes, not 1064960)";
  EXPECT_EQ(failure(1), "offset 8192: read 4096 of 1052672 bytes; " + truncated);
  EXPECT_EQ(failure(2), "offset 1060864: read 0 of 4096 bytes; " + truncated);
  EXPECT_EQ(failure(0), "offset 0: " + truncated);
  std::filesystem::resize_file(the_file(), 0);
  EXPECT_EQ(failure(0, false), "offset 0: the file was truncated by something else (it has 8192 bytes, not 1064960)");
  std::filesystem::resize_file(the_file(), static_cast<std::uintmax_t>(whole));
  EXPECT_EQ(failure(1), "offset 8192: the bytes read are not those written (checksum)")
      << "as long as before, of zeros";
}

TEST_P(SwapSpaceTest, AnEnlargedFileIsFoundAtTheNextTransfer) {
  open();
  write_all();
  std::filesystem::resize_file(the_file(), static_cast<std::uintmax_t>(space_->bytes() + 1));
  EXPECT_EQ(failure(0), "offset 0: the file was enlarged by something else (it has 1064961 bytes, not 1064960)");
  EXPECT_EQ(failure(0, false), "offset 0: the file was enlarged by something else (it has 1064961 bytes, not 1064960)");
}

INSTANTIATE_TEST_SUITE_P(Storage, SwapSpaceTest, ::testing::Values(FileRoute::io_uring, FileRoute::positioned),
                         [](const ::testing::TestParamInfo<FileRoute>& route) {
                           return route.param == FileRoute::io_uring ? "io_uring" : "positioned";
                         });

}  // namespace
}  // namespace zero
