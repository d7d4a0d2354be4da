#include "common/shard/partial_sums.h"

#include <array>
#include <bit>

namespace zero {
namespace {

/// More partial sums than any count of terms needs.
constexpr std::size_t kMostLevels = 64;

}  // namespace

PartialSums::PartialSums(Device& device, const std::vector<Index>& sizes, Index terms)
    : device_(device), terms_(terms) {
  const Index levels = static_cast<Index>(std::bit_width(static_cast<std::uint64_t>(terms))) - 1;
  for (const Index size : sizes) {
    std::vector<Buffer>& unit = held_.emplace_back();
    for (Index level = 0; level < levels; ++level) unit.push_back(device.allocate(Category::partial_sums, size));
  }
}

bool PartialSums::add(Index unit, Index term, Index begin, Array value, Array out, float divisor) {
  // Before term number t the counter holds one partial sum for each 1 in t's binary digits. A new term merges with one
  // for each trailing 1; the last term merges with all.
  const auto bits = terms_ == 1 ? 0 : static_cast<std::uint64_t>(term);
  const bool last = terms_ == 1 || term == terms_ - 1;
  const int holding = std::popcount(bits);
  const int merging = last ? holding : std::countr_one(bits);
  const int first = holding - merging;

  std::array<ConstArray, kMostLevels> terms;
  std::vector<Buffer>& held = held_[unit];
  for (int i = 0; i < merging; ++i) {
    terms[i] = held[first + i].part(begin, value.size);
  }
  terms[merging] = value;
  const Array sum = last ? out : held[first].part(begin, value.size);
  device_.kernels().merge_sums(sum, std::span(terms).first(merging + 1), last ? divisor : 1.0F);
  return last;
}

RunningSum::RunningSum(Device& device, const std::vector<Index>& sizes, Index terms) : device_(device), terms_(terms) {
  if (terms == 1) return;
  for (const Index size : sizes) held_.push_back(device.allocate(Category::partial_sums, size));
}

bool RunningSum::add(Index unit, Index term, Array value) {
  if (terms_ == 1) return true;
  const Array held = held_[unit].array();
  const bool last = term == terms_ - 1;
  if (term == 0) {
    device_.kernels().copy(held, value);
  } else {
    device_.kernels().tree_sum(last ? value : held, std::array<ConstArray, 2>{held, value});
  }
  return last;
}

}  // namespace zero
