#include "stage0_ddp/trainer.h"

namespace zero::stage0_ddp {

Trainer::Trainer(const Context& context)
    : context_(context),
      units_(model_units(context.config, context.wrap, context.group.size())),
      model_(context.config, context.micro_batch, units_, context.model, context.device),
      partial_sums_(context.device, slice_sizes(units_), context.terms_after_ranks()),
      running_sum_(context.device, unit_sizes(units_), context.terms_before_ranks()),
      losses_(static_cast<std::size_t>(context.micro_steps)) {
  for (const FlatUnit& unit : units_) {
    parameters_.push_back(context.device.allocate(Category::parameters, unit.size(), context.model.dtype));
    gradients_.push_back(context.device.allocate(Category::gradients, unit.size(), context.model.dtype));
    master_.push_back(context.device.allocate(Category::optimizer, context.master_size(unit.size())));
    momentum_.push_back(context.device.allocate(Category::optimizer, unit.size()));
    variance_.push_back(context.device.allocate(Category::optimizer, unit.size()));
    initialize(context.device.kernels(), unit, 0, parameters_.back().array(), context.seed);
    initialize(context.device.kernels(), unit, 0, master_.back().array(), context.seed);
  }
}

StepResult Trainer::train_step(Index t) {
  for (Index m = 0; m < context_.micro_steps; ++m) {
    context_.load_leaf(t, m * context_.comm.size() + context_.comm.rank(), model_);
    losses_[m] = forward();
    backward(m);  // reduces the gradient of each unit as soon as it is complete
  }
  StepResult result = measure();
  if (result.verdict == Verdict::not_finite) return result;
  step(t, result.norm.clip_factor);
  publish();
  return result;
}

double Trainer::forward() {
  model_.embed_forward(parameters_[0].array());
  for (Index u = 1; u < std::ssize(units_); ++u) model_.forward(u, parameters_[u].array());
  return model_.head_forward(parameters_[0].array());
}

void Trainer::backward(Index m) {
  model_.head_backward(parameters_[0].array());
  for (Index u = std::ssize(units_) - 1; u > 0; --u) {
    model_.backward(u, parameters_[u].array(), gradients_[u].array());
    reduce(u, m);
  }
  model_.embed_backward(gradients_[0].array());
  reduce(0, m);
  reduction_.wait();  // the next pass overwrites the gradients, and the step reads them
}

/// Averages a unit's gradient: every rank sums its slice over all ranks and micro-steps, then all get all slices.
void Trainer::reduce(Index u, Index m) {
  const Array gradient = gradients_[u].array();
  const Array own = own_slice(u, gradients_[u]);
  if (!running_sum_.add(u, m, gradient)) return;
  for (const Bucket& bucket : context_.buckets(units_[u])) {
    // for i in bucket:  own[i] = mean over leaves, in tree order, of gradient_of_leaf[rank * slice + i]
    bool complete = false;
    reduction_ = context_.group.reduce_scatter(gradient, bucket, Purpose::gradients, [&](Index begin, Array sum) {
      complete = partial_sums_.add(u, m, begin, sum, own.part(begin, sum.size), static_cast<float>(context_.leaves()));
    });
    // for r, i in bucket:  gradient[r * slice + i] = gradient_of_r[r * slice + i]
    if (complete) reduction_ = context_.group.all_gather(gradient, bucket, Purpose::gradients);
  }
}

/// Every rank holds the whole averaged gradient: its norm needs no communication.
StepResult Trainer::measure() {
  GradientScan scan(context_.device.kernels());
  for (Index u = 0; u < std::ssize(units_); ++u) {
    scan.add(units_[u], 0, gradients_[u].array());
  }
  const ScanResult found = scan.end();
  const double loss = mean_loss(gather_losses(context_.comm, losses_), context_.comm.size(), context_.micro_steps);
  return judge(context_, loss, gradient_norm(found.squares, context_.optimizer.clip), units_, found.first_not_finite);
}

void Trainer::step(Index t, float clip_factor) {
  const Stopwatch stopwatch(context_.timers.optimizer);
  const AdamWStep scalars = adamw_step(context_.optimizer, t, ++updates_, clip_factor);
  for (Index u = 0; u < std::ssize(units_); ++u) {
    adamw_update(context_.device.kernels(), units_[u], 0, parameters_[u].array(), master_[u].array(),
                 momentum_[u].array(), variance_[u].array(), gradients_[u].array(), scalars);
  }
}

/// Nothing: every rank has made the same update of everything.
void Trainer::publish() {}

/// This rank's slice of a whole unit.
Array Trainer::own_slice(Index u, const Buffer& unit) const {
  return unit.part(units_[u].slice_begin(context_.group.rank()), units_[u].slice_size());
}

/// A forward pass alone, without dropout.
std::vector<double> Trainer::evaluate(const Sampler& held_out, Index first) {
  held_out.load(first, model_.tokens(), model_.targets());
  model_.evaluate();
  forward();
  return model_.sequence_losses();
}

void Trainer::visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const {
  for (Index u = 0; u < std::ssize(units_); ++u) {
    visit(StateKind::parameters, {u, 0, parameters_[u].array()});
    visit(StateKind::master, {u, 0, master_[u].array()});
    visit(StateKind::momentum, {u, 0, momentum_[u].array()});
    visit(StateKind::variance, {u, 0, variance_[u].array()});
  }
}

}  // namespace zero::stage0_ddp
