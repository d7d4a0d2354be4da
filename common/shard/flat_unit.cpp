#include "common/shard/flat_unit.h"

#include <algorithm>
#include <utility>

namespace zero {

FlatUnit::FlatUnit(std::string name, std::vector<TensorSpec> tensors, Index slices)
    : name_(std::move(name)), tensors_(std::move(tensors)), slices_(slices) {
  Index end = 0;
  for (const TensorSpec& tensor : tensors_) {
    const Index begin = round_up(end, kAlignment);
    offsets_.push_back(begin);
    elements_ += tensor.size;
    end = begin + tensor.size;
  }
  size_ = round_up(end, kAlignment * slices_);
}

std::vector<TensorPart> FlatUnit::parts(Index begin, Index size) const {
  std::vector<TensorPart> parts;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Index first = std::max(begin, offsets_[i]);
    const Index last = std::min(begin + size, offsets_[i] + tensors_[i].size);
    if (first < last) parts.push_back({&tensors_[i], tensors_[i].first + first - offsets_[i], first, last - first});
  }
  return parts;
}

void clear_gaps(Kernels& kernels, const FlatUnit& unit, Index begin, Array out) {
  Index end = begin;
  for (const TensorPart& part : unit.parts(begin, out.size)) {
    kernels.fill(out.part(end - begin, part.flat_begin - end), 0);
    end = part.flat_begin + part.size;
  }
  kernels.fill(out.part(end - begin, begin + out.size - end), 0);
}

std::vector<Index> unit_sizes(const std::vector<FlatUnit>& units) {
  std::vector<Index> sizes;
  for (const FlatUnit& unit : units) sizes.push_back(unit.size());
  return sizes;
}

std::vector<Index> slice_sizes(const std::vector<FlatUnit>& units) {
  std::vector<Index> sizes;
  for (const FlatUnit& unit : units) sizes.push_back(unit.slice_size());
  return sizes;
}

}  // namespace zero
