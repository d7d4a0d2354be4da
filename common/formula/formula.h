#pragma once
/// \file
/// What the paper's formulas say a rank holds and sends, from the model's shapes alone. Nothing here includes a header
/// of ledger, units or trainers, so that a formula cannot repeat a mistake of what it checks. Each stage's own formula
/// stands in the stage's folder; this header has what is common to them. Bytes throughout.
/// Source: Rajbhandari et al. 2020 (ZeRO), sections 5 and 7, with what they leave out: padding, buffers, partial sums.

#include <map>
#include <string>
#include <vector>

#include "common/base/types.h"

namespace zero::formula {

/// Everything a formula depends on.
struct Setting {
  Index layers = 0, heads = 0, width = 0, context = 0, vocab = 0;
  Index micro_batch = 1;
  Index world = 1;        ///< N; of the baseline, which is one process: the N whose order of additions it follows
  Index micro_steps = 1;  ///< k
  bool bf16 = false;      ///< bf16 parameters and gradients with fp32 master weights; else all fp32
  bool local_first = false;
  Index wrap = 1;                       ///< blocks in a unit
  Index tiles = 1;                      ///< parts in which a block's products are computed, each a unit of its own
  Index bucket = 0;                     ///< largest collective in bytes over all N slices; 0: one unit
  Index shard_group = 0;                ///< S: ranks in a sharding group (stage 3); 0: all N
  bool native = false;                  ///< collectives of the library
  bool ring = false;                    ///< the textbook ring, whose sums travel in fp32
  bool checkpoint_activations = false;  ///< keep each block's input only
  bool dropout = false;
  bool library_products = false;  ///< products of the library; else our own, which need scratch memory
  int threads = 1;                ///< of products
  bool gpu = false;               ///< on a GPU, which works in queues beside each other, with memory of its own
  bool delayed_update = false;    ///< gradients are kept for a step, and new parameters of offloaded ones
  Index prefetch = 1;
  bool reshard_after_forward = true;
  /// Ψ without a model, for the paper's tables: nothing is padded, and only model states and traffic have a meaning.
  /// 0: the shapes above say what the model is.
  Index bare_parameters = 0;
};

/// What a rank sends in a step for one purpose.
struct Sent {
  std::string collective;  ///< as in summary.json: "reduce_scatter", "all_gather", "reduce_scatter + all_gather"
  Index bytes = 0;
  Index calls = 0;
};

/// What a rank holds by category, sends by purpose, and moves between tiers in a step. Categories, purposes and
/// directions carry the names of summary.json; one that a stage does not use is absent.
struct Formula {
  std::map<std::string, Index> memory;       ///< on the device
  std::map<std::string, Index> host_memory;  ///< in host memory
  std::map<std::string, Index> nvme_memory;  ///< in the swap file
  std::map<std::string, Sent> communication;
  std::map<std::string, Index> offload;  ///< "down", "up", "read", "written"
};

/// Parameters, gradients and optimizer of a formula: the *model states* (ZeRO, section 3.1).
Index model_states(const Formula& formula);
/// The sum over all categories. Their peaks need not fall together, so this is at least what a rank holds at one time.
Index total_memory(const Formula& formula);
/// The sum over all purposes.
Index total_sent(const Formula& formula);

/// Beyond these the lists and tables of the formulas have no use.
inline constexpr Index kMostLayers = Index{1} << 20;
inline constexpr Index kMostRanks = Index{1} << 20;
/// Whether every size of the formulas stays well inside 64 bits. A setting that fails this must not be asked anything.
bool countable(const Setting& setting);

Index parameters(const Setting& setting);  ///< Ψ, from the shapes
Index slices(const Setting& setting);      ///< into which states are cut: S, or N
/// Elements of each unit padded for N ranks: [0] the embedding unit, then the units of blocks. Every tensor starts at a
/// multiple of 32 elements, the unit is a multiple of 32 times the slices.
std::vector<Index> padded_units(const Setting& setting);
Index padded_parameters(const Setting& setting);  ///< the sum of padded_units
Index parameter_bytes(const Setting& setting);    ///< of one element: 4 or 2
Index gradient_bytes(const Setting& setting);     ///< of one element, stored and on the wire: 4 or 2
Index optimizer_bytes(const Setting& setting);    ///< of one element: 8, or 12 with master weights
Index floor_log2(Index value);                    ///< value >= 1

/// What a rank holds of `bytes` that are cut into equal slices. Units are padded so that this divides evenly;
/// a bare Ψ is not, and is rounded up.
Index slice_of(Index bytes, const Setting& setting);

/// What a rank keeps of a forward pass for the backward pass, in bytes: the same in every stage.
struct Activations {
  Index layers = 0;
  Index layer_input = 0;  ///< of each layer: the residual stream that enters it
  Index layer_rest = 0;   ///< of a layer: everything else that its backward pass needs
  Index rests = 0;        ///< how many of those are kept: all, with checkpointing one
  Index outside = 0;      ///< the last layer's output, final norm, logits, losses, tokens
  [[nodiscard]] Index total() const { return layers * layer_input + rests * layer_rest + outside; }
};
Activations activations(const Setting& setting);

/// Activations, workspace and buckets: what a rank holds in every stage. The rest is left to the stage.
Formula common(const Setting& setting);
/// Bytes of whole gradients that stages 2 and 3 hold at most: the largest unit's; where it stays while the next one's
/// backward pass runs, of two units in a row. On a GPU that is while it is reduced over two or more ranks, or when
/// it is `copied` out of the device.
Index gradient_in_flight(const Setting& setting, bool copied = false);
/// Partial sums over k micro-steps: floor(log2 k) fp32 sums of a rank's slices; local-first one fp32 sum of everything.
/// 0 when k = 1.
Index partial_sums(const Setting& setting);
/// Staging of the transport and buffers of the collectives (common/comm), both kinds of transport alike. 0 for one
/// rank. On a GPU half the staging is there and all of it, the second, in host memory.
Index bucket_memory(const Setting& setting);
Index host_bucket_memory(const Setting& setting);
/// In how many parts `columns` elements of a slice come out of a reduce-scatter.
Index reduction_parts(const Setting& setting, Index columns);

/// Bytes that one rank sends when a unit of that many padded elements is all-gathered, or reduce-scattered, once, over
/// the ranks that share its slices: (N-1)/N of it.
Index traffic(const Setting& setting, Index elements, Index element_bytes);
/// Elements of one slice that a collective moves at most: `bucket` taken down to whole columns of a unit's N slices, at
/// least one.
Index bucket_columns(const Setting& setting, Index slice);
/// Collectives for one pass over a unit of that many padded elements: its buckets.
Index calls(const Setting& setting, Index padded_unit);
/// `times` passes over every unit for one purpose.
Sent passes(const Setting& setting, const std::string& collective, Index times, Index element_bytes);
/// The same for reduce-scatters of gradients; in a ring only the first of its N-1 hops is of the stored type.
Sent gradient_passes(const Setting& setting, const std::string& collective, Index times);
/// Between sharding groups: every micro-step each rank sends its slices' fp32 sums to the rank with the same slices in
/// every other group, part by part of the reduce-scatter. Nothing with one group.
Sent across_groups(const Setting& setting);
/// The reduce-scatters of a step: every micro-step's gradients, or with local-first their sum once.
Index reductions(const Setting& setting);

/// Bytes of the exact accumulator in which a rank sends its part of the gradient norm: 21 digits of 8 bytes, three
/// counters of 4, padding of 4 (common/base/order_free_sum.h; a test compares).
inline constexpr Index kNormAccumulatorBytes = 21 * 8 + 3 * 4 + 4;
/// Losses of k micro-steps to N-1 ranks; with the gradient norm's accumulator where it is summed over ranks.
Sent scalars(const Setting& setting, bool norm_over_ranks);

/// What one micro-step gathers.
struct Gathers {
  std::vector<Index> times;  ///< [unit]: how often it is gathered
  Index peak = 0;            ///< the most elements gathered at one time
};

/// Follows the uses of a micro-step: the embedding, the units of blocks forward, the head (the embedding unit again,
/// held from its forward to its backward), the units of blocks backward. When a use begins, its unit and those of the
/// next `prefetch` uses are gathered unless held; after it, its unit is freed unless one of those uses is of the same
/// unit. Without `reshard` it is freed after its last use. `units` are elements, [0] the embedding unit.
Gathers gathers(const std::vector<Index>& units, Index prefetch, bool reshard);

}  // namespace zero::formula
