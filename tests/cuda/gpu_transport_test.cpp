// The transports of GPUs, over the fakes of CUDA and NCCL: what is moved, and which is chosen.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nccl.h>

#include "common/base/error.h"
#include "common/comm/collectives.h"
#include "tests/comm/comm_data.h"
#include "tests/cuda/gpu_bytes.h"

namespace zero::testing {
namespace {

/// What a rank offers another in a round; some are empty.
Bytes block_of(int from, int to, int round, Index most) {
  const auto key = static_cast<std::uint64_t>((from * 16 + to) * 256 + round);
  const std::uint64_t bytes = mix(key) % 4 == 0 ? 0 : mix(key) % static_cast<std::uint64_t>(most + 1);
  Bytes block(bytes);
  for (std::size_t i = 0; i < bytes; ++i) block[i] = static_cast<std::byte>(mix(key * 65536 + i));
  return block;
}

/// The hosts meet through the same memory that blocks of GPUs may go through.
void exchange_between_hosts(Transport& transport) {
  const Bytes mine(static_cast<std::size_t>(transport.host().max_same_block()), std::byte{0x55});
  transport.host().exchange_same(
      mine, [](std::span<const ConstBytes>) {}, "a test");
}

/// One exchange of blocks of all sizes: what was received, kept in device memory.
std::vector<OnGpu> exchange(CudaDevice& device, Transport& transport, const Group& group, int round, Index most) {
  std::vector<OnGpu> mine;
  std::vector<OnGpu> kept;
  std::vector<ConstBytes> offered;
  std::vector<std::size_t> expected;
  mine.reserve(static_cast<std::size_t>(group.size()));
  kept.reserve(static_cast<std::size_t>(group.size()));
  for (int p = 0; p < group.size(); ++p) {
    mine.emplace_back(device, block_of(group.rank(), p, round, most));
    offered.push_back(mine.back().view());
    expected.push_back(block_of(p, group.rank(), round, most).size());
    kept.emplace_back(device, expected.back());
  }
  {
    const OnQueue queue(device, Queue::communication);
    transport.exchange(
        offered, expected,
        [&](std::span<const ConstBytes> received) {
          EXPECT_TRUE(received[static_cast<std::size_t>(group.rank())].empty());
          for (int p = 0; p < group.size(); ++p) {
            const auto i = static_cast<std::size_t>(p);
            if (p == group.rank()) continue;
            ASSERT_EQ(received[i].size(), expected[i]);
            kept[i].copy(kept[i].data(), received[i].data(), expected[i]);
            mine[i].overwrite();
          }
        },
        "a test");
    const Mark done = device.mark();
    const OnQueue compute(device, Queue::compute);
    device.wait(done);
  }
  return kept;
}

/// The same block for all: what each rank's was.
void expect_same_block_of_all(CudaDevice& device, Transport& transport, const Group& group, int round, Index most) {
  const std::size_t bytes = block_of(0, 0, round, most).size();
  Bytes mine = block_of(0, 0, round, most);
  for (std::byte& byte : mine) byte ^= static_cast<std::byte>(group.rank());
  const OnGpu offered(device, mine);
  const OnGpu kept(device, bytes * static_cast<std::size_t>(group.size()));
  const OnQueue queue(device, Queue::communication);
  transport.exchange_same(
      offered.view(),
      [&](std::span<const ConstBytes> received) {
        for (int p = 0; p < group.size(); ++p) {
          const auto i = static_cast<std::size_t>(p);
          if (p != group.rank()) kept.copy(kept.data() + i * bytes, received[i].data(), received[i].size());
        }
      },
      "a test");
  const Bytes all = kept.read();
  for (int p = 0; p < group.size(); ++p) {
    if (p == group.rank()) continue;
    for (std::size_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(all[static_cast<std::size_t>(p) * bytes + i],
                block_of(0, 0, round, most)[i] ^ static_cast<std::byte>(p));
    }
  }
}

/// Every route: a GPU a rank, one for all, and host memory by wish.
struct Route {
  int gpus;
  TransportKind kind;
};
std::vector<Route> routes() {
  return {{world_size(), TransportKind::automatic},
          {1, TransportKind::automatic},
          {1, TransportKind::messages},
          {world_size(), TransportKind::shared}};
}

TEST(GpuTransport, DeliversEveryBlockOfEveryRoundToItsRankInEveryGroup) {
  for (const Route& route : routes()) {
    const auto device = gpu_of(route.gpus);
    for (int n = 2; n <= world_size(); ++n) {
      const Group group(n);
      for (const Index staging : {Index{4096}, Index{40000}}) {
        SCOPED_TRACE("N " + std::to_string(group.size()) + ", staging " + std::to_string(staging) + ", GPUs " +
                     std::to_string(route.gpus) + ", transport " + std::to_string(static_cast<int>(route.kind)));
        const auto transport = make_transport(group.comm(), route.kind, *device, kTimeout, staging);
        ASSERT_EQ(transport->rank(), group.rank());
        ASSERT_EQ(transport->size(), group.size());
        const Index most = std::min<Index>(transport->max_block(), 3000);
        EXPECT_EQ(transport->max_block() % 128, 0);
        std::vector<std::vector<OnGpu>> received;
        for (int round = 0; round < 20; ++round) {
          received.push_back(exchange(*device, *transport, group, round, most));
          exchange_between_hosts(*transport);
          expect_same_block_of_all(*device, *transport, group, round, most);
        }
        for (int round = 0; round < 20; ++round) {
          for (int p = 0; p < group.size(); ++p) {
            if (p == group.rank()) continue;
            ASSERT_EQ(received[static_cast<std::size_t>(round)][static_cast<std::size_t>(p)].read(),
                      block_of(p, group.rank(), round, most));
          }
        }
      }
    }
  }
}

TEST(GpuTransport, QueuesHundredsOfExchangesWithoutTheHostWaiting) {
  const auto device = gpu_of(world_size());
  const Group group(world_size());
  const auto transport = make_transport(MPI_COMM_WORLD, TransportKind::nccl, *device, kTimeout, 4096);
  std::vector<std::vector<OnGpu>> received;
  for (int round = 0; round < 200; ++round) received.push_back(exchange(*device, *transport, group, round, 64));
  for (int round = 0; round < 200; ++round) {
    for (int p = 0; p < world_size(); ++p) {
      if (p == world_rank()) continue;
      ASSERT_EQ(received[static_cast<std::size_t>(round)][static_cast<std::size_t>(p)].read(),
                block_of(p, world_rank(), round, 64));
    }
  }
}

TEST(GpuTransport, DestroyedByAnExceptionWaitsForNobodyAndLeavesTheGpuUsable) {
  for (const Route& route : routes()) {
    const auto device = gpu_of(route.gpus);
    const Group group(world_size());
    EXPECT_THROW(
        {
          const auto transport = make_transport(MPI_COMM_WORLD, route.kind, *device, kTimeout, 4096);
          for (int round = 0; round < 10; ++round) exchange(*device, *transport, group, round, 64);
          throw ResourceFailure("the disk is full");
        },
        ResourceFailure);
    const Bytes bytes = block_of(1, 2, 3, 3000);
    EXPECT_EQ(OnGpu(*device, bytes).read(), bytes);
  }
}

TEST(GpuTransport, IsNcclWhereEveryRankHasAGpuElseHostMemoryAndSaysSo) {
  const std::string ranks = std::to_string(world_size());
  const auto description = [](int gpus, TransportKind kind) {
    const auto device = gpu_of(gpus);
    return make_transport(MPI_COMM_WORLD, kind, *device, kTimeout)->description();
  };
  int version = 0;
  ncclGetVersion(&version);
  const std::string nccl = "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                           std::to_string(version % 100) + ", one GPU a rank";
  EXPECT_EQ(description(world_size(), TransportKind::automatic), nccl);
  EXPECT_EQ(description(world_size(), TransportKind::nccl), nccl);
  EXPECT_EQ(description(1, TransportKind::automatic),
            "pinned host memory (" + ranks + " ranks share a GPU), shared memory windows, 2 MiB a rank");
  EXPECT_EQ(description(1, TransportKind::messages), "pinned host memory (" + ranks + " ranks share a GPU), messages");
  EXPECT_EQ(description(world_size(), TransportKind::messages), "pinned host memory (by --transport), messages");
}

TEST(GpuTransport, RefusesNcclWhereRanksShareAGpuOnAllRanksAlike) {
  const int gpus = (world_size() + 1) / 2;
  const auto device = gpu_of(gpus);
  std::string gpu_of_rank_0 = device->bus_id();
  gpu_of_rank_0.resize(32);
  MPI_Bcast(gpu_of_rank_0.data(), 32, MPI_BYTE, 0, MPI_COMM_WORLD);
  try {
    make_transport(MPI_COMM_WORLD, TransportKind::nccl, *device, kTimeout);
    FAIL() << "NCCL was made";
  } catch (const UnusableInput& error) {
    EXPECT_EQ(std::string(error.what()),
              "--transport nccl: ranks 0 and " + std::to_string(gpus) + " share GPU " + gpu_of_rank_0.c_str() + " (" +
                  std::to_string(world_size()) + " ranks, " + std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs") +
                  "), which NCCL refuses; start one rank per GPU, or use --transport auto, which goes through host "
                  "memory");
  }
}

TEST(GpuTransport, HoldsTheSameBytesOnEveryRouteAndGivesThemBack) {
  for (const Route& route : routes()) {
    const auto device = gpu_of(route.gpus);
    const auto held = [&](Tier tier) { return device->ledger().current(tier, Category::buckets); };
    {
      const auto transport = make_transport(MPI_COMM_WORLD, route.kind, *device, kTimeout);
      EXPECT_EQ(held(Tier::device), kStagingBytes / 2);
      EXPECT_EQ(held(Tier::host), kStagingBytes);
      EXPECT_EQ(device->transfers().down + device->transfers().up, 0);
    }
    EXPECT_EQ(held(Tier::device), 0);
    EXPECT_EQ(held(Tier::host), 0);
  }
}

TEST(GpuTransport, HasNativeCollectivesByNcclOnly) {
  const auto sentence = [](int gpus, TransportKind kind) -> std::string {
    const auto device = gpu_of(gpus);
    const auto transport = make_transport(MPI_COMM_WORLD, kind, *device, kTimeout);
    try {
      return make_device_collectives(*transport)->description();
    } catch (const UnusableInput& error) {
      return error.what();
    }
  };
  EXPECT_EQ(sentence(world_size(), TransportKind::nccl), "NCCL");
  EXPECT_EQ(sentence(1, TransportKind::automatic),
            "--collectives native with ranks that share a GPU would need NCCL, which refuses that; canonical would do");
  EXPECT_EQ(
      sentence(world_size(), TransportKind::messages),
      "--collectives native needs NCCL, which --transport shared and messages go without; --transport auto would do");
}

TEST(GpuTransport, ThatOneRankHasNoMemoryForFailsOnAllRanksAlike) {
  for (const Route& route : routes()) {
    for (const Tier tier : {Tier::device, Tier::host}) {
      const auto device = gpu_of(route.gpus);
      MemoryLedger& ledger = device->ledger();
      const Index needed = tier == Tier::device ? kStagingBytes / 2 : kStagingBytes;
      if (world_rank() == 1) ledger.set_cap(tier, ledger.current(tier) + needed - 1);
      try {
        make_transport(MPI_COMM_WORLD, route.kind, *device, kTimeout);
        FAIL() << "a cap was passed";
      } catch (const ResourceFailure& error) {
        EXPECT_EQ(std::string(error.what()).rfind("rank 1: ", 0), 0U) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace zero::testing
