#include "common/comm/shared_transport.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/base/error.h"
#include "common/comm/stream_copy.h"
#include "common/comm/wait.h"

namespace zero {
namespace {

constexpr Index kLine = SharedWindow::kAlignment;  // two cache lines: processors fetch them in pairs

}  // namespace

LedgerEntry::LedgerEntry(MemoryLedger& ledger, Tier tier, Category category, Index bytes)
    : ledger_(&ledger), tier_(tier), category_(category), bytes_(bytes) {
  ledger_->add(tier_, category_, bytes_);
}

LedgerEntry::LedgerEntry(LedgerEntry&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      tier_(other.tier_),
      category_(other.category_),
      bytes_(other.bytes_) {}

LedgerEntry::~LedgerEntry() {
  if (ledger_ != nullptr) ledger_->remove(tier_, category_, bytes_);
}

SharedWindow::SharedWindow(MPI_Comm ranks, Index bytes) {
  int size = 0;
  check_mpi(MPI_Comm_size(ranks, &size), "MPI_Comm_size");
  void* mine = nullptr;
  const int made = MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, ranks, &mine, &window_);
  int all_made = made == MPI_SUCCESS ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all_made, 1, MPI_INT, MPI_MIN, ranks), "MPI_Allreduce");
  if (all_made == 0) {
    check_mpi(made, "MPI_Win_allocate_shared");
    throw ResourceFailure("MPI_Win_allocate_shared failed on another rank");
  }
  // Ranks read and write with plain loads and stores ordered by atomic counters; the epoch only tells MPI so.
  check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
  for (int rank = 0; rank < size; ++rank) {
    MPI_Aint segment = 0;
    int unit = 0;
    void* base = nullptr;
    check_mpi(MPI_Win_shared_query(window_, rank, &segment, &unit, static_cast<void*>(&base)), "MPI_Win_shared_query");
    // Windows lie at the same place of a page in every process, so that all skip the same number of bytes.
    auto address = reinterpret_cast<std::uintptr_t>(base);
    address = (address + kAlignment - 1) / kAlignment * kAlignment;
    base_.push_back(reinterpret_cast<std::byte*>(address));
  }
}

SharedWindow::~SharedWindow() {
  if (abandoned_ || guard_.unwinding()) return;
  MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
}

Index SharedTransport::header_bytes(int size) {
  return kLine + round_up(2 * Index{size} * static_cast<Index>(sizeof(Block)), kLine);
}

Index SharedTransport::overhead_bytes(int size) { return SharedWindow::kAlignment + header_bytes(size); }

SharedTransport::SharedTransport(MPI_Comm ranks, LedgerEntry booked, double timeout_seconds, Index staging_bytes)
    : comm_(ranks),
      booked_(std::move(booked)),
      timeout_seconds_(timeout_seconds),
      staging_bytes_(staging_bytes),
      half_bytes_((staging_bytes - overhead_bytes(comm_.size())) / 2 / kLine * kLine),
      max_block_(block_bytes(staging_bytes, comm_.size())),
      window_(comm_.get(), staging_bytes),
      expected_(static_cast<std::size_t>(comm_.size())),
      received_(static_cast<std::size_t>(comm_.size())) {
  new (&arrivals(rank())) Counter(0);
  check_mpi(MPI_Barrier(comm_.get()), "MPI_Barrier");  // no counter is read before it is made
}

SharedTransport::Block* SharedTransport::table(int rank) const {
  auto* tables = reinterpret_cast<Block*>(window_.of(rank) + kLine);
  return tables + (done_ % 2 == 0 ? 0 : size());
}

Index SharedTransport::half_offset() const { return header_bytes(size()) + (done_ % 2 == 0 ? 0 : half_bytes_); }

void SharedTransport::exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected,
                               const Consume& consume, const char* what) {
  Index offset = half_offset();
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const ConstBytes block = offered[static_cast<std::size_t>(p)];
    const auto bytes = static_cast<Index>(block.size());
    if (bytes > max_block_) throw std::length_error("a block of an exchange is larger than max_block()");
    stream_copy(window_.of(rank()) + offset, block.data(), block.size());
    table(rank())[p] = {offset, bytes};
    offset += round_up(bytes, kLine);
    expected_[static_cast<std::size_t>(p)] = expected[static_cast<std::size_t>(p)];
  }
  meet(consume, what);
}

void SharedTransport::exchange_same(ConstBytes offered, const Consume& consume, const char* what) {
  const auto bytes = static_cast<Index>(offered.size());
  if (bytes > half_bytes_) throw std::length_error("the block of an exchange is larger than max_same_block()");
  stream_copy(window_.of(rank()) + half_offset(), offered.data(), offered.size());
  for (int p = 0; p < size(); ++p) table(rank())[p] = {half_offset(), bytes};
  std::fill(expected_.begin(), expected_.end(), offered.size());
  meet(consume, what);
}

void SharedTransport::meet(const Consume& consume, const char* what) {
  const std::uint64_t exchange = done_ + 1;
  arrivals(rank()).store(exchange, std::memory_order_release);
  Waiter waiter(timeout_seconds_, size());
  for (int p = 0; p < size(); ++p) {
    while (arrivals(p).load(std::memory_order_acquire) < exchange) {
      if (!waiter.pause()) fail(what);
    }
  }
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const Block block = table(p)[rank()];
    received_[static_cast<std::size_t>(p)] = {window_.of(p) + block.offset, static_cast<std::size_t>(block.bytes)};
    check_size(received_[static_cast<std::size_t>(p)], expected_[static_cast<std::size_t>(p)]);
  }
  consume(received_);
  ++done_;
}

void SharedTransport::fail(const char* what) {
  std::vector<int> late;
  for (int p = 0; p < size(); ++p) {
    if (arrivals(p).load(std::memory_order_acquire) < done_ + 1) late.push_back(p);
  }
  window_.abandon();
  comm_.abandon();
  fail_late(what, late, timeout_seconds_);
}

std::string SharedTransport::description() const {
  constexpr Index kMiB = Index{1} << 20;
  const bool whole = staging_bytes_ % kMiB == 0;
  return whole ? fmt::format("shared memory windows, {} MiB a rank", staging_bytes_ / kMiB)
               : fmt::format("shared memory windows, {} bytes a rank", staging_bytes_);
}

}  // namespace zero
