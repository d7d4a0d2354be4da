#include "stage1_optimizer/trainer.h"

namespace zero::stage1_optimizer {

Trainer::Trainer(const Context& context)
    : context_(context),
      units_(model_units(context.config, context.wrap, context.group.size())),
      model_(context.config, context.micro_batch, units_, context.model, context.device),
      partial_sums_(context.device, slice_sizes(units_), context.terms_after_ranks()),
      running_sum_(context.device, unit_sizes(units_), context.terms_before_ranks()),
      losses_(static_cast<std::size_t>(context.micro_steps)) {
  for (const FlatUnit& unit : units_) {
    const Index begin = unit.slice_begin(context.group.rank());
    parameters_.push_back(context.device.allocate(Category::parameters, unit.size(), context.model.dtype));
    gradients_.push_back(context.device.allocate(Category::gradients, unit.size(), context.model.dtype));
    master_.push_back(context.device.allocate(Category::optimizer, context.master_size(unit.slice_size())));
    momentum_.push_back(context.device.allocate(Category::optimizer, unit.slice_size()));
    variance_.push_back(context.device.allocate(Category::optimizer, unit.slice_size()));
    initialize(context.device.kernels(), unit, 0, parameters_.back().array(), context.seed);
    initialize(context.device.kernels(), unit, begin, master_.back().array(), context.seed);
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

/// Averages this rank's slice of a unit's gradient over all ranks and micro-steps.
void Trainer::reduce(Index u, Index m) {
  const Array gradient = gradients_[u].array();
  const Array own = own_slice(u, gradients_[u]);
  if (!running_sum_.add(u, m, gradient)) return;
  for (const Bucket& bucket : context_.buckets(units_[u])) {
    // for i in bucket:  own[i] = mean over leaves, in tree order, of gradient_of_leaf[rank * slice + i]
    reduction_ = context_.group.reduce_scatter(gradient, bucket, Purpose::gradients, [&](Index begin, Array sum) {
      partial_sums_.add(u, m, begin, sum, own.part(begin, sum.size), static_cast<float>(context_.leaves()));
    });
  }
}

/// Every rank knows the sum of squares of its slice; the sum over ranks is exact, so it does not depend on the slices.
StepResult Trainer::measure() {
  GradientScan scan(context_.device.kernels());
  for (Index u = 0; u < std::ssize(units_); ++u) {
    scan.add(units_[u], units_[u].slice_begin(context_.group.rank()), own_slice(u, gradients_[u]));
  }
  const ScanResult found = scan.end();
  const OrderFreeSum squares = sum_over_ranks(context_.group, found.squares);
  const double loss = mean_loss(gather_losses(context_.comm, losses_), context_.comm.size(), context_.micro_steps);
  return judge(context_, loss, gradient_norm(squares, context_.optimizer.clip), units_, found.first_not_finite);
}

void Trainer::step(Index t, float clip_factor) {
  const Stopwatch stopwatch(context_.timers.optimizer);
  const AdamWStep scalars = adamw_step(context_.optimizer, t, ++updates_, clip_factor);
  for (Index u = 0; u < std::ssize(units_); ++u) {
    adamw_update(context_.device.kernels(), units_[u], units_[u].slice_begin(context_.group.rank()),
                 own_slice(u, parameters_[u]), master_[u].array(), momentum_[u].array(), variance_[u].array(),
                 own_slice(u, gradients_[u]), scalars);
  }
}

/// Every rank gets the slices that the others updated.
void Trainer::publish() {
  Pending published;
  for (Index u = 0; u < std::ssize(units_); ++u) {
    for (const Bucket& bucket : context_.buckets(units_[u])) {
      // for r, i in bucket:  parameters[r * slice + i] = parameters_of_r[r * slice + i]
      published = context_.group.all_gather(parameters_[u].array(), bucket, Purpose::parameters);
    }
  }
  published.wait();  // the last: collectives end in the order in which they began
}

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
    const Index begin = units_[u].slice_begin(context_.group.rank());
    visit(StateKind::parameters, {u, 0, parameters_[u].array()});
    visit(StateKind::master, {u, begin, master_[u].array()});
    visit(StateKind::momentum, {u, begin, momentum_[u].array()});
    visit(StateKind::variance, {u, begin, variance_[u].array()});
  }
}

}  // namespace zero::stage1_optimizer
