#include "common/train/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace zero {
namespace {

/// tree(n terms): split at the largest power of two below n, left + right.
double tree(std::span<const double> terms) {
  if (terms.size() == 1) return terms[0];
  const std::size_t split = std::bit_floor(terms.size() - 1);
  return tree(terms.first(split)) + tree(terms.subspan(split));
}

}  // namespace

std::vector<Bucket> Context::buckets(const FlatUnit& unit) const {
  const Index slice = unit.slice_size();
  const Index per_column = unit.slices() * size_of(model.dtype);
  return zero::buckets(slice, bucket_bytes == 0 ? slice : std::max<Index>(1, bucket_bytes / per_column));
}

void Context::load_leaf(Index t, Index leaf, Gpt2& gpt2) const {
  const Index number = (t - 1) * leaves() + leaf;  // in the whole run
  sampler.load(number * micro_batch, gpt2.tokens(), gpt2.targets());
  gpt2.train_on_leaf(number);
}

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok: return "ok";
    case Verdict::clipped: return "clipped";
    case Verdict::not_finite: return "not finite";
  }
  return "";
}

std::string_view name(StateKind kind) {
  switch (kind) {
    case StateKind::parameters: return "parameters";
    case StateKind::master: return "master";
    case StateKind::momentum: return "momentum";
    case StateKind::variance: return "variance";
  }
  return "";
}

double mean_loss(std::span<const double> losses, Index world, Index micro_steps) {
  std::vector<double> by_micro_step;
  for (Index m = 0; m < micro_steps; ++m) {
    std::vector<double> by_rank;
    for (Index r = 0; r < world; ++r) by_rank.push_back(losses[r * micro_steps + m]);
    by_micro_step.push_back(tree(by_rank));
  }
  return tree(by_micro_step) / static_cast<double>(world * micro_steps);
}

std::vector<double> gather_losses(Communicator& comm, const std::vector<double>& mine) {
  const std::vector<std::byte> bytes = comm.gather_bytes(std::as_bytes(std::span(mine)), Purpose::scalars, "losses");
  std::vector<double> all(bytes.size() / sizeof(double));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

OrderFreeSum sum_over_ranks(Communicator& comm, const OrderFreeSum& mine) {
  OrderFreeSum sum;
  for (const OrderFreeSum& part : comm.gather(mine, Purpose::scalars, "gradient norm")) sum.add(part);
  return sum;
}

StepResult judge(const Context& context, double loss, const GradientNorm& norm, const std::vector<FlatUnit>& units,
                 Index mine) {
  StepResult result{loss, norm, norm.clip_factor < 1 ? Verdict::clipped : Verdict::ok, 1, ""};
  if (norm.finite() && std::isfinite(loss)) return result;

  result.verdict = Verdict::not_finite;
  const std::vector<Index> firsts = context.comm.gather(mine, Purpose::control, "first tensor that is not finite");
  const Index first = *std::min_element(firsts.begin(), firsts.end());
  result.not_finite = "the loss";
  for (const FlatUnit& unit : units) {
    for (const TensorSpec& tensor : unit.tensors()) {
      if (tensor.id == first) result.not_finite = "the gradient of " + tensor.name;
    }
  }
  return result;
}

}  // namespace zero
