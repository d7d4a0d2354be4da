#include "common/base/command_line.h"

#include <algorithm>
#include <numeric>

namespace zero {
namespace {

/// Letters changed, added, missing, or swapped with their neighbour.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> last, before, row(b.size() + 1);  // of the letters of `a` before this one
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = last;
    last = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = 3;  // more than two changes are another word
  for (const std::string& name : known) {
    const std::size_t d = distance(name, word);
    if (d < least) {
      least = d;
      best = name;
    }
  }
  return best;
}

std::string option_without_value(const std::vector<std::string>& arguments,
                                 const std::function<bool(const std::string& argument)>& takes_value) {
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (!takes_value(arguments[i])) continue;
    const std::string& value = arguments[i + 1];
    if (value.size() > 2 && value.starts_with("--")) return arguments[i];
    ++i;
  }
  return "";
}

}  // namespace zero
