#include "common/train/groups.h"

#include <algorithm>

#include "common/comm/mpi_api.h"

namespace zero {
namespace {

/// A communicator of MPI's for as long as ours is made from it.
class SplitComm {
 public:
  SplitComm(MPI_Comm ranks, int color, int key) {
    check_mpi(MPI_Comm_split(ranks, color, key, &comm_), "MPI_Comm_split");
  }
  ~SplitComm() { MPI_Comm_free(&comm_); }
  SplitComm(const SplitComm&) = delete;
  SplitComm& operator=(const SplitComm&) = delete;
  [[nodiscard]] MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace

RankGroups::RankGroups(MPI_Comm ranks, const GroupSetting& setting, const std::vector<FlatUnit>& units,
                       Device& device) {
  Index largest_slice = 0;
  Index largest_bucket = 0;
  for (const FlatUnit& unit : units) {
    const Index column = unit.slices() * size_of(setting.dtype);
    const Index bucket =
        setting.bucket_bytes == 0 ? unit.slice_size() : std::max<Index>(1, setting.bucket_bytes / column);
    largest_slice = std::max(largest_slice, unit.slice_size());
    largest_bucket = std::max(largest_bucket, std::min(bucket, unit.slice_size()));
  }
  CommLimits limits;
  limits.dtype = setting.dtype;
  const auto make = [&](MPI_Comm comm, CollectiveKind kind, const CommLimits& its_limits) {
    return make_communicator(comm, kind, setting.transport, device, setting.timeout_seconds, largest_slice,
                             largest_bucket, its_limits);
  };
  int N = 1;
  if (ranks != MPI_COMM_SELF) check_mpi(MPI_Comm_size(ranks, &N), "MPI_Comm_size");
  const auto S = static_cast<int>(setting.shard_group);
  if (S == 0 || S == N) {
    world_ = make(ranks, setting.collectives, limits);
    across_ = make(MPI_COMM_SELF, CollectiveKind::canonical, {});
    return;
  }
  // Only losses and errors go through the world, and only fp32 sums across groups.
  world_ = make(ranks, CollectiveKind::canonical, {});
  const int rank = world_->rank();
  group_ = make(SplitComm(ranks, rank / S, rank).get(), setting.collectives, limits);
  across_ = make(SplitComm(ranks, rank % S, rank).get(), CollectiveKind::canonical, {});
}

std::string RankGroups::description() const {
  if (!group_) return world_->description();
  if (group_->size() == 1) return across_->description();
  const std::string within = group_->description(), between = across_->description();
  return within == between ? within : within + "; between groups " + between;
}

void RankGroups::clear_traffic() {
  world_->clear_traffic();
  if (group_) group_->clear_traffic();
  across_->clear_traffic();
}

Traffic RankGroups::traffic(Purpose purpose) const {
  Traffic sum;
  for (const Communicator* comm : {world_.get(), group_.get(), across_.get()}) {
    if (comm == nullptr) continue;
    const Traffic& traffic = comm->traffic(purpose);
    if (sum.collective.empty()) sum.collective = traffic.collective;
    sum.sent += traffic.sent;
    sum.calls += traffic.calls;
  }
  return sum;
}

}  // namespace zero
