#include "offload/updater.h"

namespace zero::offload {

Updater::Updater(const Context& context, const std::vector<FlatUnit>& units, OptimizerStates& states,
                 ParameterHome& home)
    : context_(context), units_(units), states_(states), home_(home) {
  if (context.delay_after) new_parameters_ = waiting_room(context, units);
}

void Updater::begin_pending() {
  if (!pending_) return;
  running_ = std::async(std::launch::async, [this] { update(*pending_, *new_parameters_); });
}

bool Updater::finish_pending() {
  if (!pending_) return false;
  const Stopwatch stopwatch(context_.timers.optimizer);  // what the passes did not hide
  running_.get();
  pending_.reset();
  for (const Chunk& chunk : all_chunks(units_)) {
    home_.take(chunk, new_parameters_->open_to_overwrite(chunk));
  }
  home_.flush();
  return true;
}

bool Updater::apply(Index t, float clip_factor) {
  const AdamWStep step = adamw_step(context_.optimizer, t, ++updates_, clip_factor);
  states_.exchange_gradients();
  if (context_.delays(t)) {
    pending_ = step;
    return false;
  }
  const Stopwatch stopwatch(context_.timers.optimizer);
  update(step, home_);
  return true;
}

void Updater::update(const AdamWStep& step, ParameterHome& home) {
  const std::vector<Chunk> chunks = all_chunks(units_);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    if (c + 1 < chunks.size()) states_.prefetch(chunks[c + 1]);
    states_.update(chunks[c], step, home.open_to_overwrite(chunks[c]));
    home.close(chunks[c]);
  }
  states_.flush();
  home.flush();
}

}  // namespace zero::offload
