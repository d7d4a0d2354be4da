#include "tools/largest_fit.h"

#include <algorithm>

namespace zero::tools {
namespace {

/// How full the fullest tier is: 1 is its cap.
double fill(const Row& row, const Caps& caps) {
  const auto of = [&](const char* tier, const std::optional<Index>& cap) {
    return cap ? static_cast<double>(row.total(tier)) / static_cast<double>(*cap) : 0.0;
  };
  return std::max(of("device", caps.device), of("host", caps.host));
}

}  // namespace

bool fits(const Row& row, const Caps& caps) {
  return (!caps.device || row.total("device") <= *caps.device) && (!caps.host || row.total("host") <= *caps.host);
}

Index largest_that_fits(const Stage& stage, const formula::Setting& setting, const Caps& caps) {
  const bool bare = setting.bare_parameters > 0;
  const auto of_size = [&](Index size) {
    formula::Setting s = setting;
    (bare ? s.bare_parameters : s.layers) = size;
    return s;
  };
  const auto row_of = [&](Index size) { return formula_row(stage, of_size(size)); };
  // Every size holds more than the one before. What can be counted at all is found first, which costs nothing.
  Index low = bare ? 1 : 0, high = bare ? Index{1} << 50 : formula::kMostLayers;
  for (Index beyond = high + 1, good = low; beyond - good > 1; high = good) {
    const Index middle = good + (beyond - good) / 2;
    (formula::countable(of_size(middle)) ? good : beyond) = middle;
  }
  const Row smallest = row_of(low), largest = row_of(high);
  if (!fits(smallest, caps)) return -1;
  if (fits(largest, caps)) return high;
  // A formula takes time in proportion to the layers. It is almost a line, which says where to look; every other look
  // is in the middle, for where it is none.
  double fill_low = fill(smallest, caps), fill_high = fill(largest, caps);
  for (bool by_line = true; high - low > 1; by_line = !by_line) {
    const double part = by_line ? (1 - fill_low) / (fill_high - fill_low) : 0.5;
    const Index offset = static_cast<Index>(part * static_cast<double>(high - low));
    const Index size = low + std::clamp<Index>(offset, 1, high - low - 1);
    const Row row = row_of(size);
    const bool good = fits(row, caps);
    (good ? low : high) = size;
    (good ? fill_low : fill_high) = fill(row, caps);
  }
  return low;
}

}  // namespace zero::tools
