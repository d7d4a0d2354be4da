#pragma once
/// \file
/// AdamW on the host: the optimizer's side of ZeRO-Offload (Ren et al. 2021, section 4) and ZeRO-Infinity (Rajbhandari
/// et al. 2021, section 5).

#include <functional>
#include <memory>
#include <vector>

#include "common/base/thread_pool.h"
#include "common/optim/adamw.h"
#include "common/train/trainer.h"
#include "offload/settings.h"
#include "offload/slices.h"

namespace zero::offload {

/// This rank's slices of the fp32 weights, momentum, variance and of the averaged gradient, in host memory or in the
/// swap file. In fp32 training, too, the weights here are copies of their own: the parameters live elsewhere.
class OptimizerStates {
 public:
  /// Reserves room; `units` and `swap` outlive it. The values come with initialize(), when the swap file is open.
  OptimizerStates(const Context& context, const Settings& settings, const std::vector<FlatUnit>& units,
                  SwapSpace& swap);
  /// The initial weights, and moments of zero.
  void initialize(std::uint64_t seed);

  /// Takes the average gradient of this rank's slice of a unit down from the device, beside what the device does. The
  /// mark is where `slice` is no longer needed.
  Mark take_gradient(Index unit, ConstArray slice);
  /// The gradient that was taken is the one that update() applies from now on. With `--delayed-update` there is room
  /// for two, so that a step's gradient comes down while the last one's is applied.
  void exchange_gradients();

  /// Says that update() of the chunk comes soon.
  void prefetch(const Chunk& chunk);
  /// AdamW on a chunk (Kernels::adamw); writes the new parameters, rounded to their type, to `parameters` (chunk.size)
  /// in host memory. An element's bits do not depend on chunks or threads.
  void update(const Chunk& chunk, const AdamWStep& step, Array parameters);
  /// Waits until all states are where they live.
  void flush();

  /// Shows the fp32 weights (of bf16 training alone), momentum and variance, chunk by chunk.
  void visit(const std::function<void(StateKind, const UnitView&)>& visit) const;

 private:
  std::unique_ptr<Slices> slices(Category category, Dtype dtype, SwapSpace& swap) const;

  Device& device_;
  const std::vector<FlatUnit>& units_;
  int rank_;
  Dtype dtype_;
  Tier tier_;
  mutable ThreadPool threads_;
  std::unique_ptr<Slices> master_, momentum_, variance_;  // fp32
  std::unique_ptr<Slices> gradients_;                     // of the parameters' type
  std::unique_ptr<Slices> second_gradients_;              // with --delayed-update
  Slices* taken_;                                         // of the two: comes down in this step
  Slices* applied_;                                       // is applied
};

}  // namespace zero::offload
