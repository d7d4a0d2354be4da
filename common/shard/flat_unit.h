#pragma once
/// \file
/// Flat units: a unit's tensors laid one after the other and cut into N equal slices, one for each rank.

#include <string>
#include <vector>

#include "common/base/types.h"
#include "common/device/kernels.h"

namespace zero {

/// Every tensor of a flat unit starts at a multiple of this many elements, and so does every slice: no slice cuts a
/// block of the gradient norm, and an element keeps its place in its block whatever N.
inline constexpr Index kAlignment = 32;

/// How a tensor is initialised.
struct Initialization {
  float constant = 0;            ///< used when standard_deviation is 0
  float standard_deviation = 0;  ///< of a normal distribution around 0
};

/// A tensor of the unsharded model, or the part of one that a unit holds.
struct TensorSpec {
  std::string name;  ///< "block 2 attention.qkv.weight"
  Index id = 0;      ///< its number in the model, the same for every wrap and N: keys random numbers and digests
  Index size = 0;    ///< elements
  Index first = 0;   ///< its first element's index in the model's tensor: not 0 where a unit holds a later part of one
  bool decays = false;  ///< weight decay applies: matrices only
  Initialization initialization;
};

/// The part of a tensor that lies in a range of the flat unit.
struct TensorPart {
  const TensorSpec* tensor = nullptr;
  Index tensor_begin = 0;  ///< first element, as an index of the unsharded tensor
  Index flat_begin = 0;    ///< the same element, as an index of the flat unit
  Index size = 0;
};

/// Immutable layout; holds no memory. The unit is padded with zeros to size() = a multiple of 32 N.
class FlatUnit {
 public:
  /// `slices` = N >= 1.
  FlatUnit(std::string name, std::vector<TensorSpec> tensors, Index slices);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Index size() const { return size_; }          ///< padded elements
  [[nodiscard]] Index elements() const { return elements_; }  ///< parameters, without padding
  [[nodiscard]] Index slices() const { return slices_; }      ///< N
  [[nodiscard]] Index slice_size() const { return size_ / slices_; }
  [[nodiscard]] Index slice_begin(Index rank) const { return rank * slice_size(); }

  [[nodiscard]] const std::vector<TensorSpec>& tensors() const { return tensors_; }
  /// Where tensor i starts in the flat unit.
  [[nodiscard]] Index offset(Index i) const { return offsets_[i]; }
  /// The tensors' parts in the flat range [begin, begin + size), in order; gaps and padding belong to none.
  [[nodiscard]] std::vector<TensorPart> parts(Index begin, Index size) const;

 private:
  std::string name_;
  std::vector<TensorSpec> tensors_;
  std::vector<Index> offsets_;
  Index slices_;
  Index elements_ = 0;
  Index size_ = 0;
};

/// Writes zeros where no tensor is: gaps and padding of the flat range [begin, begin + out.size).
void clear_gaps(Kernels& kernels, const FlatUnit& unit, Index begin, Array out);

/// size() of each unit, and slice_size() of each.
std::vector<Index> unit_sizes(const std::vector<FlatUnit>& units);
std::vector<Index> slice_sizes(const std::vector<FlatUnit>& units);

}  // namespace zero
