#pragma once
/// \file
/// What plan prints.

#include <string>

#include "tools/plan_options.h"

namespace zero::tools {

/// The table, the sentences, and with --device-memory what fits; or JSON, or Markdown.
std::string plan_text(const PlanOptions& options);
std::string plan_json(const PlanOptions& options);

/// Table 1 of the ZeRO paper: model states in GB (1e9 bytes) of three models on 1 to 1024 devices, 16-bit
/// training.
std::string paper_table1(const PlanOptions& options);

}  // namespace zero::tools
