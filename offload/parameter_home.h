#pragma once
/// \file
/// Where this rank's slices of the parameters live, in the type that the model computes with.

#include <functional>
#include <memory>
#include <vector>

#include "common/train/trainer.h"
#include "offload/settings.h"
#include "offload/slices.h"

namespace zero::offload {

class ParameterHome {
 public:
  virtual ~ParameterHome() = default;

  /// Host memory for a chunk's new parameters; close() takes them to where they live.
  virtual Array open_to_overwrite(const Chunk& chunk) = 0;
  virtual void close(const Chunk& chunk) = 0;
  /// The same for new parameters that are in host memory already.
  virtual void take(const Chunk& chunk, ConstArray parameters) = 0;
  /// Waits until all are there.
  virtual void flush() = 0;

  /// Says that bring_up() of the unit comes soon.
  virtual void prefetch(Index unit) = 0;
  /// Copies the slice of a unit into device memory, `own` (P / N).
  virtual void bring_up(Index unit, Array own) = 0;

  /// Shows the slices, chunk by chunk.
  virtual void visit(const std::function<void(StateKind, const UnitView&)>& visit) = 0;
};

/// Writes the initial parameters.
void initialize(ParameterHome& home, const Context& context, const std::vector<FlatUnit>& units);

/// On the device, in `slices` ([unit] (P / N), which outlive it); new ones come up through a host buffer of a chunk.
std::unique_ptr<ParameterHome> device_home(const Context& context, const std::vector<FlatUnit>& units,
                                           std::vector<Array> slices);

/// In host memory, or in the swap file with room in host memory for the slices of two units: one brought up while the
/// next is read. `units` and `swap` outlive it.
std::unique_ptr<ParameterHome> offloaded_home(const Context& context, Tier tier, const std::vector<FlatUnit>& units,
                                              SwapSpace& swap);

/// No home, but room in host memory (Category::offload_buffers) where new parameters wait for the end of a step.
std::unique_ptr<ParameterHome> waiting_room(const Context& context, const std::vector<FlatUnit>& units);

}  // namespace zero::offload
