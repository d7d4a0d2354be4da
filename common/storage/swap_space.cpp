#include "common/storage/swap_space.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "common/base/error.h"

namespace zero {
namespace {

std::uint64_t checksum(const void* memory, Index bytes) { return XXH3_64bits(memory, static_cast<std::size_t>(bytes)); }

}  // namespace

SwapSpace::SwapSpace(Device& device, int rank, Index most_transfer_bytes)
    : device_(device), rank_(rank), most_transfer_bytes_(most_transfer_bytes) {
  if (most_transfer_bytes < kBlockBytes || most_transfer_bytes > kMostTransferBytes ||
      most_transfer_bytes % kBlockBytes != 0) {
    throw std::logic_error("transfers of a size that a file cannot move");
  }
}

SwapSpace::~SwapSpace() {
  file_.reset();
  for (const Place& place : places_) device_.ledger().remove(Tier::nvme, place.category, place.bytes);
}

SwapSpace::Extent SwapSpace::reserve(Category category, Index bytes) {
  if (file_ != nullptr) throw std::logic_error("an extent reserved after the file was made");
  if (bytes <= 0) throw std::logic_error("an extent without bytes");
  const Index whole = round_up(bytes, kBlockBytes);
  places_.push_back({category, end_, whole});
  try {
    device_.ledger().add(Tier::nvme, category, whole);
  } catch (...) {
    places_.pop_back();
    throw;
  }
  end_ += whole;
  return static_cast<Extent>(places_.size()) - 1;
}

void SwapSpace::open(const OpenBlockFile& open_file) {
  if (file_ != nullptr) throw std::logic_error("a swap space opened twice");
  if (end_ > 0) file_ = open_file(end_);
}

SwapSpace::Ticket SwapSpace::start_write(Extent extent, const void* memory) {
  // A transfer has one pointer for both directions; a write only reads from it.
  const Ticket ticket = start(Transfer::Kind::write, extent, const_cast<void*>(memory));
  Place& place = places_[static_cast<std::size_t>(extent)];
  place.checksum = checksum(memory, place.bytes);  // beside the transfer
  return ticket;
}

SwapSpace::Ticket SwapSpace::start_read(Extent extent, void* memory) {
  return start(Transfer::Kind::read, extent, memory);
}

SwapSpace::Ticket SwapSpace::start(Transfer::Kind kind, Extent extent, void* memory) {
  if (file_ == nullptr) throw std::logic_error("a transfer before the file was made");
  Place& place = places_.at(static_cast<std::size_t>(extent));
  const bool reads = kind == Transfer::Kind::read;
  if (place.busy) throw std::logic_error("two transfers of one extent at a time");
  if (reads && !place.written) throw std::logic_error("a read of an extent that was not written");
  if (reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(kBlockBytes) != 0) {
    throw std::logic_error("a transfer to or from memory that does not begin at a whole block");
  }
  place.busy = true;
  (reads ? device_.transfers().read : device_.transfers().written) += place.bytes;
  const Ticket ticket = next_ticket_++;
  for (Index begin = 0; begin < place.bytes; begin += most_transfer_bytes_) {
    while (not_ended_ >= file_->depth()) take_completion();
    Transfer transfer;
    transfer.kind = kind;
    transfer.offset = place.offset + begin;
    transfer.memory = static_cast<std::byte*>(memory) + begin;
    transfer.bytes = std::min(place.bytes - begin, most_transfer_bytes_);
    transfer.id = next_transfer_++;
    under_way_.push_back({ticket, extent, transfer});
    ++not_ended_;
    file_->start(transfer);
  }
  return ticket;
}

void SwapSpace::take_completion() {
  const Completion completion = file_->wait();
  const auto ended = std::find_if(under_way_.begin(), under_way_.end(),
                                  [&](const UnderWay& one) { return one.transfer.id == completion.id; });
  if (ended == under_way_.end() || ended->ended) throw std::logic_error("the end of a transfer that was not started");
  ended->ended = true;
  ended->result = completion.result;
  --not_ended_;
}

void SwapSpace::wait(Ticket ticket) {
  const auto belongs = [&](const UnderWay& one) { return one.ticket == ticket; };
  const auto first = std::find_if(under_way_.begin(), under_way_.end(), belongs);
  if (first == under_way_.end()) throw std::logic_error("a ticket that is not under way");
  const Transfer whole = first->transfer;  // begins where the extent does
  Place& place = places_[static_cast<std::size_t>(first->extent)];
  while (std::any_of(first, under_way_.end(), [&](const UnderWay& one) { return belongs(one) && !one.ended; })) {
    take_completion();
  }
  std::string wrong;
  for (auto one = first; one != under_way_.end() && wrong.empty(); ++one) {
    if (belongs(*one)) wrong = fault(*one);
  }
  std::erase_if(under_way_, belongs);
  place.busy = false;
  if (whole.kind == Transfer::Kind::write) place.written = wrong.empty();
  if (wrong.empty() && whole.kind == Transfer::Kind::read && checksum(whole.memory, place.bytes) != place.checksum) {
    wrong = where(place.offset) + "the bytes read are not those written (checksum)";
  }
  if (!wrong.empty()) throw ResourceFailure(wrong);
}

std::string SwapSpace::fault(const UnderWay& ended) const {
  const Transfer& transfer = ended.transfer;
  const bool reads = transfer.kind == Transfer::Kind::read;
  if (ended.result < 0) {
    return fmt::format("{}{} {} bytes failed: {}", where(transfer.offset), reads ? "reading" : "writing",
                       transfer.bytes, std::strerror(static_cast<int>(-ended.result)));
  }
  std::string wrong;
  if (ended.result != transfer.bytes) {
    wrong = fmt::format("{} {} of {} bytes", reads ? "read" : "wrote", ended.result, transfer.bytes);
  }
  if (const Index size = file_->size(); size != end_) {
    wrong += fmt::format("{}the file was {} by something else (it has {} bytes, not {})", wrong.empty() ? "" : "; ",
                         size < end_ ? "truncated" : "enlarged", size, end_);
  }
  return wrong.empty() ? wrong : where(transfer.offset) + wrong;
}

std::string SwapSpace::where(Index offset) const {
  return fmt::format("rank {}: {}, offset {}: ", rank_, file_->path(), offset);
}

}  // namespace zero
