#pragma once
/// \file
/// The communicators of a run: all ranks, the groups over which states are sharded, and the ranks that hold the same
/// slice in different groups.

#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/shard/flat_unit.h"

namespace zero {

/// What the communicators of a run depend on.
struct GroupSetting {
  Index shard_group = 0;  ///< S: ranks in a sharding group, which are consecutive; 0 or N: one group of all
  CollectiveKind collectives = CollectiveKind::canonical;
  TransportKind transport = TransportKind::automatic;
  double timeout_seconds = 60;
  Dtype dtype = Dtype::fp32;  ///< of units
  Index bucket_bytes = 0;     ///< largest collective; 0: a unit
};

/// Owns them. With one group, `group` is `world` and `across` has one rank.
class RankGroups {
 public:
  /// `ranks` may be MPI_COMM_SELF, which needs no MPI. `units` are cut into as many slices as a group has ranks.
  /// Collective, and so is the destruction.
  RankGroups(MPI_Comm ranks, const GroupSetting& setting, const std::vector<FlatUnit>& units, Device& device);

  [[nodiscard]] Communicator& world() { return *world_; }
  [[nodiscard]] Communicator& group() { return group_ ? *group_ : *world_; }
  [[nodiscard]] Communicator& across() { return *across_; }

  /// For the plan: how sharding groups communicate, and where that differs what goes between them.
  [[nodiscard]] std::string description() const;

  /// Starts the counts of a step at zero.
  void clear_traffic();
  /// What this rank sent for a purpose since then, over all of them.
  [[nodiscard]] Traffic traffic(Purpose purpose) const;
  /// Seconds in collectives since then. Those across groups run inside those of the group.
  [[nodiscard]] double seconds() const { return world_->seconds() + (group_ ? group_->seconds() : 0); }

 private:
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> group_;  // where it is not all ranks
  std::unique_ptr<Communicator> across_;
};

}  // namespace zero
