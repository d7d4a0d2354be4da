#include "common/comm/communicator.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/comm/collectives.h"
#include "common/comm/process.h"

namespace zero {

std::string_view name(Purpose purpose) {
  switch (purpose) {
    case Purpose::gradients: return "gradients";
    case Purpose::gradients_across: return "gradients_across";
    case Purpose::parameters: return "parameters";
    case Purpose::scalars: return "scalars";
    case Purpose::control: return "control";
  }
  return "";
}

std::vector<Bucket> buckets(Index slice, Index largest) {
  std::vector<Bucket> all;
  for (Index begin = 0; begin < slice; begin += largest) all.push_back({begin, std::min(largest, slice - begin)});
  return all;
}

Communicator::Communicator(std::unique_ptr<Transport> transport, Device& device)
    : transport_(std::move(transport)), device_(device), rank_(transport_->rank()), size_(transport_->size()) {}

Communicator::Call::Call(Communicator& communicator, Purpose purpose, std::string_view collective, const char* what)
    : communicator_(communicator),
      purpose_(purpose),
      what_(what != nullptr ? what : fmt::format("{} of {}", collective, name(purpose))) {
  Traffic& traffic = communicator_.traffic_[static_cast<std::size_t>(purpose_)];
  ++traffic.calls;
  if (traffic.collective.find(collective) != std::string::npos) return;
  if (!traffic.collective.empty()) traffic.collective += " + ";
  traffic.collective += collective;
}

Communicator::Call::~Call() {
  if (purpose_ == Purpose::control) return;
  communicator_.seconds_ += std::chrono::duration<double>(Clock::now() - start_).count();
}

void Communicator::Call::exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected,
                                  const Transport::Consume& consume) {
  Index sent = 0;
  for (int p = 0; p < communicator_.size(); ++p) {
    if (p != communicator_.rank()) sent += static_cast<Index>(offered[static_cast<std::size_t>(p)].size());
  }
  communicator_.traffic_[static_cast<std::size_t>(purpose_)].sent += sent;
  communicator_.transport_->exchange(offered, expected, consume, what_.c_str());
}

void Communicator::Call::exchange_same(ConstBytes offered, const Transport::Consume& consume) {
  exchange_same_by(*communicator_.transport_, offered, consume);
}

void Communicator::Call::exchange_same_of_hosts(ConstBytes offered, const Transport::Consume& consume) {
  exchange_same_by(communicator_.transport_->host(), offered, consume);
}

void Communicator::Call::exchange_same_by(Transport& transport, ConstBytes offered, const Transport::Consume& consume) {
  const Index peers = communicator_.size() - 1;
  communicator_.traffic_[static_cast<std::size_t>(purpose_)].sent += peers * static_cast<Index>(offered.size());
  transport.exchange_same(offered, consume, what_.c_str());
}

void Communicator::place_own(Array unit, ConstArray slice, Bucket bucket) {
  const Array own = unit.part(rank() * slice_of(unit) + bucket.begin, bucket.size);
  const ConstArray from = slice.part(bucket.begin, bucket.size);
  if (own.data != from.data) device_.kernels().copy(own, from);
}

void Communicator::all_reduce(Array values, Purpose purpose) {
  if (size() == 1) return;
  Call call(*this, purpose, "all_reduce");
  std::vector<ConstArray> terms(static_cast<std::size_t>(size()));
  for (const Bucket part : buckets(values.size, transport_->max_same_block() / size_of(values.dtype))) {
    const Array mine = values.part(part.begin, part.size);
    call.exchange_same(bytes_of(mine), [&](std::span<const ConstBytes> received) {
      for (int p = 0; p < size(); ++p) {
        terms[p] = p == rank() ? ConstArray(mine) : ConstArray{received[p].data(), part.size, values.dtype};
      }
      device_.kernels().tree_sum(mine, terms);
    });
  }
}

std::vector<std::byte> Communicator::gather_bytes(ConstBytes mine, Purpose purpose, const char* what) {
  Call call(*this, purpose, "all_gather", what);
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size()));
  const auto at = [&](int rank, std::size_t offset) {
    return all.data() + static_cast<std::size_t>(rank) * mine.size() + offset;
  };
  const auto most = static_cast<std::size_t>(transport_->host().max_same_block());
  for (std::size_t offset = 0; offset < mine.size(); offset += most) {
    const ConstBytes block = mine.subspan(offset, std::min(most, mine.size() - offset));
    std::memcpy(at(rank(), offset), block.data(), block.size());
    call.exchange_same_of_hosts(block, [&](std::span<const ConstBytes> received) {
      for (int p = 0; p < size(); ++p) {
        const ConstBytes from = received[static_cast<std::size_t>(p)];
        if (p == rank()) continue;
        if (from.size() != block.size()) throw std::length_error("ranks gather different numbers of bytes");
        std::memcpy(at(p, offset), from.data(), from.size());
      }
    });
  }
  return all;
}

void Communicator::barrier() {
  transport_->host().exchange_same(
      {}, [](std::span<const ConstBytes>) {}, "barrier");
}

void Communicator::clear_traffic() {
  traffic_.fill({});
  seconds_ = 0;
}

std::unique_ptr<Communicator> make_communicator(MPI_Comm ranks, CollectiveKind kind, TransportKind transport_kind,
                                                Device& device, double timeout_seconds, Index largest_slice,
                                                Index largest_bucket, CommLimits limits) {
  auto transport = make_transport(ranks, transport_kind, device, timeout_seconds, limits.staging_bytes);
  const Index size = transport->size();
  const auto allocate = [&](Index elements) {
    return agree_to_make(ranks, [&] { return device.allocate_uninitialized(Category::buckets, elements); });
  };
  const bool widens = limits.dtype != Dtype::fp32;
  if (size == 1) {
    Buffer sum = widens ? allocate(kSumBytes / size_of(Dtype::fp32)) : Buffer();
    return std::make_unique<CanonicalCommunicator>(std::move(transport), device, std::move(sum));
  }
  if (kind == CollectiveKind::native) {
    const Index part = std::min({largest_bucket, largest_slice, limits.mpi_count / size});
    Buffer sum = allocate(part);
    Buffer packed = part < largest_slice || widens ? allocate(size * part) : Buffer();
    auto library = device.shares_host_memory() ? make_mpi_collectives(ranks) : make_device_collectives(*transport);
    return std::make_unique<NativeCommunicator>(std::move(transport), std::move(library), device, std::move(sum),
                                                std::move(packed));
  }
  Buffer sum = allocate(kSumBytes / size_of(Dtype::fp32));
  if (kind == CollectiveKind::ring) {
    return std::make_unique<RingCommunicator>(std::move(transport), device, std::move(sum));
  }
  return std::make_unique<CanonicalCommunicator>(std::move(transport), device, std::move(sum));
}

}  // namespace zero
