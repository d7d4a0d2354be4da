#include "stage0_ddp/baseline.h"

#include <algorithm>

#include "common/train/run.h"

namespace zero {

std::unique_ptr<Trainer> make_reference_trainer(const Context& context) {
  return std::make_unique<stage0_ddp::Baseline>(context);
}

}  // namespace zero

namespace zero::stage0_ddp {

Baseline::Baseline(const Context& context)
    : context_(context),
      units_(model_units(context.config, context.wrap, 1, context.model.tiles)),
      model_(context.config, context.micro_batch, units_, context.model, context.device),
      running_sum_(context.device, unit_sizes(units_), context.terms_before_ranks()),
      rank_sums_(context.device, unit_sizes(units_), context.world),
      micro_step_sums_(context.device, unit_sizes(units_), context.terms_after_ranks()),
      sums_(context.device.allocate_uninitialized(Category::workspace, kChunk)),
      losses_(static_cast<std::size_t>(context.leaves())) {
  for (const FlatUnit& unit : units_) {
    parameters_.push_back(context.device.allocate(Category::parameters, unit.size(), context.model.dtype));
    gradients_.push_back(context.device.allocate(Category::gradients, unit.size(), context.model.dtype));
    if (context.delay_after) {
      pending_gradients_.push_back(context.device.allocate(Category::gradients, unit.size(), context.model.dtype));
    }
    master_.push_back(context.device.allocate(Category::optimizer, context.master_size(unit.size())));
    momentum_.push_back(context.device.allocate(Category::optimizer, unit.size()));
    variance_.push_back(context.device.allocate(Category::optimizer, unit.size()));
    initialize(context.device.kernels(), unit, 0, parameters_.back().array(), context.seed);
    initialize(context.device.kernels(), unit, 0, master_.back().array(), context.seed);
  }
}

/// The order of the leaves is that in which their sums are added: over ranks within a micro-step, or with local-first
/// over micro-steps within a rank.
StepResult Baseline::train_step(Index t) {
  if (context_.accumulation == Accumulation::ranks_first) {
    for (Index m = 0; m < context_.micro_steps; ++m) {
      for (Index r = 0; r < context_.world; ++r) leaf(t, m, r);
    }
  } else {
    for (Index r = 0; r < context_.world; ++r) {
      for (Index m = 0; m < context_.micro_steps; ++m) leaf(t, m, r);
    }
  }
  StepResult result = measure();
  result.updates = step_pending() ? 1 : 0;
  if (result.verdict == Verdict::not_finite) return result;
  step(t, result.norm.clip_factor);
  if (!context_.delays(t)) ++result.updates;
  return result;
}

/// Micro-step m of the rank that would be rank r.
void Baseline::leaf(Index t, Index m, Index r) {
  context_.load_leaf(t, m * context_.world + r, model_);
  losses_[r * context_.micro_steps + m] = forward();
  backward();
  for (Index u = 0; u < std::ssize(units_); ++u) reduce(u, m, r);
}

double Baseline::forward() {
  model_.embed_forward(parameters_[0].array());
  for (Index u = 1; u < std::ssize(units_); ++u) model_.forward(u, parameters_[u].array());
  return model_.head_forward(parameters_[0].array());
}

void Baseline::backward() {
  model_.head_backward(parameters_[0].array());
  for (Index u = std::ssize(units_) - 1; u > 0; --u) {
    model_.backward(u, parameters_[u].array(), gradients_[u].array());
  }
  model_.embed_backward(gradients_[0].array());
}

/// The sums that N ranks would make, from the inside out; each passes its result on when its last term is in.
void Baseline::reduce(Index u, Index m, Index r) {
  const Array gradient = gradients_[u].array();
  if (!running_sum_.add(u, m, gradient)) return;
  for (Index begin = 0; begin < gradient.size; begin += kChunk) {
    const Array chunk = gradient.part(begin, std::min(kChunk, gradient.size - begin));
    const Array sum = sums_.part(0, chunk.size);
    if (!rank_sums_.add(u, r, begin, chunk, sum)) continue;
    micro_step_sums_.add(u, m, begin, sum, chunk, static_cast<float>(context_.leaves()));
  }
}

StepResult Baseline::measure() {
  GradientScan scan(context_.device.kernels());
  for (Index u = 0; u < std::ssize(units_); ++u) {
    scan.add(units_[u], 0, gradients_[u].array());
  }
  const ScanResult found = scan.end();
  const double loss = mean_loss(losses_, context_.world, context_.micro_steps);
  return judge(context_, loss, gradient_norm(found.squares, context_.optimizer.clip), units_, found.first_not_finite);
}

void Baseline::step(Index t, float clip_factor) {
  const Stopwatch stopwatch(context_.timers.optimizer);
  const AdamWStep scalars = adamw_step(context_.optimizer, t, ++updates_, clip_factor);
  if (context_.delays(t)) {
    std::swap(pending_gradients_, gradients_);
    pending_ = scalars;
    return;
  }
  update(scalars, gradients_);
}

/// The one-step delay of ZeRO-Offload, written out: the gradient of the step before, whose update ran beside the passes
/// of this step, is applied after them. Whether there was one.
bool Baseline::step_pending() {
  if (!pending_) return false;
  update(*pending_, pending_gradients_);
  pending_.reset();
  return true;
}

void Baseline::update(const AdamWStep& scalars, const std::vector<Buffer>& gradients) {
  for (Index u = 0; u < std::ssize(units_); ++u) {
    adamw_update(context_.device.kernels(), units_[u], 0, parameters_[u].array(), master_[u].array(),
                 momentum_[u].array(), variance_[u].array(), gradients[u].array(), scalars);
  }
}

/// A forward pass alone, without dropout.
std::vector<double> Baseline::evaluate(const Sampler& held_out, Index first) {
  held_out.load(first, model_.tokens(), model_.targets());
  model_.evaluate();
  forward();
  return model_.sequence_losses();
}

void Baseline::visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const {
  for (Index u = 0; u < std::ssize(units_); ++u) {
    visit(StateKind::parameters, {u, 0, parameters_[u].array()});
    visit(StateKind::master, {u, 0, master_[u].array()});
    visit(StateKind::momentum, {u, 0, momentum_[u].array()});
    visit(StateKind::variance, {u, 0, variance_[u].array()});
  }
}

}  // namespace zero::stage0_ddp
