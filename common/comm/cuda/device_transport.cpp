// Which transport the ranks of a communicator take for device memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/error.h"
#include "common/comm/collectives.h"
#include "common/comm/cuda/nccl_transport.h"
#include "common/comm/cuda/staged_transport.h"
#include "common/comm/process.h"

namespace zero {
namespace {

using cuda::NcclTransport;
using cuda::StagedTransport;

/// Where a rank sits.
struct Seat {
  std::array<char, MPI_MAX_PROCESSOR_NAME> host = {};
  std::array<char, 32> gpu = {};  ///< on the bus of the host
  int rank = 0;                   ///< of all ranks of the job, for people
};

/// Of every rank of `ranks`. Collective.
std::vector<Seat> seats_of(MPI_Comm ranks, const CudaDevice& device) {
  Seat mine;
  int length = 0;
  check_mpi(MPI_Get_processor_name(mine.host.data(), &length), "MPI_Get_processor_name");
  const std::string gpu = device.bus_id();
  std::copy_n(gpu.begin(), std::min(gpu.size(), mine.gpu.size() - 1), mine.gpu.begin());
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &mine.rank), "MPI_Comm_rank");
  int size = 0;
  check_mpi(MPI_Comm_size(ranks, &size), "MPI_Comm_size");
  std::vector<Seat> seats(static_cast<std::size_t>(size));
  constexpr int kBytes = sizeof(Seat);
  check_mpi(MPI_Allgather(&mine, kBytes, MPI_BYTE, seats.data(), kBytes, MPI_BYTE, ranks), "MPI_Allgather");
  return seats;
}

/// The ranks on each GPU, as indices of `seats`.
using Sharing = std::map<std::pair<std::string, std::string>, std::vector<std::size_t>>;

Sharing sharing_of(const std::vector<Seat>& seats) {
  Sharing sharing;
  for (std::size_t i = 0; i < seats.size(); ++i) sharing[{seats[i].host.data(), seats[i].gpu.data()}].push_back(i);
  return sharing;
}

[[noreturn]] void refuse_nccl(const std::vector<Seat>& seats, const Sharing& sharing) {
  const std::vector<std::size_t>* shared = nullptr;  // by the lowest rank that shares
  for (const auto& [gpu, on] : sharing) {
    if (on.size() > 1 && (shared == nullptr || on.front() < shared->front())) shared = &on;
  }
  const Seat& first = seats[shared->at(0)];
  throw UnusableInput(
      fmt::format("--transport nccl: ranks {} and {} share GPU {} ({} ranks, {} GPU{}), which NCCL refuses; start one "
                  "rank per GPU, or use --transport auto, which goes through host memory",
                  first.rank, seats[shared->at(1)].rank, first.gpu.data(), seats.size(), sharing.size(),
                  sharing.size() == 1 ? "" : "s"));
}

Buffer allocate(MPI_Comm ranks, Device& device, Index bytes, Tier tier) {
  return agree_to_make(ranks, [&] {
    return device.allocate_uninitialized(Category::buckets, bytes / size_of(Dtype::fp32), Dtype::fp32, tier);
  });
}

CudaDevice& as_cuda(Device& device) {
  auto* cuda = dynamic_cast<CudaDevice*>(&device);
  if (cuda == nullptr) throw std::logic_error("a device of another kind than CUDA");
  return *cuda;
}

/// NCCL's own reductions and gathers, over the transport's communicator and under its watchdog.
class NcclCollectives final : public LibraryCollectives {
 public:
  explicit NcclCollectives(NcclTransport& transport) : transport_(transport) {}

  void reduce_scatter(Array sum, ConstArray terms) override {
    transport_.queue("ncclReduceScatter", [&](ncclComm_t nccl, cudaStream_t stream) {
      cuda::check(
          ncclReduceScatter(terms.data, sum.data, static_cast<std::size_t>(sum.size), ncclFloat, ncclSum, nccl, stream),
          "ncclReduceScatter");
    });
  }

  void all_gather(Array all, ConstArray mine) override {
    transport_.queue("ncclAllGather", [&](ncclComm_t nccl, cudaStream_t stream) {
      cuda::check(ncclAllGather(mine.data, all.data, static_cast<std::size_t>(mine.bytes()), ncclUint8, nccl, stream),
                  "ncclAllGather");
    });
  }

  [[nodiscard]] std::string description() const override { return "NCCL"; }

 private:
  NcclTransport& transport_;
};

}  // namespace

std::unique_ptr<Transport> make_device_transport(MPI_Comm communicator, TransportKind kind, Device& device,
                                                 double timeout_seconds, Index staging_bytes) {
  CudaDevice& gpu = as_cuda(device);
  const std::vector<Seat> seats = seats_of(communicator, gpu);
  const Sharing sharing = sharing_of(seats);
  const bool alone = sharing.size() == seats.size();  // every rank on its GPU
  if (kind == TransportKind::nccl && !alone) refuse_nccl(seats, sharing);

  Buffer staging = allocate(communicator, device, staging_bytes / 2, Tier::device);
  if (kind == TransportKind::nccl || (kind == TransportKind::automatic && alone)) {
    auto host =
        make_host_transport(communicator, TransportKind::automatic, device, Tier::host, timeout_seconds, staging_bytes);
    return std::make_unique<NcclTransport>(communicator, gpu, std::move(staging), std::move(host), timeout_seconds);
  }
  // Half of the host's memory for what goes down, half for what moves between hosts.
  Buffer pinned = allocate(communicator, device, staging_bytes / 2, Tier::host);
  auto host = make_host_transport(communicator, kind, device, Tier::host, timeout_seconds, staging_bytes / 2);
  std::size_t most = 0;
  for (const auto& [where, on] : sharing) most = std::max(most, on.size());
  return std::make_unique<StagedTransport>(gpu, std::move(staging), std::move(pinned), std::move(host),
                                           static_cast<int>(most));
}

std::unique_ptr<LibraryCollectives> make_device_collectives(Transport& transport) {
  if (auto* nccl = dynamic_cast<NcclTransport*>(&transport)) return std::make_unique<NcclCollectives>(*nccl);
  const auto& staged = dynamic_cast<StagedTransport&>(transport);
  if (staged.is_by_wish()) {
    throw UnusableInput(
        "--collectives native needs NCCL, which --transport shared and messages go without; --transport auto would do");
  }
  throw UnusableInput(
      "--collectives native with ranks that share a GPU would need NCCL, which refuses that; canonical would do");
}

}  // namespace zero
