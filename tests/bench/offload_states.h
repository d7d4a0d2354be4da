#pragma once
/// \file
/// The optimizer's side of the offload program without the passes: this process's states of a model, and what updates
/// them.

#include <memory>
#include <vector>

#include "common/optim/adamw.h"
#include "common/train/groups.h"
#include "common/train/timers.h"
#include "offload/optimizer_states.h"
#include "offload/parameter_home.h"

namespace zero::bench {

/// States of about `elements` parameters (blocks of 12 * 512^2) on one rank, initialized, with gradients.
class States {
 public:
  States(Index elements, Dtype dtype, const offload::Settings& settings)
      : config_{.layers = (elements + kBlock - 1) / kBlock, .heads = 1, .width = 512, .context = 32, .vocab = 256},
        device_(make_cpu_device(ProductKind::canonical, 1)),
        units_(model_units(config_, 1, 1)),
        groups_(MPI_COMM_SELF, {.dtype = dtype}, units_, *device_),
        file_(ZERO_BENCH_DATA, config_.context, config_.vocab),
        sampler_(file_, config_.context, 1),
        context_{.device = *device_,
                 .comm = groups_.world(),
                 .group = groups_.group(),
                 .across = groups_.across(),
                 .sampler = sampler_,
                 .timers = timers_,
                 .config = config_,
                 .model = {.dtype = dtype}},
        swap_(*device_, 0),
        states_(context_, settings, units_, swap_) {
    swap_.open(settings.open_file);
    states_.initialize(1);
    for (Index u = 0; u < std::ssize(units_); ++u) {
      const Buffer gradient = device_->allocate(Category::gradient_in_flight, units_[u].slice_size(), dtype);
      device_->kernels().fill_normal(gradient.array(), 1, u, 0, 0.01F);
      states_.take_gradient(u, gradient.array());
      size_ += units_[u].slice_size();
    }
    states_.flush();
  }

  [[nodiscard]] const Context& context() const { return context_; }
  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] const std::vector<FlatUnit>& units() const { return units_; }
  [[nodiscard]] SwapSpace& swap() { return swap_; }
  [[nodiscard]] offload::OptimizerStates& states() { return states_; }
  [[nodiscard]] Index size() const { return size_; }  ///< elements of a state

 private:
  static constexpr Index kBlock = Index{12} * 512 * 512;

  ModelConfig config_;
  std::unique_ptr<Device> device_;
  std::vector<FlatUnit> units_;
  RankGroups groups_;
  TokenFile file_;
  Sampler sampler_;
  Timers timers_;
  Context context_;
  SwapSpace swap_;
  offload::OptimizerStates states_;
  Index size_ = 0;
};

}  // namespace zero::bench
