#include "offload/stage3.h"

namespace zero::offload::stage3 {

Trainer::Trainer(const Context& context, const Settings& settings)
    : context_(context),
      units_(model_units(context.config, context.wrap, context.group.size(), context.model.tiles)),
      model_(context.config, context.micro_batch, units_, context.model, context.device),
      swap_(context.device, context.comm.rank()),
      optimizer_(context, settings, units_, swap_),
      partial_sums_(context.device, slice_sizes(units_), context.terms_after_ranks()),
      scan_(context.device.kernels()),
      losses_(static_cast<std::size_t>(context.micro_steps)) {
  if (settings.parameters == Tier::device) {
    std::vector<Array> slices;
    for (const FlatUnit& unit : units_) {
      parameters_.push_back(context.device.allocate(Category::parameters, unit.slice_size(), context.model.dtype));
      slices.push_back(parameters_.back().array());
    }
    home_ = device_home(context, units_, slices);
  } else {
    home_ = offloaded_home(context, settings.parameters, units_, swap_);
  }
  swap_.open(settings.open_file);
  optimizer_.initialize(context.seed);
  updater_ = std::make_unique<Updater>(context_, units_, optimizer_, *home_);
  initialize(*home_, context, units_);
  for (Index u = 0; u < std::ssize(units_); ++u) uses_.push_back(u);
  uses_.push_back(0);
  for (Index u = std::ssize(units_) - 1; u > 0; --u) uses_.push_back(u);
  gathered_.resize(units_.size());
}

StepResult Trainer::train_step(Index t) {
  updater_->begin_pending();  // with --delayed-update: the last step's gradient is applied beside this step
  scan_ = GradientScan(context_.device.kernels());
  for (Index m = 0; m < context_.micro_steps; ++m) {
    context_.load_leaf(t, m * context_.comm.size() + context_.comm.rank(), model_);
    losses_[m] = forward();
    backward(m);  // reduces the gradient of each unit as soon as it is complete; the average goes down
  }
  StepResult result = measure();
  result.updates = 0;
  if (updater_->finish_pending()) publish(), ++result.updates;
  if (result.verdict == Verdict::not_finite) return result;
  if (step(t, result.norm.clip_factor)) publish(), ++result.updates;
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

/// This rank's slice of a whole unit.
Array Trainer::own_slice(Index u, const Buffer& whole) const {
  return whole.part(units_[u].slice_begin(context_.group.rank()), units_[u].slice_size());
}

/// The whole parameters of use number i: brings up and starts gathering what this use and the next ones need, begins to
/// read what the use after those needs, waits for this one. A unit still held is not gathered again.
ConstArray Trainer::use(Index i) {
  for (Index j = i; j < std::ssize(uses_) && j - i <= context_.prefetch + 1; ++j) {
    const Index u = uses_[j];
    if (gathered_[u].parameters) continue;
    if (j - i > context_.prefetch) {
      home_->prefetch(u);
      continue;
    }
    gathered_[u].parameters =
        context_.device.allocate_uninitialized(Category::gathered, units_[u].size(), context_.model.dtype);
    const OnQueue queue(context_.device, Queue::communication);  // beside the present unit's computing
    bring_up(u);
    for (const Bucket& bucket : context_.buckets(units_[u])) {
      // for r, i in bucket:  gathered[r * slice + i] = gathered_of_r[r * slice + i]
      context_.group.all_gather(gathered_[u].parameters.array(), bucket, Purpose::parameters);
    }
    gathered_[u].pending = {context_.device, context_.device.mark()};
  }
  gathered_[uses_[i]].pending.wait();
  return gathered_[uses_[i]].parameters.array();
}

/// This rank's slice of a unit, from where it lives to its place among the gathered.
void Trainer::bring_up(Index u) {
  const Stopwatch stopwatch(context_.timers.offload);
  home_->bring_up(u, own_slice(u, gathered_[u].parameters));
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

/// Averages this rank's slice of a unit's gradient over all ranks and micro-steps, in its place in the whole gradient.
/// When the last micro-step is in, the average goes down to the optimizer.
void Trainer::reduce(Index u, Index m, Buffer gradient) {
  const Array own = own_slice(u, gradient);
  Pending reduction;
  for (const Bucket& bucket : context_.buckets(units_[u])) {
    // for i in bucket:  own[i] = mean over leaves, in tree order, of gradient_of_leaf[rank * slice + i]
    reduction =
        context_.group.reduce_scatter(gradient.array(), bucket, Purpose::gradients, [&](Index begin, Array sum) {
          partial_sums_.add(u, m, begin, sum, own.part(begin, sum.size), static_cast<float>(context_.leaves()));
        });
  }
  if (m + 1 == context_.micro_steps) reduction = take_down(u, own);
  in_flight_.hold(std::move(gradient), reduction);
}

/// The averaged gradient's way to the optimizer: scanned on the device, copied beside the next unit's backward pass.
Pending Trainer::take_down(Index u, ConstArray own) {
  const OnQueue queue(context_.device, Queue::communication);  // behind the reduction
  scan_.add(units_[u], units_[u].slice_begin(context_.group.rank()), own);
  const Stopwatch stopwatch(context_.timers.offload);
  return {context_.device, optimizer_.take_gradient(u, own)};
}

/// Every rank knows the sum of squares of its slice; the sum over ranks is exact, so it does not depend on the slices.
StepResult Trainer::measure() {
  const ScanResult found = scan_.end();
  const OrderFreeSum squares = sum_over_ranks(context_.group, found.squares);
  const double loss = mean_loss(gather_losses(context_.comm, losses_), context_.comm.size(), context_.micro_steps);
  return judge(context_, loss, gradient_norm(squares, context_.optimizer.clip), units_, found.first_not_finite);
}

/// AdamW on the host; with --delayed-update in the next step. Whether the parameters changed.
bool Trainer::step(Index t, float clip_factor) { return updater_->apply(t, clip_factor); }

/// Nothing: every rank keeps its slice, and the next step gathers.
void Trainer::publish() {}

/// A forward pass alone, without dropout.
std::vector<double> Trainer::evaluate(const Sampler& held_out, Index first) {
  held_out.load(first, model_.tokens(), model_.targets());
  model_.evaluate();
  forward();
  // The head's, and what was gathered ahead for a backward pass, when it is there.
  for (Gathered& unit : gathered_) unit.pending.wait(), unit = {};
  home_->flush();  // and what was read ahead
  return model_.sequence_losses();
}

void Trainer::visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const {
  home_->visit(visit);
  optimizer_.visit(visit);
}

}  // namespace zero::offload::stage3
