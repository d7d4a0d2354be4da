#include "stage3_params/trainer.h"

namespace zero::stage3_params {

Trainer::Trainer(const Context& context)
    : context_(context),
      units_(model_units(context.config, context.wrap, context.group.size())),
      model_(context.config, context.micro_batch, units_, context.model, context.device),
      partial_sums_(context.device, slice_sizes(units_), context.terms_after_ranks()),
      losses_(static_cast<std::size_t>(context.micro_steps)) {
  for (const FlatUnit& unit : units_) {
    const Index begin = unit.slice_begin(context.group.rank());
    parameters_.push_back(context.device.allocate(Category::parameters, unit.slice_size(), context.model.dtype));
    gradients_.push_back(context.device.allocate(Category::gradients, unit.slice_size(), context.model.dtype));
    master_.push_back(context.device.allocate(Category::optimizer, context.master_size(unit.slice_size())));
    momentum_.push_back(context.device.allocate(Category::optimizer, unit.slice_size()));
    variance_.push_back(context.device.allocate(Category::optimizer, unit.slice_size()));
    initialize(context.device.kernels(), unit, begin, parameters_.back().array(), context.seed);
    initialize(context.device.kernels(), unit, begin, master_.back().array(), context.seed);
  }
  for (Index u = 0; u < std::ssize(units_); ++u) uses_.push_back(u);
  uses_.push_back(0);
  for (Index u = std::ssize(units_) - 1; u > 0; --u) uses_.push_back(u);
  gathered_.resize(units_.size());
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
  const Index head = std::ssize(units_);  // the head's place in uses_
  model_.embed_forward(use(0));
  release(0);
  for (Index u = 1; u < head; ++u) {
    model_.forward(u, use(u));
    release(u);
  }
  return model_.head_forward(use(head));  // held until head_backward
}

void Trainer::backward(Index m) {
  const Index head = std::ssize(units_);
  model_.head_backward(use(head));
  release(head);
  for (Index u = std::ssize(units_) - 1; u > 0; --u) {
    const ConstArray parameters = use(2 * head - u);  // this unit's second place in uses_
    Buffer gradient = whole_gradient(u);
    model_.backward(u, parameters, gradient.array());
    release(2 * head - u);
    reduce(u, m, std::move(gradient));
  }
  Buffer gradient = whole_gradient(0);
  model_.embed_backward(gradient.array());
  reduce(0, m, std::move(gradient));
  in_flight_.wait();  // the step reads what the last reduction gives
}

/// Room for a unit's gradient between its backward pass and its reduction.
Buffer Trainer::whole_gradient(Index u) {
  return context_.device.allocate_uninitialized(Category::gradient_in_flight, units_[u].size(), context_.model.dtype);
}

/// The whole parameters of use number i: starts gathering what this use and the next ones need, waits for this one. A
/// unit still held is not gathered again.
ConstArray Trainer::use(Index i) {
  for (Index j = i; j < std::ssize(uses_) && j - i <= context_.prefetch; ++j) {
    const Index u = uses_[j];
    if (gathered_[u].parameters) continue;
    gathered_[u].parameters =
        context_.device.allocate_uninitialized(Category::gathered, units_[u].size(), context_.model.dtype);
    for (const Bucket& bucket : context_.buckets(units_[u])) {
      // for r, i in bucket:  gathered[r * slice + i] = parameters_of_r[i]
      gathered_[u].pending = context_.group.all_gather(gathered_[u].parameters.array(), parameters_[u].array(), bucket,
                                                       Purpose::parameters);
    }
  }
  gathered_[uses_[i]].pending.wait();
  return gathered_[uses_[i]].parameters.array();
}

/// Frees what use number i gathered, unless one of the next `prefetch` uses (or, without reshard-after-forward, any
/// later use) is of the same unit.
void Trainer::release(Index i) {
  for (Index j = i + 1; j < std::ssize(uses_); ++j) {
    const bool keeps = j - i <= context_.prefetch || !context_.reshard_after_forward;
    if (keeps && uses_[j] == uses_[i]) return;
  }
  gathered_[uses_[i]].parameters.reset();
}

/// Averages this rank's slice of a unit's gradient over all ranks and micro-steps; the rest of it is not kept.
void Trainer::reduce(Index u, Index m, Buffer gradient) {
  const Array own = gradients_[u].array();
  Pending reduction;
  for (const Bucket& bucket : context_.buckets(units_[u])) {
    // for i in bucket:  own[i] = mean over leaves, in tree order, of gradient_of_leaf[rank * slice + i]
    reduction =
        context_.group.reduce_scatter(gradient.array(), bucket, Purpose::gradients, [&](Index begin, Array sum) {
          context_.across.all_reduce(sum, Purpose::gradients_across);  // nothing where all ranks are one group
          partial_sums_.add(u, m, begin, sum, own.part(begin, sum.size), static_cast<float>(context_.leaves()));
        });
  }
  in_flight_.hold(std::move(gradient), reduction);
}

/// Every rank knows the sum of squares of its slice; the sum over ranks is exact, so it does not depend on the slices.
StepResult Trainer::measure() {
  GradientScan scan(context_.device.kernels());
  for (Index u = 0; u < std::ssize(units_); ++u) {
    scan.add(units_[u], units_[u].slice_begin(context_.group.rank()), gradients_[u].array());
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
                 parameters_[u].array(), master_[u].array(), momentum_[u].array(), variance_[u].array(),
                 gradients_[u].array(), scalars);
  }
}

/// Nothing: every rank keeps its slice, and the next step gathers.
void Trainer::publish() {}

/// A forward pass alone, without dropout.
std::vector<double> Trainer::evaluate(const Sampler& held_out, Index first) {
  held_out.load(first, model_.tokens(), model_.targets());
  model_.evaluate();
  forward();
  // The head's, and what was gathered ahead for a backward pass, when it is there.
  for (Gathered& unit : gathered_) unit.pending.wait(), unit = {};
  return model_.sequence_losses();
}

void Trainer::visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const {
  for (Index u = 0; u < std::ssize(units_); ++u) {
    const Index begin = units_[u].slice_begin(context_.group.rank());
    visit(StateKind::parameters, {u, begin, parameters_[u].array()});
    visit(StateKind::master, {u, begin, master_[u].array()});
    visit(StateKind::momentum, {u, begin, momentum_[u].array()});
    visit(StateKind::variance, {u, begin, variance_[u].array()});
  }
}

}  // namespace zero::stage3_params
