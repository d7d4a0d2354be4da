#include "common/comm/message_transport.h"

#include <climits>
#include <stdexcept>
#include <utility>

#include "common/comm/wait.h"

namespace zero {
namespace {

constexpr int kTag = 1;

}  // namespace

MessageTransport::MessageTransport(MPI_Comm ranks, Buffer staging, double timeout_seconds, std::string description)
    : comm_(ranks),
      staging_(std::move(staging)),
      timeout_seconds_(timeout_seconds),
      description_(std::move(description)),
      max_block_(block_bytes(staging_.array().bytes(), comm_.size())),
      requests_(2 * static_cast<std::size_t>(comm_.size()), MPI_REQUEST_NULL),
      statuses_(requests_.size()),
      received_(static_cast<std::size_t>(comm_.size())) {
  if (max_block_ > INT_MAX) throw std::length_error("a block would be longer than a message can be");
}

void MessageTransport::exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected,
                                const Consume& consume, const char* what) {
  auto* room = static_cast<std::byte*>(staging_.array().data);
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const auto i = static_cast<std::size_t>(p);
    check_mpi(MPI_Irecv(room, static_cast<int>(max_block_), MPI_BYTE, p, kTag, comm_.get(), &requests_[2 * i]),
              "MPI_Irecv");
    received_[i] = {room, 0};
    room += max_block_;
  }
  for (int step = 1; step < size(); ++step) {
    const int p = (rank() + step) % size();  // not all to rank 0 first
    const auto i = static_cast<std::size_t>(p);
    const auto bytes = static_cast<Index>(offered[i].size());
    if (bytes > max_block_) throw std::length_error("a block of an exchange is larger than max_block()");
    check_mpi(
        MPI_Isend(offered[i].data(), static_cast<int>(bytes), MPI_BYTE, p, kTag, comm_.get(), &requests_[2 * i + 1]),
        "MPI_Isend");
  }
  wait_for_all(what);
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const auto i = static_cast<std::size_t>(p);
    int bytes = 0;
    check_mpi(MPI_Get_count(&statuses_[2 * i], MPI_BYTE, &bytes), "MPI_Get_count");
    received_[i] = {received_[i].data(), static_cast<std::size_t>(bytes)};
    check_size(received_[i], expected[i]);
  }
  consume(received_);
}

void MessageTransport::exchange_same(ConstBytes offered, const Consume& consume, const char* what) {
  const std::vector<ConstBytes> to_all(static_cast<std::size_t>(size()), offered);
  const std::vector<std::size_t> from_all(static_cast<std::size_t>(size()), offered.size());
  exchange(to_all, from_all, consume, what);
}

void MessageTransport::wait_for_all(const char* what) {
  Waiter waiter(timeout_seconds_, size());
  while (true) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data()),
              "MPI_Testall");
    if (done != 0) return;
    if (!waiter.pause()) fail(what);
  }
}

void MessageTransport::fail(const char* what) {
  std::vector<int> late;
  for (int p = 0; p < size(); ++p) {
    bool complete = true;
    for (const bool receives : {true, false}) {
      MPI_Request& request = requests_[2 * static_cast<std::size_t>(p) + (receives ? 0 : 1)];
      if (request == MPI_REQUEST_NULL) continue;
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) continue;
      complete = false;
      // Nothing may be written to the staging memory once it has been given back.
      if (receives) MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
    if (!complete) late.push_back(p);
  }
  comm_.abandon();
  fail_late(what, late, timeout_seconds_);
}

}  // namespace zero
