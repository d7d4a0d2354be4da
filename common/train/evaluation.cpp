#include "common/train/evaluation.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "common/base/error.h"

namespace zero {

HeldOut::HeldOut(const TokenFile& file, Index context, std::uint64_t seed, Index every, const std::string& data)
    : sampler_(file, context, seed, training_tokens(file)) {
  // Training keeps nine times as much, which is then enough for a sequence too.
  if (sampler_.sequences() >= 1) return;
  throw UnusableInput(
      fmt::format("--eval-every {} holds out the last tenth of {}, and a tenth of its {} tokens is too little for "
                  "--context {}; at least {} tokens would do",
                  every, data, file.size(), context, 10 * context + 1));
}

Index HeldOut::evaluated() const { return std::min(kMostSequences, sampler_.sequences()); }

double HeldOut::mean_loss(Trainer& trainer, Communicator& world, Index micro_batch) const {
  // Sequence i is in pass i / (N B), on rank i / B mod N. The last pass is filled up with other sequences, which do not
  // count: every rank makes every pass, since units are gathered from all.
  const Index count = evaluated();
  const Index per_pass = world.size() * micro_batch;
  double sum = 0;
  for (Index first = 0; first < count; first += per_pass) {
    const std::vector<double> mine = trainer.evaluate(sampler_, first + world.rank() * micro_batch);
    const std::vector<std::byte> bytes =
        world.gather_bytes(std::as_bytes(std::span(mine)), Purpose::control, "losses of an evaluation");
    std::vector<double> all(static_cast<std::size_t>(per_pass));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    for (Index i = 0; i < per_pass && first + i < count; ++i) sum += all[i];
  }
  return sum / static_cast<double>(count);
}

}  // namespace zero
