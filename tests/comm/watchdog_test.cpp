// A rank that never comes to a collective is named by the ranks that wait for it.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/comm/communicator.h"
#include "tests/comm/comm_data.h"
#include "tests/support/mpi_main.h"

namespace zero::testing {
namespace {

void expect_named(CollectiveKind kind, TransportKind transport, const std::string& collective,
                  const std::function<void(Communicator&, std::vector<float>&)>& run) {
  const auto device = make_cpu_device(ProductKind::canonical, 1);
  auto communicator = make_communicator(MPI_COMM_WORLD, kind, transport, *device, 0.5, 320, 320);
  std::vector<float> unit = unit_of(world_rank(), 320 * world_size(), rough);
  if (world_rank() == 2) {
    // Longer than the others wait. They have then let go of what they shared with this rank: so does it.
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    static std::vector<Communicator*> left_alone;
    left_alone.push_back(communicator.release());
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  try {
    run(*communicator, unit);
    ADD_FAILURE() << "nothing was thrown on rank " << world_rank();
  } catch (const ResourceFailure& failure) {
    EXPECT_EQ(failure.what(), collective + ": rank 2 did not come within --timeout 0.5 seconds");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
}

TEST(Watchdog, NamesTheLateRankAndTheCollective) {
  const auto reduce_scatter = [](Communicator& c, std::vector<float>& unit) {
    c.reduce_scatter(view(unit), {0, 320}, Purpose::gradients, [](Index, Array) {});
  };
  const auto all_gather = [](Communicator& c, std::vector<float>& unit) {
    c.all_gather(view(unit), {0, 320}, Purpose::parameters).wait();
  };
  for (const auto transport : {TransportKind::shared, TransportKind::messages}) {
    for (const auto kind : {CollectiveKind::canonical, CollectiveKind::ring, CollectiveKind::native}) {
      expect_named(kind, transport, "reduce_scatter of gradients", reduce_scatter);
    }
    expect_named(CollectiveKind::canonical, transport, "all_gather of parameters", all_gather);
    expect_named(CollectiveKind::canonical, transport, "barrier", [](Communicator& c, auto&) { c.barrier(); });
    expect_named(CollectiveKind::canonical, transport, "loss",
                 [](Communicator& c, auto&) { c.gather(1.0, Purpose::scalars, "loss"); });
  }
}

}  // namespace
}  // namespace zero::testing
