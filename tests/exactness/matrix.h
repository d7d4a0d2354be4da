#pragma once
/// \file
/// The exactness matrix: combinations of the options' values, thinned by a covering array.

#include <functional>
#include <string>
#include <vector>

#include "tests/support/stage_run.h"

namespace zero::test {

/// An option with the values that the matrix gives it. Value 0 goes with every value of every other factor.
struct Factor {
  struct Value {
    std::string name;  ///< as the listing prints it
    std::function<void(RunSetting&)> apply;
    std::function<bool(const RunSetting&)> fits = {};  ///< of a whole setting; empty: fits everything
  };
  std::string name;
  std::vector<Value> values;
};

/// A combination: the number of a value for each factor.
using Row = std::vector<std::size_t>;

/// Rows that meet every `strength` values of different factors that go together, built by a greedy rule without random
/// numbers (the AETG idea of Cohen et al. 1997): the same rows everywhere. `together(f, v, g, w)` says whether value v
/// of factor f goes with value w of factor g.
using Together = std::function<bool(std::size_t f, std::size_t v, std::size_t g, std::size_t w)>;
std::vector<Row> covering_array(const std::vector<std::size_t>& counts, std::size_t strength, const Together& together);

/// Every factor of the matrix; factor 0 is the number of ranks.
const std::vector<Factor>& matrix_factors();

/// Whether two values of the matrix's factors go together.
bool matrix_together(std::size_t f, std::size_t v, std::size_t g, std::size_t w);

/// A row of the matrix on a shape, and the names of its values: "N 4, stage 2, bf16, ...".
RunSetting matrix_setting(const Row& row, RunSetting shape);
std::string matrix_names(const Row& row);

}  // namespace zero::test
