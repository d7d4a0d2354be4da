#pragma once
/// \file
/// What the loop around a step asks of a trainer, and what a trainer is built from.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/data/batches.h"
#include "common/device/device.h"
#include "common/model/gpt2.h"
#include "common/optim/adamw.h"
#include "common/shard/flat_unit.h"
#include "common/train/timers.h"

namespace zero {

/// `--accumulation`: the named orders of additions over micro-steps and ranks.
enum class Accumulation { ranks_first, local_first };

/// Everything a trainer is built from. The references outlive the trainer.
struct Context {
  Device& device;
  Communicator& comm;    ///< all N ranks
  Communicator& group;   ///< the ranks over which states are sharded: all, or this rank's sharding group
  Communicator& across;  ///< the ranks with the same slice in all groups; one rank where there is one group
  const Sampler& sampler;
  Timers& timers;
  ModelConfig config;
  AdamWOptions optimizer = {};
  ModelOptions model = {};
  std::uint64_t seed = 1;
  Index micro_batch = 1;
  Index micro_steps = 1;  ///< k
  Index world = 1;        ///< N: ranks, or the N whose order of additions the baseline follows
  Accumulation accumulation = Accumulation::ranks_first;
  Index wrap = 1;
  Index bucket_bytes = 0;  ///< largest collective; 0: one unit
  Index prefetch = 1;
  bool reshard_after_forward = true;
  std::optional<Index> delay_after = {};  ///< from the step after this one on, gradients are applied one step late

  /// Whether the gradient of step t is applied in step t + 1. That of the last step never is.
  [[nodiscard]] bool delays(Index t) const { return delay_after && t > *delay_after && t < optimizer.steps; }
  /// N * k: the leaves of a step.
  [[nodiscard]] Index leaves() const { return world * micro_steps; }
  /// Terms of the sum over micro-steps after that over ranks, and before it: k and 1, or with local-first 1 and k.
  [[nodiscard]] Index terms_after_ranks() const { return accumulation == Accumulation::ranks_first ? micro_steps : 1; }
  [[nodiscard]] Index terms_before_ranks() const { return accumulation == Accumulation::local_first ? micro_steps : 1; }
  /// Elements of the master weights of `size` parameters: none in fp32 training, which updates the parameters
  /// themselves.
  [[nodiscard]] Index master_size(Index size) const { return model.dtype == Dtype::fp32 ? 0 : size; }
  /// Fills the model's tokens and targets with leaf g = m N + r of step t = 1, 2, ...
  void load_leaf(Index t, Index leaf, Gpt2& gpt2) const;
  /// The buckets in which a unit's collectives move it.
  [[nodiscard]] std::vector<Bucket> buckets(const FlatUnit& unit) const;
};

enum class Verdict { ok, clipped, not_finite };
std::string_view name(Verdict verdict);

/// What a step reports; equal on all ranks.
struct StepResult {
  double loss = 0;
  GradientNorm norm;
  Verdict verdict = Verdict::ok;
  Index updates = 1;       ///< of the model, in a step taken; with a delay none in its first step, 2 in the last
  std::string not_finite;  ///< with Verdict::not_finite: the first tensor that held such a value, or "the loss"
};

enum class StateKind { parameters, master, momentum, variance };
inline constexpr int kStateKinds = 4;
std::string_view name(StateKind kind);

/// Elements [begin, begin + values.size) of a flat unit.
struct UnitView {
  Index unit;
  Index begin;
  ConstArray values;
  Tier tier = Tier::device;  ///< of `values`: device, or host
};

class Trainer {
 public:
  virtual ~Trainer() = default;

  /// One optimizer step; t = 1, 2, ... When the loss or the norm is not finite, nothing is updated and the result says
  /// so. Collective.
  virtual StepResult train_step(Index t) = 0;

  /// The mean loss of each sequence (micro_batch) of the evaluation data from `first` on: a forward pass alone, without
  /// dropout, that changes no state. Collective.
  virtual std::vector<double> evaluate(const Sampler& held_out, Index first) = 0;

  /// Shows what this rank is the keeper of: its slices where the state is sharded, everything where it is replicated.
  /// fp32 training has no separate master weights: then the views of `master` are empty.
  virtual void visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const = 0;

  /// How states that are not in memory are kept, for the plan: "io_uring, O_DIRECT"; empty when all are.
  [[nodiscard]] virtual std::string storage() const { return ""; }

  /// The layout that unit numbers of UnitView mean.
  [[nodiscard]] virtual const std::vector<FlatUnit>& units() const = 0;
};

/// The mean loss of a step: losses[r * k + m] of every leaf as a tree over ranks, then over micro-steps, one division.
double mean_loss(std::span<const double> losses, Index world, Index micro_steps);

/// The losses of all ranks' leaves, in rank order. Sends 8 k bytes to each rank.
std::vector<double> gather_losses(Communicator& comm, const std::vector<double>& mine);

/// The exact sum of all ranks' sums. Sends sizeof(OrderFreeSum) bytes to each rank.
OrderFreeSum sum_over_ranks(Communicator& comm, const OrderFreeSum& mine);

/// Looks through the averaged gradient, part by part: the sum of squares of its norm, and whether all of it is finite.
/// One at a time; the device does it beside the host.
class GradientScan {
 public:
  explicit GradientScan(Kernels& kernels) : kernels_(&kernels) { kernels.begin_scan(); }

  /// The flat range [begin, begin + values.size) of a unit; `begin` is a multiple of 32.
  void add(const FlatUnit& unit, Index begin, ConstArray values) {
    for (const TensorPart& part : unit.parts(begin, values.size)) {
      kernels_->scan(values.part(part.flat_begin - begin, part.size), part.tensor->id);
    }
  }
  /// Waits for all of it.
  [[nodiscard]] ScanResult end() const { return kernels_->end_scan(); }

 private:
  Kernels* kernels_;
};

/// A unit's whole gradient while it is reduced, where that goes on beside the next unit's backward pass.
class GradientInFlight {
 public:
  /// Keeps the gradient until `reduction` is done; one that is complete already is freed at once. First waits for the
  /// one kept before, and frees it: no more than this one and the next unit's are there at a time.
  void hold(Buffer gradient, Pending reduction) {
    wait();
    if (reduction.is_complete()) return;
    gradient_ = std::move(gradient);
    reduction_ = reduction;
  }
  /// What is computed from now on comes after the reduction.
  void wait() {
    reduction_.wait();
    gradient_.reset();
  }

 private:
  Buffer gradient_;
  Pending reduction_;
};

/// Judges a step: clipped or not, finite or not. Collective when it is not finite: then ranks agree on the first
/// tensor, by its number in the model, whose gradient is not; `mine` is this rank's ScanResult::first_not_finite.
StepResult judge(const Context& context, double loss, const GradientNorm& norm, const std::vector<FlatUnit>& units,
                 Index mine);

}  // namespace zero
