#include "common/comm/cuda/nccl_transport.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/base/error.h"
#include "common/comm/process.h"

namespace zero::cuda {
namespace {

std::unique_ptr<NcclComm> make_nccl(const OwnedComm& ranks, int gpu) {
  // An id tells nothing about GPUs: NCCL gives one without any.
  auto id = agree_to_make(ranks.get(), [&] {
    ncclUniqueId made = {};
    if (ranks.rank() == 0) check(ncclGetUniqueId(&made), "ncclGetUniqueId");
    return made;
  });
  check_mpi(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, ranks.get()), "MPI_Bcast");
  return agree_to_make(ranks.get(), [&] {
    check(cudaSetDevice(gpu), "cudaSetDevice");
    return std::make_unique<NcclComm>(id, ranks.size(), ranks.rank());
  });
}

/// Left to the end of the process: its peers cannot be relied upon, and its end would wait for them.
void leave_alone(std::unique_ptr<Transport> transport) {
  static auto& left_alone = *new std::vector<Transport*>;  // destroyed neither
  left_alone.push_back(transport.release());
}

}  // namespace

NcclTransport::NcclTransport(MPI_Comm ranks, CudaDevice& device, Buffer staging, std::unique_ptr<Transport> host,
                             double timeout_seconds)
    : comm_(ranks),
      device_(device),
      timeout_seconds_(timeout_seconds),
      max_block_(block_bytes(staging.array().bytes(), comm_.size())),
      staging_(std::move(staging)),
      host_(std::move(host)),
      nccl_(make_nccl(comm_, device.ordinal())),
      watch_(device.watches().add([this] { look(); })),
      received_(static_cast<std::size_t>(comm_.size())) {
  connect();
}

NcclTransport::~NcclTransport() {
  if (guard_.unwinding()) nccl_->abort();  // waits for nobody
  try {
    device_.wait(used_);  // the present queue gives the staging memory back
    if (!failed_ && !guard_.unwinding()) device_.synchronize(used_);
  } catch (const Error&) {
    // The run had its results; that its end failed as well adds nothing.
  }
  if (failed_) leave_alone(std::move(host_));
}

void NcclTransport::connect() {
  agree_to_make(comm_.get(), [this] {
    const Index beyond = (size() - 1) * max_block_ / size_of(Dtype::fp32);  // where nothing is received
    const Array block = staging_.array().part(beyond, 128 / size_of(Dtype::fp32));
    device_.kernels().fill(block, 0);
    exchange_same(
        {static_cast<const std::byte*>(block.data), static_cast<std::size_t>(block.bytes())},
        [](std::span<const ConstBytes>) {}, "the first exchange of NCCL");
    device_.synchronize(device_.mark());
    return true;
  });
}

void NcclTransport::queue(const char* what, const Calls& calls) {
  if (failed_) throw ResourceFailure(fmt::format("{}: NCCL was given up before", what));
  if (in_flight_.full()) {
    device_.watches().wait(in_flight_.done());
    in_flight_.look();
  }
  const cudaStream_t stream = device_.stream();
  in_flight_.begin(what, stream);
  try {
    check(ncclGroupStart(), "ncclGroupStart");
    calls(nccl_->get(), stream);
    check(ncclGroupEnd(), "ncclGroupEnd");
  } catch (const Error& error) {
    ncclGroupEnd();  // a group that is left open would keep the communicator
    give_up();
    throw ResourceFailure(fmt::format("{}: on rank {} {}", what, rank(), error.what()));
  }
  in_flight_.end(stream);
  used_ = device_.mark();
}

void NcclTransport::exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected,
                             const Consume& consume, const char* what) {
  auto* room = static_cast<std::byte*>(staging_.array().data);
  bool moves = false;
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const auto i = static_cast<std::size_t>(p);
    if (static_cast<Index>(std::max(offered[i].size(), expected[i])) > max_block_) {
      throw std::length_error("a block of an exchange is larger than max_block()");
    }
    moves = moves || !offered[i].empty() || expected[i] > 0;
    received_[i] = {room, expected[i]};
    room += max_block_;
  }
  if (moves) {
    queue(what, [&](ncclComm_t nccl, cudaStream_t stream) {
      for (int p = 0; p < size(); ++p) {
        if (p == rank()) continue;
        const auto i = static_cast<std::size_t>(p);
        if (!offered[i].empty()) {
          check(ncclSend(offered[i].data(), offered[i].size(), ncclUint8, p, nccl, stream), "ncclSend");
        }
        if (expected[i] > 0) {
          auto* to = const_cast<std::byte*>(received_[i].data());
          check(ncclRecv(to, expected[i], ncclUint8, p, nccl, stream), "ncclRecv");
        }
      }
    });
  }
  consume(received_);
  used_ = device_.mark();
}

void NcclTransport::exchange_same(ConstBytes offered, const Consume& consume, const char* what) {
  const std::vector<ConstBytes> to_all(static_cast<std::size_t>(size()), offered);
  const std::vector<std::size_t> from_all(static_cast<std::size_t>(size()), offered.size());
  exchange(to_all, from_all, consume, what);
}

void NcclTransport::look() {
  if (failed_) return;
  const ncclResult_t error = nccl_->asynchronous_error();
  if (error != ncclSuccess) fail(fmt::format("NCCL reports: {}", meaning(error)));
  if (in_flight_.look() > timeout_seconds_) {
    fail(fmt::format("NCCL made no progress within --timeout {:g} seconds", timeout_seconds_));
  }
}

void NcclTransport::fail(const std::string& reason) {
  const std::string what = in_flight_.empty() ? "a collective" : in_flight_.what();
  give_up();
  throw ResourceFailure(fmt::format("{}: on rank {} {}", what, rank(), reason));
}

void NcclTransport::give_up() {
  failed_ = true;
  comm_.abandon();
  nccl_->abort();
}

std::string NcclTransport::description() const { return fmt::format("NCCL {}, one GPU a rank", nccl_version()); }

}  // namespace zero::cuda
