#include "tests/fakes/nccl_over_mpi/bootstrap.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tests/fakes/cuda_on_host/device.h"

namespace nccl_over_mpi {
namespace {

constexpr int kFirstTag = 20000, kTags = 10000;  // of MPI_COMM_WORLD, where nobody else uses such high ones

/// What a unique id says.
struct Meeting {
  char mark[16];
  int root;    ///< rank of MPI_COMM_WORLD that made it
  int number;  ///< of those that it made
};
constexpr char kMark[16] = "NCCL over MPI";

/// A rank, as it tells the root.
struct Member {
  int world_rank, rank, ranks;
  char gpu[MPI_MAX_PROCESSOR_NAME + 16];  ///< host and PCI bus
};

static_assert(sizeof(Meeting) <= sizeof(ncclUniqueId));
static_assert(std::is_trivially_copyable_v<Member>);

Member myself(int ranks, int rank) {
  Member me = {};
  MPI_Comm_rank(MPI_COMM_WORLD, &me.world_rank);
  me.rank = rank;
  me.ranks = ranks;
  int size = 0;
  MPI_Get_processor_name(me.gpu, &size);
  me.gpu[size] = ' ';
  cudaDeviceGetPCIBusId(me.gpu + size + 1, 16, cuda_on_host::current_device());
  return me;
}

/// Why the ranks, in order, are none of one communicator; or nothing.
std::string problem_of(const std::vector<Member>& members) {
  for (std::size_t r = 0; r < members.size(); ++r) {
    if (members[r].rank != static_cast<int>(r) || members[r].ranks != static_cast<int>(members.size())) {
      return "the ranks that meet are not 0 to " + std::to_string(members.size() - 1);
    }
    for (std::size_t other = 0; other < r; ++other) {
      if (std::strcmp(members[r].gpu, members[other].gpu) != 0) continue;
      return "Duplicate GPU detected : rank " + std::to_string(other) + " and rank " + std::to_string(r) +
             " both on CUDA device " + members[r].gpu;
    }
  }
  return "";
}

/// All members in the order of ranks, the same in every rank: through the root.
std::vector<Member> gather(const Meeting& meeting, const Member& me) {
  const int join = kFirstTag + meeting.number % kTags, answer = join + kTags;
  std::vector<Member> members(static_cast<std::size_t>(me.ranks));
  const int bytes = static_cast<int>(members.size() * sizeof(Member));
  if (me.world_rank != meeting.root) {
    MPI_Send(&me, sizeof me, MPI_BYTE, meeting.root, join, MPI_COMM_WORLD);
    MPI_Recv(members.data(), bytes, MPI_BYTE, meeting.root, answer, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return members;
  }
  members[0] = me;
  for (std::size_t m = 1; m < members.size(); ++m) {
    MPI_Recv(&members[m], sizeof me, MPI_BYTE, MPI_ANY_SOURCE, join, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.rank < b.rank; });
  for (const Member& member : members) {
    if (member.world_rank != me.world_rank) {
      MPI_Send(members.data(), bytes, MPI_BYTE, member.world_rank, answer, MPI_COMM_WORLD);
    }
  }
  return members;
}

}  // namespace

ncclUniqueId make_id() {
  static int number = 0;
  Meeting meeting = {};
  std::memcpy(meeting.mark, kMark, sizeof kMark);
  MPI_Comm_rank(MPI_COMM_WORLD, &meeting.root);
  meeting.number = number++;
  ncclUniqueId id = {};
  std::memcpy(&id, &meeting, sizeof meeting);
  return id;
}

MPI_Comm meet(const ncclUniqueId& id, int ranks, int rank, std::string& problem) {
  Meeting meeting = {};
  std::memcpy(&meeting, &id, sizeof meeting);
  if (std::memcmp(meeting.mark, kMark, sizeof kMark) != 0) {
    problem = "the unique id was not made by ncclGetUniqueId";
    return MPI_COMM_NULL;
  }
  const std::vector<Member> members = gather(meeting, myself(ranks, rank));
  problem = problem_of(members);
  if (!problem.empty()) return MPI_COMM_NULL;

  std::vector<int> world_ranks;
  for (const Member& member : members) world_ranks.push_back(member.world_rank);
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, ranks, world_ranks.data(), &group);
  MPI_Comm_create_group(MPI_COMM_WORLD, group, kFirstTag + meeting.number % kTags, &comm);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

}  // namespace nccl_over_mpi
