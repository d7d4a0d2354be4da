#include "offload/slices.h"

#include <algorithm>
#include <stdexcept>

namespace zero::offload {
namespace {

class HostSlices final : public Slices {
 public:
  HostSlices(Device& device, Category category, const std::vector<FlatUnit>& units, Dtype dtype) : device_(device) {
    for (const FlatUnit& unit : units)
      slices_.push_back(device.allocate(category, unit.slice_size(), dtype, Tier::host));
  }

  void prefetch(const Chunk& /*chunk*/) override {}
  Array open(const Chunk& chunk) override {
    flush();
    return slices_[chunk.unit].part(chunk.begin, chunk.size);
  }
  Array open_to_overwrite(const Chunk& chunk) override { return open(chunk); }
  void close(const Chunk& /*chunk*/, bool /*changed*/, Mark copied) override {
    if (copied.number > 0) copied_ = copied;  // copies are done in order: the last one stands for all
  }
  void flush() override {
    device_.synchronize(copied_);
    copied_ = {};
  }

 private:
  Device& device_;
  std::vector<Buffer> slices_;  // [unit] (P / N)
  Mark copied_;
};

class SwappedSlices final : public Slices {
 public:
  SwappedSlices(Device& device, Category category, const std::vector<FlatUnit>& units, Dtype dtype, SwapSpace& swap,
                Index buffers)
      : device_(device), swap_(swap) {
    Index largest = 0;
    for (Index u = 0; u < std::ssize(units); ++u) {
      std::vector<SwapSpace::Extent> extents;
      for (const Chunk& chunk : chunks_of(units, u)) {
        extents.push_back(swap.reserve(category, chunk.size * size_of(dtype)));
        largest = std::max(largest, chunk.size);
      }
      extents_.push_back(extents);
    }
    // Whole blocks, since that is what a transfer moves.
    const Index elements = round_up(largest * size_of(dtype), kBlockBytes) / size_of(dtype);
    for (Index i = 0; i < buffers; ++i) {
      slots_.emplace_back().buffer = device.allocate(Category::offload_buffers, elements, dtype, Tier::host);
    }
  }

  /// Nothing is moving when the buffers go, however it ended.
  ~SwappedSlices() override {
    for (Slot& slot : slots_) {
      try {
        finish(slot);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the failure that ends the run was told
      }
    }
  }

  void prefetch(const Chunk& chunk) override {
    if (holder(chunk) != nullptr) return;
    if (Slot* slot = free_slot(); slot != nullptr) start_read(*slot, chunk);
  }

  Array open(const Chunk& chunk) override {
    Slot* slot = holder(chunk);
    if (slot == nullptr) start_read(*(slot = &need_slot()), chunk);
    finish(*slot);
    slot->state = State::open;
    return slot->buffer.part(0, chunk.size);
  }

  Array open_to_overwrite(const Chunk& chunk) override {
    settle(chunk);
    Slot& slot = need_slot();
    wait_for_copy(slot);
    slot.state = State::open;
    slot.extent = extent(chunk);
    return slot.buffer.part(0, chunk.size);
  }

  void close(const Chunk& chunk, bool changed, Mark copied) override {
    Slot* slot = holder(chunk);
    if (slot == nullptr || slot->state != State::open) throw std::logic_error("a chunk is closed that is not open");
    slot->state = State::idle;
    slot->copied = copied;
    if (!changed) return;
    wait_for_copy(*slot);
    slot->ticket = swap_.start_write(slot->extent, slot->buffer.array().data);
    slot->state = State::writing;
    slot->order = ++writes_;
  }

  void flush() override {
    for (Slot& slot : slots_) finish(slot);
  }

 private:
  enum class State { idle, reading, open, writing };
  struct Slot {
    Buffer buffer;
    State state = State::idle;
    SwapSpace::Extent extent = 0;
    SwapSpace::Ticket ticket = 0;
    Mark copied;      // until then the device reads or writes the buffer
    Index order = 0;  // of writes: the smallest began first
  };

  [[nodiscard]] SwapSpace::Extent extent(const Chunk& chunk) const {
    return extents_[chunk.unit][chunk.begin / kChunkElements];
  }
  /// The slot that holds the chunk, or is reading it.
  Slot* holder(const Chunk& chunk) {
    for (Slot& slot : slots_) {
      if (slot.extent == extent(chunk) && (slot.state == State::reading || slot.state == State::open)) return &slot;
    }
    return nullptr;
  }
  /// A slot that nobody needs, if need be that of the oldest write, when it has ended. nullptr: all are open or read.
  Slot* free_slot() {
    Slot* oldest = nullptr;
    for (Slot& slot : slots_) {
      if (slot.state == State::idle) return &slot;
      if (slot.state == State::writing && (oldest == nullptr || slot.order < oldest->order)) oldest = &slot;
    }
    if (oldest != nullptr) finish(*oldest);
    return oldest;
  }
  Slot& need_slot() {
    Slot* slot = free_slot();
    if (slot == nullptr) throw std::logic_error("more chunks are open than there are buffers");
    return *slot;
  }
  /// Waits for what moves of a chunk: an extent has one transfer at a time.
  void settle(const Chunk& chunk) {
    for (Slot& slot : slots_) {
      if (slot.extent == extent(chunk)) finish(slot);
    }
  }
  /// `slot` is free.
  void start_read(Slot& slot, const Chunk& chunk) {
    settle(chunk);
    wait_for_copy(slot);
    slot.ticket = swap_.start_read(extent(chunk), slot.buffer.array().data);
    slot.extent = extent(chunk);
    slot.state = State::reading;
  }
  void wait_for_copy(Slot& slot) {
    device_.synchronize(slot.copied);
    slot.copied = {};
  }
  /// Waits for what moves.
  void finish(Slot& slot) {
    if (slot.state != State::reading && slot.state != State::writing) return;
    slot.state = State::idle;
    swap_.wait(slot.ticket);
  }

  Device& device_;
  SwapSpace& swap_;
  std::vector<std::vector<SwapSpace::Extent>> extents_;  // [unit][chunk]
  std::vector<Slot> slots_;
  Index writes_ = 0;  // begun so far
};

}  // namespace

std::vector<Chunk> chunks_of(const std::vector<FlatUnit>& units, Index unit) {
  std::vector<Chunk> chunks;
  const Index slice = units[unit].slice_size();
  for (Index begin = 0; begin < slice; begin += kChunkElements) {
    chunks.push_back({unit, begin, std::min(kChunkElements, slice - begin)});
  }
  return chunks;
}

std::vector<Chunk> all_chunks(const std::vector<FlatUnit>& units) {
  std::vector<Chunk> chunks;
  for (Index u = 0; u < std::ssize(units); ++u) {
    for (const Chunk& chunk : chunks_of(units, u)) chunks.push_back(chunk);
  }
  return chunks;
}

std::unique_ptr<Slices> host_slices(Device& device, Category category, const std::vector<FlatUnit>& units,
                                    Dtype dtype) {
  return std::make_unique<HostSlices>(device, category, units, dtype);
}

std::unique_ptr<Slices> swapped_slices(Device& device, Category category, const std::vector<FlatUnit>& units,
                                       Dtype dtype, SwapSpace& swap, Index buffers) {
  return std::make_unique<SwappedSlices>(device, category, units, dtype, swap, buffers);
}

}  // namespace zero::offload
