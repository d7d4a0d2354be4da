// Directories and systems that will not do, or do with less: each in its own child process, which loses what the test
// takes away.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <vector>

#include "common/base/error.h"
#include "common/device/device.h"
#include "common/storage/swap_space.h"
#include "tests/storage/blocks.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

namespace zero {
namespace {

using testing::Blocks;
using testing::in_child;
using testing::kNotPermitted;
using testing::RefusedCall;
using testing::Scratch;

constexpr Index kMiB = Index{1} << 20;

// What a test cannot have on this machine it says, and skips.
#define SKIP_WHERE_NOT_PERMITTED(answer) \
  if ((answer).find(kNotPermitted) == 0) GTEST_SKIP() << (answer)

/// The sentence that an opening ends with, after its kind.
std::string refusal(const std::function<void()>& opening) {
  try {
    opening();
    return "accepted";
  } catch (const UnusableInput& refused) {
    return std::string("unusable: ") + refused.what();
  } catch (const ResourceFailure& failed) {
    return std::string("failed: ") + failed.what();
  }
}

std::string refusal_of_file(const std::string& directory, Index bytes = kMiB) {
  return refusal([&] { open_swap_file(directory, 1, bytes, 1); });
}
std::string refusal_of_lock(const std::string& directory) {
  return refusal([&] { const SwapDirectoryLock lock(directory); });
}

/// How a file is described that wrote a block and read it back.
std::string working_file(const std::string& directory) {
  const auto file = open_swap_file(directory, 0, 4 * kBlockBytes, 2);
  Blocks out(kBlockBytes);
  Blocks in(kBlockBytes);
  out.fill(1);
  file->start({Transfer::Kind::write, kBlockBytes, out.data(), kBlockBytes, 0});
  if (file->wait().result != kBlockBytes) return "not written by " + file->description();
  file->start({Transfer::Kind::read, kBlockBytes, in.data(), kBlockBytes, 0});
  if (file->wait().result != kBlockBytes || !(in == out)) return "not read by " + file->description();
  return file->description();
}

TEST(SwapDirectory, MissingOrNoDirectoryOrNotWritableIsRefusedInOneSentence) {
  const Scratch scratch;
  scratch.write("file", "");
  std::filesystem::create_symlink(scratch.path("nowhere"), scratch.path("dangling"));
  const std::string would_do = "a directory that can be written to would do";
  for (const auto refuse : {+[](const std::string& name) { return refusal_of_file(name); }, &refusal_of_lock}) {
    for (const std::string missing : {"missing", "dangling", "missing/deeper"}) {
      EXPECT_EQ(refuse(scratch.path(missing)),
                "unusable: --nvme-path " + scratch.path(missing) + " does not exist; create it, or " + would_do);
    }
    for (const std::string file : {"file", "file/deeper"}) {
      EXPECT_EQ(refuse(scratch.path(file)),
                "unusable: --nvme-path " + scratch.path(file) + " is not a directory; " + would_do);
    }
    const std::string long_name(300, 'x');
    EXPECT_EQ(refuse(long_name),
              "unusable: --nvme-path " + long_name + " cannot be written to (File name too long); " + would_do);
  }
}

TEST(SwapDirectory, WithoutPermissionIsRefused) {
  const Scratch scratch;
  std::filesystem::permissions(scratch.path(), std::filesystem::perms{0555});
  const std::string expected = "unusable: --nvme-path " + scratch.path() +
                               " cannot be written to (Permission denied); a directory that can be written to would do";
  for (const auto refuse : {+[](const std::string& name) { return refusal_of_file(name); }, &refusal_of_lock}) {
    const std::string answer = in_child([&] {
      testing::become_nobody();
      return refuse(scratch.path());
    });
    SKIP_WHERE_NOT_PERMITTED(answer);
    EXPECT_EQ(answer, expected);
  }
  std::filesystem::permissions(scratch.path(), std::filesystem::perms{0755});
}

TEST(SwapDirectory, OnAReadOnlyFileSystemIsRefused) {
  const Scratch scratch;
  const std::string answer = in_child([&] {
    testing::mount_privately("tmpfs", scratch.path(), "", true);
    return refusal_of_file(scratch.path());
  });
  SKIP_WHERE_NOT_PERMITTED(answer);
  EXPECT_EQ(answer, "unusable: --nvme-path " + scratch.path() +
                        " cannot be written to (Read-only file system); a directory that can be written to would do");
}

TEST(SwapDirectory, OnAFileSystemWithoutRoomIsRefusedWithBytesNeededAndFree) {
  const Scratch scratch;
  const std::string directory = scratch.path();
  const auto answer = [&](Index bytes, bool reserves) {
    return in_child([&] {
      testing::mount_privately("tmpfs", directory, "size=1m");
      if (!reserves) testing::refuse_calls({{SYS_fallocate, EOPNOTSUPP}});
      const std::string said = refusal_of_file(directory, bytes);
      // Nothing of the attempt is left: all the room can still be had.
      return refusal_of_file(directory, kMiB) == "accepted" ? said : "something is left of the attempt";
    });
  };
  for (const bool reserves : {true, false}) {
    const std::string said = answer(kMiB + kBlockBytes, reserves);
    SKIP_WHERE_NOT_PERMITTED(said);
    EXPECT_EQ(said,
              "failed: rank 1: --nvme-path " + directory +
                  " has no room for a swap file: 1.0 MiB needed, 1.0 MiB free (No space left on device); a directory "
                  "with more room would do");
    EXPECT_EQ(answer(kMiB, reserves), "accepted") << "to the byte";
  }
}

TEST(SwapDirectory, ASizeBeyondTheLimitOfFilesIsRefusedAndNotASignal) {
  const Scratch scratch;
  const auto answer = [&](Index bytes) {
    return in_child([&] {
      const rlimit limit{kMiB, kMiB};
      setrlimit(RLIMIT_FSIZE, &limit);
      return refusal_of_file(scratch.path(), bytes);
    });
  };
  EXPECT_EQ(answer(kMiB), "accepted");
  const std::string said = answer(2 * kMiB);
  EXPECT_EQ(
      said.find("failed: rank 1: --nvme-path " + scratch.path() + " has no room for a swap file: 2.0 MiB needed, "), 0U)
      << said;
  EXPECT_NE(said.find("(files may have 1.0 MiB, says ulimit -f)"), std::string::npos) << said;
}

TEST(SwapDirectory, ASizeBeyondEveryFileSystemIsRefused) {
  const Scratch scratch;
  const std::string said = refusal_of_file(scratch.path(), Index{1} << 62);
  EXPECT_EQ(said.find("failed: rank 1: --nvme-path "), 0U) << said;
  EXPECT_NE(said.find("4194304.0 TiB needed"), std::string::npos) << said;
}

#ifdef ZERO_HAVE_URING
/// What a file that works says of itself on a system that refuses `calls`, given the reason.
void expect_positioned(const std::vector<RefusedCall>& calls, const std::string& reason, bool direct = true) {
  const Scratch scratch;
  const std::string answer = in_child([&] {
    testing::refuse_calls(calls);
    return working_file(scratch.path());
  });
  SKIP_WHERE_NOT_PERMITTED(answer);
  const bool has_direct = working_file(scratch.path()).find("no O_DIRECT here") == std::string::npos;
  EXPECT_EQ(answer, direct && has_direct ? "pread and pwrite, O_DIRECT (" + reason + ")"
                                         : "pread and pwrite, page cache (no O_DIRECT here; " + reason + ")");
}

TEST(SwapRoutes, WithoutIoUringPositionedCallsServeAndSaySo) {
  expect_positioned({{SYS_io_uring_setup, EPERM}}, "io_uring is not permitted here");
  expect_positioned({{SYS_io_uring_setup, ENOSYS}}, "io_uring is not in this kernel");
  expect_positioned({{SYS_io_uring_setup, ENOMEM}}, "io_uring cannot be had: Cannot allocate memory");
}

TEST(SwapRoutes, AskedForIoUringIsRefusedWhereItIsNot) {
  const Scratch scratch;
  const std::string answer = in_child([&] {
    testing::refuse_calls({{SYS_io_uring_setup, EPERM}});
    return refusal([&] { open_swap_file(scratch.path(), 0, kMiB, 1, FileRoute::io_uring); });
  });
  SKIP_WHERE_NOT_PERMITTED(answer);
  EXPECT_EQ(answer, "unusable: io_uring is not permitted here; pread and pwrite (the positioned route) would do");
}

TEST(SwapRoutes, WithoutEitherPositionedCallsAndThePageCacheServe) {
  expect_positioned({{SYS_io_uring_setup, EPERM}, {SYS_fcntl, EINVAL, 2, O_DIRECT, O_DIRECT}},
                    "io_uring is not permitted here", false);
}
#else
TEST(SwapRoutes, AskedForIoUringIsRefusedWhereItIsNot) {
  const Scratch scratch;
  EXPECT_EQ(refusal([&] { open_swap_file(scratch.path(), 0, kMiB, 1, FileRoute::io_uring); }),
            "unusable: io_uring was not built in; pread and pwrite (the positioned route) would do");
}
#endif

TEST(SwapRoutes, WithoutDirectIoThePageCacheServesAndSaysSo) {
  const Scratch scratch;
  for (const bool refused_at_once : {true, false}) {
    const std::string answer = in_child([&] {
      if (refused_at_once) testing::refuse_calls({{SYS_fcntl, EINVAL, 2, O_DIRECT, O_DIRECT}});
      if (!refused_at_once) testing::mount_privately("ramfs", scratch.path());  // has neither O_DIRECT nor fallocate()
      return working_file(scratch.path());
    });
    SKIP_WHERE_NOT_PERMITTED(answer);
    EXPECT_NE(answer.find(", page cache (no O_DIRECT here"), std::string::npos) << answer;
  }
}

TEST(SwapRoutes, WithoutReservedSpaceAFullFileSystemFailsTheWriteInOneSentence) {
  const Scratch scratch;
  const std::string answer = in_child([&] {
    testing::mount_privately("tmpfs", scratch.path(), "size=1m");
    testing::refuse_calls({{SYS_fallocate, EOPNOTSUPP}});
    const auto device = make_cpu_device(ProductKind::canonical, 1);
    SwapSpace space(*device, 3);
    const SwapSpace::Extent extent = space.reserve(Category::optimizer, kMiB / 2);
    space.open([&](Index bytes) { return open_swap_file(scratch.path(), 3, bytes, 2); });
    scratch.write("other", std::string(static_cast<std::size_t>(kMiB - kBlockBytes), 'x'));
    const Blocks blocks(kMiB / 2);
    return refusal([&] { space.wait(space.start_write(extent, blocks.data())); });
  });
  SKIP_WHERE_NOT_PERMITTED(answer);
  EXPECT_EQ(answer.find("failed: rank 3: " + scratch.path() + "zero-swap-rank3-"), 0U) << answer;
  EXPECT_TRUE(answer.ends_with(", offset 0: wrote 4096 of 524288 bytes") ||
              answer.ends_with(", offset 0: writing 524288 bytes failed: No space left on device"))
      << answer;
}

}  // namespace
}  // namespace zero
