// Sizes of the model, from its shapes: how many parameters, and how they are padded.
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "common/formula/formula.h"

namespace zero::formula {
namespace {

constexpr Index kElementsPerBlock = 32;  // where a tensor may start, and a slice

std::array<Index, 4> embedding_tensors(const Setting& s) {
  return {s.vocab * s.width, s.context * s.width, s.width, s.width};  // tokens, positions, final norm
}

std::array<Index, 12> block_tensors(const Setting& s) {
  const Index C = s.width;
  return {C,         C,      // first norm
          3 * C * C, 3 * C,  // queries, keys and values
          C * C,     C,      // projection
          C,         C,      // second norm
          4 * C * C, 4 * C,  // expansion
          4 * C * C, C};     // back to the width
}

template <typename Tensors>
Index exact(const Tensors& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), Index{0});
}

template <typename Tensors>
Index aligned(const Tensors& tensors) {
  Index elements = 0;
  for (const Index tensor : tensors) elements += round_up(tensor, kElementsPerBlock);
  return elements;
}

/// Elements of the units of a block whose products are cut into tiles.
std::vector<Index> tile_units(const Setting& s) {
  const Index C = s.width;
  struct Product {
    Index rows, columns;
    bool norm;
  };
  std::vector<Index> units;
  for (const Product& product :
       {Product{3 * C, C, true}, Product{C, C, false}, Product{4 * C, C, true}, Product{C, 4 * C, false}}) {
    for (Index t = 0; t < s.tiles; ++t) {
      const Index rows = product.rows * (t + 1) / s.tiles - product.rows * t / s.tiles;
      Index elements = round_up(rows * product.columns, kElementsPerBlock);
      if (t == 0 && product.norm) elements += 2 * round_up(C, kElementsPerBlock);
      if (t == s.tiles - 1) elements += round_up(product.rows, kElementsPerBlock);
      units.push_back(elements);
    }
  }
  return units;
}

}  // namespace

Index parameters(const Setting& s) {
  if (s.bare_parameters > 0) return s.bare_parameters;
  return exact(embedding_tensors(s)) + s.layers * exact(block_tensors(s));
}

Index slices(const Setting& s) { return s.shard_group == 0 ? s.world : s.shard_group; }

std::vector<Index> padded_units(const Setting& s) {
  if (s.bare_parameters > 0) return {0, s.bare_parameters};
  const Index step = kElementsPerBlock * slices(s);
  std::vector<Index> units = {round_up(aligned(embedding_tensors(s)), step)};
  if (s.tiles >
      1) {  // each product in so many units: rows of its matrix; the norm with the first, the bias with the last
    const std::vector<Index> tiles = tile_units(s);
    for (Index layer = 0; layer < s.layers; ++layer) {
      for (const Index tile : tiles) units.push_back(round_up(tile, step));
    }
    return units;
  }
  const Index block = aligned(block_tensors(s));
  for (Index first = 0; first < s.layers; first += s.wrap) {
    units.push_back(round_up(std::min(s.wrap, s.layers - first) * block, step));
  }
  return units;
}

Index padded_parameters(const Setting& s) {
  const std::vector<Index> units = padded_units(s);
  return std::accumulate(units.begin(), units.end(), Index{0});
}

bool countable(const Setting& s) {
  constexpr double kMost = 1e17;  // bytes, and bytes sent: far below 2^63
  constexpr double kMostEach = 1e12;
  for (const Index value :
       {s.layers, s.heads, s.width, s.context, s.vocab, s.micro_batch, s.world, s.micro_steps, s.wrap}) {
    if (static_cast<double>(value) > kMostEach) return false;
  }
  if (s.layers > kMostLayers || s.world > kMostRanks || s.tiles > kMostLayers) return false;
  const Index units = s.tiles > 1 ? 4 * s.tiles * s.layers : s.layers;
  if (units > 4 * kMostLayers) return false;
  const auto real = [](Index value) { return static_cast<double>(value); };
  const double C = real(s.width), L = real(s.layers), R = real(s.micro_batch) * real(s.context);
  const double per_unit = 32.0 * real(s.world) + 400.0;
  const double psi = s.bare_parameters > 0 ? real(s.bare_parameters)
                                           : (real(s.vocab) + real(s.context) + 2.0) * C +
                                                 L * (12.0 * C * C + 13.0 * C) + (real(units) + 1.0) * per_unit;
  const double held = L * (R * (17.0 * C + 4.0) + R * real(s.heads) * real(s.context)) + R * (real(s.vocab) + 8.0 * C) +
                      real(s.context) * real(s.context);
  const double partial = 128.0;  // more partial sums than any k and N need
  return psi * 4.0 * partial < kMost && psi * 12.0 * (real(s.micro_steps) * 2.0 + 2.0) < kMost && held * 4.0 < kMost &&
         real(s.micro_steps) * real(s.world) * 8.0 < kMost;
}

}  // namespace zero::formula
