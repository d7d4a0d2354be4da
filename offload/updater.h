#pragma once
/// \file
/// When and how the host updates the model: at once, or one step late beside the next step's passes.

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "offload/optimizer_states.h"
#include "offload/parameter_home.h"

namespace zero::offload {

/// The update of all slices of this rank, from OptimizerStates to a ParameterHome. With `--delayed-update` the gradient
/// of a step is applied while the next step computes (Ren et al. 2021, section 5.2).
class Updater {
 public:
  /// Both outlive it, and so does what `context` refers to. With a delay it holds all new parameters of this rank once
  /// in host memory (Category::offload_buffers).
  Updater(const Context& context, const std::vector<FlatUnit>& units, OptimizerStates& states, ParameterHome& home);

  /// Begins the update that was put off in the last step, in a thread of its own; nothing when there is none.
  void begin_pending();
  /// Waits for it and takes the new parameters to where they live. Whether there was one.
  bool finish_pending();
  /// Applies the gradient of step t, which is complete: at once, or, with a delay, in the next step. The last step's is
  /// always applied at once. Whether the parameters changed.
  bool apply(Index t, float clip_factor);

 private:
  /// AdamW on the host, chunk by chunk: the next chunk is read while this one is updated and the last written back.
  void update(const AdamWStep& step, ParameterHome& home);

  const Context& context_;
  const std::vector<FlatUnit>& units_;
  OptimizerStates& states_;
  ParameterHome& home_;
  std::unique_ptr<ParameterHome> new_parameters_;  // with a delay: where they wait for the end of the step
  Index updates_ = 0;                              // begun so far
  std::optional<AdamWStep> pending_;               // put off
  std::future<void> running_;
};

}  // namespace zero::offload
