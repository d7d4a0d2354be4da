#include "offload/stage2.h"

namespace zero::offload::stage2 {

Trainer::Trainer(const Context& context, const Settings& settings)
    : context_(context),
      units_(model_units(context.config, context.wrap, context.group.size(), context.model.tiles)),
      model_(context.config, context.micro_batch, units_, context.model, context.device),
      swap_(context.device, context.comm.rank()),
      optimizer_(context, settings, units_, swap_),
      partial_sums_(context.device, slice_sizes(units_), context.terms_after_ranks()),
      scan_(context.device.kernels()),
      losses_(static_cast<std::size_t>(context.micro_steps)) {
  std::vector<Array> slices;
  for (Index u = 0; u < std::ssize(units_); ++u) {
    parameters_.push_back(context.device.allocate(Category::parameters, units_[u].size(), context.model.dtype));
    initialize(context.device.kernels(), units_[u], 0, parameters_[u].array(), context.seed);
    slices.push_back(own_slice(u, parameters_[u]));
  }
  home_ = device_home(context, units_, slices);
  swap_.open(settings.open_file);
  optimizer_.initialize(context.seed);
  updater_ = std::make_unique<Updater>(context_, units_, optimizer_, *home_);
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
  model_.embed_forward(parameters_[0].array());
  for (Index u = 1; u < std::ssize(units_); ++u) model_.forward(u, parameters_[u].array());
  return model_.head_forward(parameters_[0].array());
}

void Trainer::backward(Index m) {
  model_.head_backward(parameters_[0].array());
  for (Index u = std::ssize(units_) - 1; u > 0; --u) {
    Buffer gradient = whole_gradient(u);
    model_.backward(u, parameters_[u].array(), gradient.array());
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

/// A forward pass alone, without dropout.
std::vector<double> Trainer::evaluate(const Sampler& held_out, Index first) {
  held_out.load(first, model_.tokens(), model_.targets());
  model_.evaluate();
  forward();
  return model_.sequence_losses();
}

void Trainer::visit_state(const std::function<void(StateKind, const UnitView&)>& visit) const {
  for (Index u = 0; u < std::ssize(units_); ++u) visit(StateKind::parameters, {u, 0, parameters_[u].array()});
  optimizer_.visit(visit);
}

}  // namespace zero::offload::stage2
