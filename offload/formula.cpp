#include "offload/formula.h"

#include <algorithm>
#include <vector>

namespace zero::offload {
namespace {

constexpr Index kChunk = Index{1} << 18;  // elements that move as one
constexpr Index kBlock = 4096;            // bytes
constexpr Index kPassing = 3;             // chunks of a state in host memory: read ahead, updated, written back

/// This rank's slices, in chunks: whole ones, and what is left.
struct Chunks {
  std::vector<Index> slices;  // [unit]: elements
  Index elements = 0;
  Index largest = 0;
  Index most = 0;  // in one unit

  explicit Chunks(const formula::Setting& s) {
    for (const Index unit : formula::padded_units(s)) {
      const Index slice = formula::slice_of(unit, s);
      slices.push_back(slice);
      elements += slice;
      largest = std::max(largest, std::min(slice, kChunk));
      most = std::max(most, divide_up(slice, kChunk));
    }
  }

  /// Bytes of a unit's slice in storage.
  [[nodiscard]] Index stored(std::size_t unit, Index element_bytes) const {
    const Index whole = slices[unit] / kChunk, rest = slices[unit] % kChunk;
    return whole * round_up(kChunk * element_bytes, kBlock) + round_up(rest * element_bytes, kBlock);
  }
  [[nodiscard]] Index stored(Index element_bytes) const {
    Index bytes = 0;
    for (std::size_t u = 0; u < slices.size(); ++u) bytes += stored(u, element_bytes);
    return bytes;
  }
  /// Bytes of a host buffer that a chunk passes through.
  [[nodiscard]] Index buffer(Index element_bytes) const { return round_up(largest * element_bytes, kBlock); }
};

}  // namespace

formula::Formula formula(const formula::Setting& s, const Offload& o) {
  const Index P = formula::padded_parameters(s);
  const Index p = formula::parameter_bytes(s), g = formula::gradient_bytes(s);
  const std::vector<Index> units = formula::padded_units(s);
  const Chunks chunks(s);
  formula::Formula f = formula::common(s);
  f.memory["gradient_in_flight"] = formula::gradient_in_flight(s, true);
  if (s.micro_steps > 1) f.memory["partial_sums"] = formula::partial_sums(s);
  f.communication["gradients"] = formula::gradient_passes(s, "reduce_scatter", s.micro_steps);
  f.communication["scalars"] = formula::scalars(s, true);

  // The optimizer: fp32 weights (in fp32 training, too), momentum, variance; and the gradient's slice.
  f.offload["down"] = g * chunks.elements;
  if (o.optimizer == Place::host) {
    f.host_memory["optimizer"] = 3 * 4 * chunks.elements;
    f.host_memory["gradients"] = (s.delayed_update ? 2 : 1) * g * chunks.elements;
    if (s.delayed_update) f.host_memory["offload_buffers"] += p * chunks.elements;  // new parameters wait there
  } else {
    f.nvme_memory["optimizer"] = 3 * chunks.stored(4);
    f.nvme_memory["gradients"] = chunks.stored(g);
    f.host_memory["offload_buffers"] = kPassing * (3 * chunks.buffer(4) + chunks.buffer(g));
    f.offload["read"] = f.offload["written"] = 3 * chunks.stored(4) + chunks.stored(g);
  }

  if (o.stage == 2) {
    f.memory["parameters"] = p * P;
    f.communication["parameters"] = formula::passes(s, "all_gather", 1, p);
  } else {
    const formula::Gathers gathered = formula::gathers(units, s.prefetch, s.reshard_after_forward);
    f.memory["gathered"] = p * gathered.peak;
    formula::Sent& parameters = f.communication["parameters"];
    parameters.collective = "all_gather";
    Index up = 0, read = 0;
    for (std::size_t u = 0; u < units.size(); ++u) {
      const Index times = s.micro_steps * gathered.times[u];
      parameters.bytes += times * formula::traffic(s, units[u], p);
      parameters.calls += times * formula::calls(s, units[u]);
      up += times * p * chunks.slices[u];
      read += times * chunks.stored(u, p);
    }
    if (o.parameters == Place::device) f.memory["parameters"] = p * chunks.elements;
    if (o.parameters == Place::host) f.host_memory["parameters"] = p * chunks.elements;
    if (o.parameters == Place::nvme) {
      f.nvme_memory["parameters"] = chunks.stored(p);
      f.host_memory["offload_buffers"] += 2 * chunks.most * chunks.buffer(p);
      f.offload["read"] += read;
      f.offload["written"] += chunks.stored(p);
    }
    if (o.parameters != Place::device) f.offload["up"] = up;
  }
  if (o.parameters == Place::device) {  // new parameters come up chunk by chunk
    f.offload["up"] = p * chunks.elements;
    f.host_memory["offload_buffers"] += p * chunks.largest;
  }
  return f;
}

}  // namespace zero::offload
