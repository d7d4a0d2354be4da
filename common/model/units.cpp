#include <algorithm>
#include <array>
#include <cmath>

#include "common/model/gpt2.h"

namespace zero {
namespace {

constexpr float kStandardDeviation = 0.02F;

TensorSpec matrix(std::string name, Index rows, Index columns, float standard_deviation) {
  return {std::move(name), 0, rows * columns, 0, true, {0, standard_deviation}};
}
TensorSpec vector(std::string name, Index size, float constant) {
  return {std::move(name), 0, size, 0, false, {constant, 0}};
}

std::vector<TensorSpec> embedding_tensors(const ModelConfig& config) {
  return {
      matrix("embedding.token.weight", config.vocab, config.width, kStandardDeviation),
      matrix("embedding.position.weight", config.context, config.width, kStandardDeviation),
      vector("final_norm.weight", config.width, 1),
      vector("final_norm.bias", config.width, 0),
  };
}

std::vector<TensorSpec> block_tensors(const ModelConfig& config, Index block) {
  const Index C = config.width;
  const std::string prefix = "block " + std::to_string(block) + " ";
  // sqrt is exact to the last bit everywhere, so this is the same number on every machine.
  const auto residual = static_cast<float>(0.02 / std::sqrt(2.0 * static_cast<double>(config.layers)));
  return {
      vector(prefix + "norm1.weight", C, 1),
      vector(prefix + "norm1.bias", C, 0),
      matrix(prefix + "attention.qkv.weight", 3 * C, C, kStandardDeviation),
      vector(prefix + "attention.qkv.bias", 3 * C, 0),
      matrix(prefix + "attention.projection.weight", C, C, residual),
      vector(prefix + "attention.projection.bias", C, 0),
      vector(prefix + "norm2.weight", C, 1),
      vector(prefix + "norm2.bias", C, 0),
      matrix(prefix + "mlp.expand.weight", 4 * C, C, kStandardDeviation),
      vector(prefix + "mlp.expand.bias", 4 * C, 0),
      matrix(prefix + "mlp.project.weight", C, 4 * C, residual),
      vector(prefix + "mlp.project.bias", C, 0),
  };
}

/// Where the tensors of a block's products stand among those of the block.
struct ProductTensors {
  const char* name;
  std::vector<Index> norm;
  Index matrix;
  Index bias;
};
const std::array<ProductTensors, 4> kProducts = {{
    {"attention.qkv", {0, 1}, 2, 3},
    {"attention.projection", {}, 4, 5},
    {"mlp.expand", {6, 7}, 8, 9},
    {"mlp.project", {}, 10, 11},
}};

/// Appends the units of a block whose products are cut into tiles.
void add_tiles(std::vector<FlatUnit>& units, const std::vector<TensorSpec>& block, const std::string& name, Index tiles,
               Index slices) {
  for (const ProductTensors& product : kProducts) {
    const TensorSpec& matrix = block[product.matrix];
    const Index rows = block[product.bias].size, columns = matrix.size / rows;
    for (Index t = 0; t < tiles; ++t) {
      std::vector<TensorSpec> tensors;
      if (t == 0) {
        for (const Index norm : product.norm) tensors.push_back(block[norm]);
      }
      const Range part = tile_rows(rows, t, tiles);
      tensors.push_back(matrix);
      tensors.back().first = part.begin * columns;
      tensors.back().size = part.size * columns;
      if (t == tiles - 1) tensors.push_back(block[product.bias]);
      units.emplace_back(name + " " + product.name + " tile " + std::to_string(t), std::move(tensors), slices);
    }
  }
}

}  // namespace

Range tile_rows(Index rows, Index tile, Index tiles) {
  const Index begin = rows * tile / tiles;
  return {begin, rows * (tile + 1) / tiles - begin};
}

std::vector<FlatUnit> model_units(const ModelConfig& config, Index wrap, Index slices, Index tiles) {
  Index next_id = 0;
  const auto numbered = [&next_id](std::vector<TensorSpec> tensors) {
    for (TensorSpec& tensor : tensors) tensor.id = next_id++;
    return tensors;
  };
  std::vector<FlatUnit> units;
  units.emplace_back("embedding", numbered(embedding_tensors(config)), slices);
  for (Index first = 0; first < config.layers; first += wrap) {
    const Index last = std::min(first + wrap, config.layers) - 1;
    const std::string name = "block " + std::to_string(first) + (first == last ? "" : " to " + std::to_string(last));
    if (tiles > 1) {
      add_tiles(units, numbered(block_tensors(config, first)), name, tiles, slices);
      continue;
    }
    std::vector<TensorSpec> tensors;
    for (Index block = first; block <= last; ++block) {
      for (TensorSpec& tensor : numbered(block_tensors(config, block))) tensors.push_back(std::move(tensor));
    }
    units.emplace_back(name, std::move(tensors), slices);
  }
  return units;
}

void initialize(Kernels& kernels, const FlatUnit& unit, Index begin, Array out, std::uint64_t seed) {
  kernels.fill(out, 0);
  for (const TensorPart& part : unit.parts(begin, out.size)) {
    const Array values = out.part(part.flat_begin - begin, part.size);
    const Initialization& how = part.tensor->initialization;
    if (how.standard_deviation == 0) {
      kernels.fill(values, how.constant);
    } else {
      kernels.fill_normal(values, seed, part.tensor->id, part.tensor_begin, how.standard_deviation);
    }
  }
}

}  // namespace zero
