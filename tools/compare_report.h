#pragma once
/// \file
/// What compare prints and writes.

#include <string>
#include <vector>

#include "tools/compare_judge.h"
#include "tools/table.h"

namespace zero::tools {

struct Report {
  Index ranks = 1;
  formula::Setting setting;  ///< of the reference run
  std::string model;         ///< its preset
  Index steps = 0;
  std::vector<Judged> rows;        ///< the reference first
  std::vector<std::string> notes;  ///< on what was left out

  [[nodiscard]] bool right() const;
};

/// The table in one unit of bytes, with offload a second one of tiers, that all is well, a sentence for each surprise,
/// and last what is wrong.
std::string report_text(const Report& report);
std::string report_markdown(const Report& report);
/// Bytes; the names of categories and purposes are those of summary.json.
std::string report_json(const Report& report);
std::string report_csv(const Report& report);

}  // namespace zero::tools
