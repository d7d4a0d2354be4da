#pragma once
/// \file
/// Data held out from training, and the mean loss on them.

#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "common/data/batches.h"
#include "common/train/trainer.h"

namespace zero {

/// The last tenth of the data (rounded up to whole tokens), of which training sees nothing.
class HeldOut {
 public:
  /// The sequences of one evaluation; of more there are, the first in the order of an epoch.
  static constexpr Index kMostSequences = 64;
  /// Tokens that are left to train on.
  static Index training_tokens(const TokenFile& file) { return file.size() - (file.size() + 9) / 10; }

  /// Throws UnusableInput, naming `--eval-every every` and `data`, when the held-out part is less than one sequence.
  HeldOut(const TokenFile& file, Index context, std::uint64_t seed, Index every, const std::string& data);

  [[nodiscard]] Index sequences() const { return sampler_.sequences(); }  ///< there are
  [[nodiscard]] Index evaluated() const;                                  ///< in one evaluation

  /// The mean over the evaluated sequences of their mean losses, added in the order of the sequences' numbers: the same
  /// bits for every number of ranks and micro-batch. Changes no state. Collective over `world`.
  double mean_loss(Trainer& trainer, Communicator& world, Index micro_batch) const;

 private:
  Sampler sampler_;
};

}  // namespace zero
