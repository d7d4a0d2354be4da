// Table 1 of the ZeRO paper.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/plan_report.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

/// With four significant digits, or all of those before the point: 30.09, 16000.
std::string four_digits(double value) {
  return value < 1000 ? fmt::format("{:.4g}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

std::string paper_table1(const PlanOptions& options) {
  Table table({"N", "Pos", "Pos+g", "Pos+g+p", "Pos", "Pos+g", "Pos+g+p", "Pos", "Pos+g", "Pos+g+p"});
  table.group_columns({"7.5B", "128B", "1T"});
  nlohmann::ordered_json json = {{"schema", 1}, {"unit", "GB"}, {"rows", nlohmann::ordered_json::array()}};
  for (const Index world : {1, 4, 16, 64, 256, 1024}) {
    std::vector<std::string> cells = {std::to_string(world)};
    for (const Index parameters : {Index{7500000000}, Index{128000000000}, Index{1000000000000}}) {
      for (const char* stage : {"1", "2", "3"}) {
        formula::Setting s;
        s.world = world;
        s.bf16 = true;                           // 16-bit parameters and gradients, fp32 master weights and moments
        s.bare_parameters = parameters * world;  // then every slice is whole, and the formula is linear
        const Index bytes = formula::model_states(stage_of_label(stage)->formula(s));
        constexpr Index kGiga = 1000000000;
        const double gigabytes = static_cast<double>(bytes) / static_cast<double>(world * kGiga);
        cells.push_back(four_digits(gigabytes));
        json["rows"].push_back(
            {{"parameters", parameters}, {"world", world}, {"stage", stage}, {"model_states", gigabytes}});
      }
    }
    table.add_row(std::move(cells));
  }
  if (options.json) return json.dump(1) + "\n";
  return wrapped(
             "Table 1 of the ZeRO paper, computed: GB (1e9 bytes) of model states a device, 16-bit training with fp32 "
             "master weights and moments, stages 1 (Pos), 2 (Pos+g), 3 (Pos+g+p) at N devices, for models of 7.5e9, "
             "128e9 and 1e12 parameters:") +
         "\n" + (options.markdown ? table.markdown() : table.text()) + "\n" +
         wrapped("- four significant digits; --json has all") +
         wrapped("- the paper rounds its first model's cells and cuts off the others': 513.5 is printed as 513");
}

}  // namespace zero::tools
