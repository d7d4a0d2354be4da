// plan: memory and traffic of every stage on paper.
#include <cstdio>

#include "common/base/error.h"
#include "tools/plan_report.h"

int main(int argc, char** argv) {
  using namespace zero;
  using namespace zero::tools;
  try {
    std::string text;
    if (const std::optional<PlanOptions> options = parse_plan_options(argc, argv, text)) {
      if (options->paper_table1) {
        text = paper_table1(*options);
      } else {
        text = options->json ? plan_json(*options) : plan_text(*options);
      }
    }
    std::fputs(text.c_str(), stdout);
    if (std::fflush(stdout) != 0) throw ResourceFailure("standard output cannot be written");
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.status());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(ExitStatus::failed);
  }
}
