#pragma once
/// \file
/// `--verify`: the unsharded baseline runs beside the program, and every byte is compared after every step.

#include <memory>
#include <optional>

#include "common/train/agreement.h"
#include "common/train/options.h"
#include "common/train/trainer.h"

namespace zero {

/// Rank 0 holds the baseline; the other ranks send it what they keep. Its memory and its messages are outside caps and
/// formulas: it has a device of its own and talks by MPI, whose waits no watchdog ends while rank 0 computes.
class Verifier {
 public:
  /// `world`: N, whose order of additions the baseline follows. The sampler and the program's device outlive this.
  /// `exact`: the first difference of a bit ends the run; else differences are measured (collectives that add in
  /// another order). Collective.
  Verifier(const Ranks& ranks, const Options& options, Index world, const Sampler& sampler, Device& device, bool exact);
  ~Verifier();
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  /// Takes the baseline through step t (t = 0: no step) and compares. `mine`: the program's result of the step. Throws
  /// ResultFailure, the same on all ranks, that names step, tensor, element and both values. Collective.
  void check(Index t, const StepResult& mine, const Trainer& trainer);

  [[nodiscard]] bool exact() const { return exact_; }
  /// The largest absolute difference of an element of the model states after the last step; on rank 0.
  [[nodiscard]] double largest_difference() const { return largest_difference_; }

 private:
  struct Reference;
  struct Comparison;

  void run_reference(Index t, const StepResult& mine);
  void send_state(const Trainer& trainer) const;
  void receive_state(int rank, Comparison& comparison) const;

  Ranks ranks_;
  Device& device_;  // of the program
  bool exact_;
  int groups_count_;  ///< copies of what is sharded
  double largest_difference_ = 0;
  std::unique_ptr<Reference> reference_;  // rank 0
  std::optional<StepResult> expected_;    // rank 0
};

}  // namespace zero
