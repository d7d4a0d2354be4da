// The exactness matrix meets what it says it meets.
#include "tests/exactness/matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace zero::test {
namespace {

std::vector<std::size_t> counts() {
  std::vector<std::size_t> counts;
  for (const Factor& factor : matrix_factors()) counts.push_back(factor.values.size());
  return counts;
}

TEST(ExactnessMatrix, EveryRowCanBeRun) {
  for (const Row& row : covering_array(counts(), 3, matrix_together)) {
    const RunSetting setting = matrix_setting(row, {});
    for (std::size_t f = 0; f < row.size(); ++f) {
      const Factor::Value& value = matrix_factors()[f].values[row[f]];
      EXPECT_TRUE(!value.fits || value.fits(setting)) << matrix_names(row) << ": " << value.name;
    }
  }
}

TEST(ExactnessMatrix, EveryPairOfValuesThatGoTogetherIsMetByPairsAndByTriples) {
  for (const std::size_t strength : {2, 3}) {
    const std::vector<Row> rows = covering_array(counts(), strength, matrix_together);
    std::size_t pairs = 0;
    for (std::size_t f = 0; f < counts().size(); ++f) {
      for (std::size_t g = f + 1; g < counts().size(); ++g) {
        for (std::size_t v = 0; v < counts()[f]; ++v) {
          for (std::size_t w = 0; w < counts()[g]; ++w) {
            const auto meets = [&](const Row& row) { return row[f] == v && row[g] == w; };
            const bool met = std::any_of(rows.begin(), rows.end(), meets);
            EXPECT_EQ(met, matrix_together(f, v, g, w))
                << matrix_factors()[f].values[v].name << " with " << matrix_factors()[g].values[w].name;
            pairs += met ? 1 : 0;
          }
        }
      }
    }
    fmt::print("{} settings meet all {} pairs of values{}\n", rows.size(), pairs, strength == 3 ? " and triples" : "");
  }
}

}  // namespace
}  // namespace zero::test
