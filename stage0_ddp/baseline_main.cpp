#include "common/train/option_types.h"
#include "common/train/run.h"
#include "stage0_ddp/baseline.h"
#include "stage0_ddp/formula.h"

int main(int argc, char** argv) {
  using namespace zero;
  Program program;
  program.name = "baseline";
  program.description =
      "The unsharded baseline: one process that holds everything and communicates nothing. With --as-world N it adds "
      "in "
      "the order of N ranks, so that every stage on N ranks must give its bytes.";
  program.single_process = true;
  program.add_options = [](CLI::App& app, Options& options) {
    add_as_world_option(app, options);
    add_delay_options(app, options);
    add_tile_option(app, options);
    for (const char* option : {"--prefetch", "--reshard-after-forward", "--shard-group"}) {
      add_offered_elsewhere(app, option, "stage3_params");
    }
  };
  program.make_trainer = [](const Context& context) { return std::make_unique<stage0_ddp::Baseline>(context); };
  program.formula = stage0_ddp::baseline_formula;
  return run(program, argc, argv);
}
