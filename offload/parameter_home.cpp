#include "offload/parameter_home.h"

#include <algorithm>

namespace zero::offload {
namespace {

class DeviceHome final : public ParameterHome {
 public:
  DeviceHome(const Context& context, const std::vector<FlatUnit>& units, std::vector<Array> slices)
      : device_(context.device), units_(units), rank_(context.group.rank()), slices_(std::move(slices)) {
    Index largest = 0;
    for (const Chunk& chunk : all_chunks(units)) largest = std::max(largest, chunk.size);
    updated_ = device_.allocate(Category::offload_buffers, largest, context.model.dtype, Tier::host);
  }

  Array open_to_overwrite(const Chunk& chunk) override { return updated_.part(0, chunk.size); }
  void close(const Chunk& chunk) override { take(chunk, updated_.part(0, chunk.size)); }
  void take(const Chunk& chunk, ConstArray parameters) override {
    const Mark copied = device_.copy_up(slices_[chunk.unit].part(chunk.begin, chunk.size), parameters);
    device_.synchronize(copied);  // the next chunk comes to the same place
  }
  void flush() override {}
  void prefetch(Index /*unit*/) override {}
  void bring_up(Index unit, Array own) override { device_.kernels().copy(own, slices_[unit]); }
  void visit(const std::function<void(StateKind, const UnitView&)>& visit) override {
    for (Index u = 0; u < std::ssize(slices_); ++u) {
      visit(StateKind::parameters, {u, units_[u].slice_begin(rank_), slices_[u]});
    }
  }

 private:
  Device& device_;
  const std::vector<FlatUnit>& units_;
  int rank_;
  std::vector<Array> slices_;  // [unit] (P / N)
  Buffer updated_;             // a chunk, on its way up
};

class OffloadedHome final : public ParameterHome {
 public:
  OffloadedHome(const Context& context, const std::vector<FlatUnit>& units, std::unique_ptr<Slices> slices)
      : device_(context.device), units_(units), rank_(context.group.rank()), slices_(std::move(slices)) {}

  Array open_to_overwrite(const Chunk& chunk) override { return slices_->open_to_overwrite(chunk); }
  void close(const Chunk& chunk) override { slices_->close(chunk, true); }
  void take(const Chunk& chunk, ConstArray parameters) override {
    device_.host_kernels().copy(open_to_overwrite(chunk), parameters);
    close(chunk);
  }
  void flush() override { slices_->flush(); }
  void prefetch(Index unit) override {
    for (const Chunk& chunk : chunks_of(units_, unit)) slices_->prefetch(chunk);
  }
  void bring_up(Index unit, Array own) override {
    prefetch(unit);  // all of it is being read while the first chunk is copied
    for (const Chunk& chunk : chunks_of(units_, unit)) {
      const Mark copied = device_.copy_up(own.part(chunk.begin, chunk.size), slices_->open(chunk));
      device_.wait(copied);  // the gathering that follows
      slices_->close(chunk, false, copied);
    }
  }
  void visit(const std::function<void(StateKind, const UnitView&)>& visit) override {
    for (const Chunk& chunk : all_chunks(units_)) {
      visit(StateKind::parameters,
            {chunk.unit, units_[chunk.unit].slice_begin(rank_) + chunk.begin, slices_->open(chunk), Tier::host});
      slices_->close(chunk, false);
    }
  }

 private:
  Device& device_;
  const std::vector<FlatUnit>& units_;
  int rank_;
  std::unique_ptr<Slices> slices_;
};

}  // namespace

void initialize(ParameterHome& home, const Context& context, const std::vector<FlatUnit>& units) {
  for (const Chunk& chunk : all_chunks(units)) {
    const FlatUnit& unit = units[chunk.unit];
    zero::initialize(context.device.host_kernels(), unit, unit.slice_begin(context.group.rank()) + chunk.begin,
                     home.open_to_overwrite(chunk), context.seed);
    home.close(chunk);
  }
  home.flush();
}

std::unique_ptr<ParameterHome> device_home(const Context& context, const std::vector<FlatUnit>& units,
                                           std::vector<Array> slices) {
  return std::make_unique<DeviceHome>(context, units, std::move(slices));
}

std::unique_ptr<ParameterHome> offloaded_home(const Context& context, Tier tier, const std::vector<FlatUnit>& units,
                                              SwapSpace& swap) {
  const Dtype dtype = context.model.dtype;
  if (tier == Tier::host) {
    return std::make_unique<OffloadedHome>(context, units,
                                           host_slices(context.device, Category::parameters, units, dtype));
  }
  Index most = 0;
  for (Index u = 0; u < std::ssize(units); ++u) most = std::max(most, std::ssize(chunks_of(units, u)));
  return std::make_unique<OffloadedHome>(
      context, units, swapped_slices(context.device, Category::parameters, units, dtype, swap, 2 * most));
}

std::unique_ptr<ParameterHome> waiting_room(const Context& context, const std::vector<FlatUnit>& units) {
  return std::make_unique<OffloadedHome>(
      context, units, host_slices(context.device, Category::offload_buffers, units, context.model.dtype));
}

}  // namespace zero::offload
