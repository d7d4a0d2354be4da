#include "common/comm/transport.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/base/error.h"
#include "common/comm/message_transport.h"
#include "common/comm/process.h"
#include "common/comm/shared_transport.h"

namespace zero {
namespace {

constexpr Index kMiB = Index{1} << 20;

/// One rank: everything it is offered comes from itself, so nothing does.
class SelfTransport final : public Transport {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void exchange(std::span<const ConstBytes>, std::span<const std::size_t>, const Consume& consume,
                const char*) override {
    consume(received_);
  }
  void exchange_same(ConstBytes, const Consume& consume, const char*) override { consume(received_); }
  [[nodiscard]] Index max_block() const override { return kStagingBytes; }
  [[nodiscard]] Index max_same_block() const override { return kStagingBytes; }
  [[nodiscard]] std::string description() const override { return "self"; }

 private:
  std::array<ConstBytes, 1> received_;
};

/// The folder where Open MPI keeps the files behind shared windows. A setting of Open MPI, whether exported or given to
/// mpirun, is in the environment; MPI's tool interface would know it too, but takes 0.2 s to start.
std::string window_folder() {
  const char* set = std::getenv("OMPI_MCA_osc_sm_backing_directory");
  return set != nullptr && *set != '\0' ? set : "/dev/shm";
}

/// Whether a process can make a file of `bytes` in the folder and map it: 0, or the errno that says why not. A limit of
/// the process, a folder that is not there: MPI would hang over what one rank alone cannot do.
int window_error(const std::string& folder, Index bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes)) return EFBIG;
  std::string name = folder + "/zero-window-XXXXXX";
  const int file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return errno;
  unlink(name.c_str());
  int error = ftruncate(file, bytes) == 0 ? 0 : errno;
  if (error == 0) {
    void* memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
      error = errno;
    } else {
      munmap(memory, static_cast<std::size_t>(bytes));
    }
  }
  close(file);
  return error;
}

/// Why shared windows cannot be had, the same on all ranks; nothing when they can. Collective.
std::optional<std::string> reason_against_windows(MPI_Comm ranks, Index staging_bytes) {
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(ranks, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(ranks, &size), "MPI_Comm_size");
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int host_size = 0;
  check_mpi(MPI_Comm_size(host, &host_size), "MPI_Comm_size");
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");

  const std::string folder = window_folder();
  struct statvfs status {};
  std::int64_t room = std::numeric_limits<std::int64_t>::max();
  if (statvfs(folder.c_str(), &status) == 0) {
    room = static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
  }
  // Open MPI adds its own state to the file: some cache lines a rank, and a page.
  const Index needed = size * (staging_bytes + 4096) + 65536;
  std::array<std::int64_t, 3> least = {host_size, room, room < needed ? 0 : -window_error(folder, needed)};
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, least.data(), 3, MPI_INT64_T, MPI_MIN, ranks), "MPI_Allreduce");
  if (least[0] < size) return "the ranks are on more than one host";
  if (least[1] < needed) {
    return fmt::format("{} has {:.1f} MiB free and the windows of {} ranks need {:.1f} MiB", folder,
                       static_cast<double>(least[1]) / static_cast<double>(kMiB), size,
                       static_cast<double>(needed) / static_cast<double>(kMiB));
  }
  if (least[2] < 0) {
    return fmt::format("a rank cannot make or map a file of {:.1f} MiB in {}: {}",
                       static_cast<double>(needed) / static_cast<double>(kMiB), folder,
                       std::strerror(static_cast<int>(-least[2])));
  }
  return std::nullopt;
}

/// The transport over windows, or the reason why there is none, the same on all ranks. Collective.
std::unique_ptr<Transport> try_shared(MPI_Comm ranks, Device& device, Tier tier, double timeout_seconds,
                                      Index staging_bytes, std::string& reason) {
  if (const auto against = reason_against_windows(ranks, staging_bytes)) {
    reason = *against;
    return nullptr;
  }
  auto booked =
      agree_to_make(ranks, [&] { return LedgerEntry(device.ledger(), tier, Category::buckets, staging_bytes); });
  try {
    return std::make_unique<SharedTransport>(ranks, std::move(booked), timeout_seconds, staging_bytes);
  } catch (const ResourceFailure&) {  // thrown by all ranks or none
    reason = "MPI could not make the windows";
    return nullptr;
  }
}

}  // namespace

void check_size(ConstBytes received, std::size_t expected) {
  if (received.size() != expected) throw std::length_error("a rank offers a block of another size than is expected");
}

Index block_bytes(Index staging_bytes, int size) {
  const Index block = (staging_bytes - SharedTransport::overhead_bytes(size)) / 2 / (size - 1) / 128 * 128;
  if (block < 128) throw std::length_error("the staging memory is too small for its ranks");
  return block;
}

std::unique_ptr<Transport> make_transport(MPI_Comm communicator, TransportKind kind, Device& device,
                                          double timeout_seconds, Index staging_bytes) {
  if (is_single(communicator)) return std::make_unique<SelfTransport>();
  if (!device.shares_host_memory()) {
    return make_device_transport(communicator, kind, device, timeout_seconds, staging_bytes);
  }
  if (kind == TransportKind::nccl) {
    throw std::logic_error("NCCL for memory of the CPU");
  }
  return make_host_transport(communicator, kind, device, Tier::device, timeout_seconds, staging_bytes);
}

std::unique_ptr<Transport> make_host_transport(MPI_Comm communicator, TransportKind kind, Device& device, Tier tier,
                                               double timeout_seconds, Index staging_bytes) {
  std::string description = "messages";
  if (kind != TransportKind::messages) {
    std::string reason;
    auto shared = try_shared(communicator, device, tier, timeout_seconds, staging_bytes, reason);
    if (shared) return shared;
    if (kind == TransportKind::shared) {
      throw UnusableInput(fmt::format("--transport shared cannot be had: {}; --transport messages would do", reason));
    }
    description = fmt::format("messages ({})", reason);
  }
  auto staging = agree_to_make(communicator, [&] {
    return device.allocate_uninitialized(Category::buckets, staging_bytes / size_of(Dtype::fp32), Dtype::fp32, tier);
  });
  return std::make_unique<MessageTransport>(communicator, std::move(staging), timeout_seconds, std::move(description));
}

}  // namespace zero
