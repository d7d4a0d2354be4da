// A disk that fails at any transfer of a run: one sentence that names rank, file and offset, and nothing left behind.
// The same transfer fails on every rank, so that no rank waits for another; one rank alone is for whole programs.

#include <algorithm>
#include <filesystem>

#include "common/base/error.h"
#include "common/train/digests.h"
#include "offload/settings.h"
#include "tests/offload/promises.h"
#include "tests/storage/blocks.h"
#include "tests/support/faulty_file.h"

namespace zero::test {
namespace {

using testing::Fault;
using testing::FaultyFile;

/// Made, one step, looked at: what a program does.
void train(const RunSetting& setting) {
  Run run(setting, MPI_COMM_WORLD);
  for (Index t = 1; t <= setting.steps; ++t) run.trainer().train_step(t);
  run.trainer().evaluate(run.context().sampler, 0);
  digest_state(run.trainer(), run.context().device, run.context().comm, run.context().group);
}

/// The sentence that a run with the fault ends with; empty where it ends well.
std::string sentence(RunSetting setting, const Fault& fault) {
  setting.open_file = testing::with_fault(
      [](Index bytes) {
        return open_swap_file(std::filesystem::temp_directory_path().string(), testing::world_rank(), bytes,
                              offload::kSwapDepth);
      },
      fault);
  std::string said;
  try {
    train(setting);
  } catch (const ResourceFailure& failure) {
    said = failure.what();
  }
  EXPECT_TRUE(testing::open_swap_files().empty()) << "a file is left open after: " << said;
  return said;
}

/// The sentence names a rank, its file and an offset in it, and has these words. (Where the ranks agree on a failure,
/// that of the first is told on all.)
bool names_the_place(const std::string& said, const std::vector<std::string>& words) {
  const auto has = [&](const std::string& word) { return said.find(word) != std::string::npos; };
  const std::string file = (std::filesystem::temp_directory_path() / "zero-swap-rank").string();
  bool names = false;
  for (int rank = 0; rank < testing::world_size(); ++rank) {
    names = names || has(fmt::format("rank {}: {}{}-", rank, file, rank));
  }
  return names && has(", offset ") && std::all_of(words.begin(), words.end(), has);
}

/// Lets every transfer of a run fail in turn, until a run has fewer than that.
void every_transfer_fails(const RunSetting& setting, Fault fault, const std::vector<std::string>& words) {
  for (fault.at = 0;; ++fault.at) {
    const std::string said = sentence(setting, fault);
    int ended_well = said.empty() ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &ended_well, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (ended_well != 0) {
      EXPECT_EQ(said, "") << "on this rank alone";
      EXPECT_GT(fault.at, 15) << "transfers in a run";
      return;
    }
    EXPECT_TRUE(names_the_place(said, words))
        << "transfer " << fault.at << " of " << setting.describe() << ": " << said;
  }
}

RunSetting small(const Places& places) {
  RunSetting setting = with(offloaded({.layers = 2, .heads = 1, .width = 11, .context = 20, .vocab = 61}), places);
  setting.steps = 1;
  return setting;
}

constexpr Transfer::Kind kRead = Transfer::Kind::read, kWrite = Transfer::Kind::write;

TEST(Faults, EveryReadThatFailsIsNamed) {
  every_transfer_fails(small({Tier::nvme, Tier::nvme}), {Fault::Kind::fails, kRead, 0, EIO},
                       {"reading ", " bytes failed: Input/output error"});
  every_transfer_fails(small({Tier::nvme, Tier::device}), {Fault::Kind::fails, kRead, 0, EIO}, {"reading "});
}

TEST(Faults, EveryWriteThatFailsIsNamed) {
  every_transfer_fails(small({Tier::nvme, Tier::nvme}), {Fault::Kind::fails, kWrite, 0, ENOSPC},
                       {"writing ", " bytes failed: No space left on device"});
  every_transfer_fails(small({Tier::nvme, Tier::device}), {Fault::Kind::fails, kWrite, 0, EIO}, {"writing "});
}

TEST(Faults, EveryTransferThatIsShortIsNamed) {
  RunSetting setting = small({Tier::nvme, Tier::nvme});
  setting.dtype = Dtype::bf16;
  every_transfer_fails(setting, {Fault::Kind::is_short, kRead}, {"read ", " of "});
  every_transfer_fails(setting, {Fault::Kind::is_short, kWrite}, {"wrote ", " of "});
}

TEST(Faults, EveryFlippedBitIsNamed) {
  every_transfer_fails(small({Tier::nvme, Tier::nvme}), {Fault::Kind::flips_a_bit, kRead},
                       {"the bytes read are not those written (checksum)"});
}

}  // namespace
}  // namespace zero::test
