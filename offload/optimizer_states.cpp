#include "offload/optimizer_states.h"

#include <algorithm>
#include <array>

namespace zero::offload {
namespace {

/// One chunk is read ahead, one updated, one written back.
constexpr Index kBuffers = 3;

}  // namespace

OptimizerStates::OptimizerStates(const Context& context, const Settings& settings, const std::vector<FlatUnit>& units,
                                 SwapSpace& swap)
    : device_(context.device),
      units_(units),
      rank_(context.group.rank()),
      dtype_(context.model.dtype),
      tier_(settings.optimizer),
      threads_(settings.threads),
      master_(slices(Category::optimizer, Dtype::fp32, swap)),
      momentum_(slices(Category::optimizer, Dtype::fp32, swap)),
      variance_(slices(Category::optimizer, Dtype::fp32, swap)),
      gradients_(slices(Category::gradients, dtype_, swap)),
      second_gradients_(context.delay_after ? slices(Category::gradients, dtype_, swap) : nullptr),
      taken_(gradients_.get()),
      applied_(second_gradients_ ? second_gradients_.get() : gradients_.get()) {}

std::unique_ptr<Slices> OptimizerStates::slices(Category category, Dtype dtype, SwapSpace& swap) const {
  if (tier_ == Tier::host) return host_slices(device_, category, units_, dtype);
  return swapped_slices(device_, category, units_, dtype, swap, kBuffers);
}

void OptimizerStates::initialize(std::uint64_t seed) {
  Kernels& kernels = device_.host_kernels();
  for (const Chunk& chunk : all_chunks(units_)) {
    const FlatUnit& unit = units_[chunk.unit];
    zero::initialize(kernels, unit, unit.slice_begin(rank_) + chunk.begin, master_->open_to_overwrite(chunk), seed);
    master_->close(chunk, true);
    for (Slices* moments : {momentum_.get(), variance_.get()}) {
      kernels.fill(moments->open_to_overwrite(chunk), 0);
      moments->close(chunk, true);
    }
  }
  flush();
}

Mark OptimizerStates::take_gradient(Index unit, ConstArray slice) {
  Mark copied;
  for (const Chunk& chunk : chunks_of(units_, unit)) {
    copied = device_.copy_down(taken_->open_to_overwrite(chunk), slice.part(chunk.begin, chunk.size));
    taken_->close(chunk, true, copied);
  }
  return copied;
}

void OptimizerStates::exchange_gradients() {
  taken_->flush();  // the update may run in a thread of its own, and the device belongs to this one
  std::swap(taken_, applied_);
}

void OptimizerStates::prefetch(const Chunk& chunk) {
  for (Slices* slices : {master_.get(), momentum_.get(), variance_.get(), applied_}) slices->prefetch(chunk);
}

void OptimizerStates::update(const Chunk& chunk, const AdamWStep& step, Array parameters) {
  const Array master = master_->open(chunk), momentum = momentum_->open(chunk), variance = variance_->open(chunk);
  const ConstArray gradients = applied_->open(chunk);
  const FlatUnit& unit = units_[chunk.unit];
  const Index begin = unit.slice_begin(rank_) + chunk.begin;
  Kernels& kernels = device_.host_kernels();
  clear_gaps(kernels, unit, begin, parameters);
  // Parts of whole blocks; AdamW is element by element, so any cut gives the same bits.
  const Index part = round_up(divide_up(chunk.size, threads_.threads()), kAlignment);
  threads_.parallel_for(threads_.threads(), [&](int thread) {
    const Index from = std::min(thread * part, chunk.size);
    const auto of = [&](auto view) { return view.part(from, std::min(part, chunk.size - from)); };
    adamw_update(kernels, unit, begin + from, of(parameters), of(master), of(momentum), of(variance), of(gradients),
                 step);
  });
  for (Slices* slices : {master_.get(), momentum_.get(), variance_.get()}) slices->close(chunk, true);
  applied_->close(chunk, false);
}

void OptimizerStates::flush() {
  for (Slices* slices : {master_.get(), momentum_.get(), variance_.get(), applied_}) slices->flush();
}

void OptimizerStates::visit(const std::function<void(StateKind, const UnitView&)>& visit) const {
  const std::array<std::pair<StateKind, Slices*>, 3> all = {{{StateKind::master, master_.get()},
                                                             {StateKind::momentum, momentum_.get()},
                                                             {StateKind::variance, variance_.get()}}};
  for (const auto& [kind, slices] : all) {
    if (kind == StateKind::master && dtype_ == Dtype::fp32) continue;  // the parameters are shown
    for (const Chunk& chunk : all_chunks(units_)) {
      const Index begin = units_[chunk.unit].slice_begin(rank_) + chunk.begin;
      visit(kind, {chunk.unit, begin, slices->open(chunk), Tier::host});
      slices->close(chunk, false);
    }
  }
}

}  // namespace zero::offload
