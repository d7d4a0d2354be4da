#pragma once
/// \file
/// What the paper's formulas say a rank holds and sends, from the model's shapes alone. Nothing here includes a header of
/// ledger, units or trainers, so that a formula cannot repeat a mistake of what it checks. Each stage's own formula
/// stands in the stage's folder; this header has what is common to them. Bytes throughout.

#include <map>
#include <string>
#include <vector>

#include "common/base/types.h"

namespace zero::formula {

/// Everything a formula depends on.
struct Setting {
  Index layers = 0, heads = 0, width = 0, context = 0, vocab = 0;
  Index micro_batch = 1;
  Index world = 1;        ///< N
  Index micro_steps = 1;  ///< k
  bool bf16 = false;      ///< bf16 parameters and gradients with fp32 master weights; else all fp32
  bool local_first = false;
  Index wrap = 1;    ///< blocks in a unit
  Index bucket = 0;  ///< largest collective in bytes over all N slices; 0: one unit
  bool native = false;  ///< collectives of the library
  int threads = 1;
  Index prefetch = 1;
  bool reshard_after_forward = true;
};

/// What a rank sends in a step for one purpose.
struct Sent {
  std::string collective;  ///< as in summary.json: "reduce_scatter", "all_gather", "reduce_scatter + all_gather"
  Index bytes = 0;
  Index calls = 0;
};

/// What a rank holds by category (device tier) and sends by purpose. Categories and purposes carry the names of
/// summary.json; one that a stage does not use is absent.
struct Formula {
  std::map<std::string, Index> memory;
  std::map<std::string, Sent> communication;
};

Index parameters(const Setting& setting);  ///< Ψ, from the shapes
/// Elements of each unit padded for N ranks: [0] the embedding unit, then the units of blocks. Every tensor starts at a
/// multiple of 32 elements, the unit is a multiple of 32 N.
std::vector<Index> padded_units(const Setting& setting);
Index padded_parameters(const Setting& setting);  ///< the sum of padded_units
Index gradient_bytes(const Setting& setting);     ///< of one element, stored and on the wire: 4 or 2
Index optimizer_bytes(const Setting& setting);    ///< of one element: 8, or 12 with master weights
Index floor_log2(Index value);                    ///< value >= 1

/// Activations, workspace and buckets: the same in every stage.
std::map<std::string, Index> common_memory(const Setting& setting);
/// Bytes that one rank sends when each of `units` is all-gathered, or reduce-scattered, once: (N-1)/N of it.
Index traffic(const Setting& setting, Index elements, Index element_bytes);
/// Collectives for one pass over a unit of that many padded elements: its buckets.
Index calls(const Setting& setting, Index padded_unit);
/// Losses of k micro-steps to N-1 ranks; with the gradient norm's accumulator where it is summed over ranks.
Sent scalars(const Setting& setting, bool norm_over_ranks);

}  // namespace zero::formula
