#pragma once
/// \file
/// One state of this rank's slices (say, the momentum of every unit) outside the device: in host memory, or in the swap
/// file with a few host buffers through which it passes.

#include <memory>
#include <vector>

#include "common/device/device.h"
#include "common/shard/flat_unit.h"
#include "common/storage/swap_space.h"

namespace zero::offload {

/// Elements [begin, begin + size) of this rank's slice of a unit: what moves as one.
struct Chunk {
  Index unit = 0;
  Index begin = 0;
  Index size = 0;
};

/// Elements of a chunk at most: 1 MiB of fp32.
inline constexpr Index kChunkElements = Index{1} << 18;

/// A unit's slice cut into chunks, and all slices, unit after unit.
std::vector<Chunk> chunks_of(const std::vector<FlatUnit>& units, Index unit);
std::vector<Chunk> all_chunks(const std::vector<FlatUnit>& units);

/// A chunk is opened, read or written in host memory, and closed again.
class Slices {
 public:
  virtual ~Slices() = default;

  /// Says that the chunk will be opened soon: starts reading it, if there is a free buffer for it.
  virtual void prefetch(const Chunk& chunk) = 0;
  /// The chunk's elements, in host memory, until it is closed. Waits for them, and for a copy that close() spoke of.
  virtual Array open(const Chunk& chunk) = 0;
  /// The same for a chunk of which every element will be written: nothing is read.
  virtual Array open_to_overwrite(const Chunk& chunk) = 0;
  /// Ends what open() began. `changed`: the elements go back to where they live (in the background). `copied` is where
  /// a copy between them and the device is done.
  virtual void close(const Chunk& chunk, bool changed, Mark copied = {}) = 0;
  /// Waits until everything is where it lives.
  virtual void flush() = 0;
};

/// Slices that stay in host memory: opening and closing does nothing.
std::unique_ptr<Slices> host_slices(Device& device, Category category, const std::vector<FlatUnit>& units, Dtype dtype);

/// Slices in the swap file, `buffers` chunks of which are in host memory at a time (Category::offload_buffers): open,
/// being read, or being written back. More chunks opened at once than there are buffers is std::logic_error.
std::unique_ptr<Slices> swapped_slices(Device& device, Category category, const std::vector<FlatUnit>& units,
                                       Dtype dtype, SwapSpace& swap, Index buffers);

}  // namespace zero::offload
