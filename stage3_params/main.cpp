#include "common/train/option_types.h"
#include "common/train/run.h"
#include "stage3_params/formula.h"
#include "stage3_params/trainer.h"

int main(int argc, char** argv) {
  using namespace zero;
  Program program;
  program.name = "stage3_params";
  program.description =
      "ZeRO stage 3: parameters, gradients and optimizer states sharded. Each unit is gathered just "
      "before it is used and freed just after (3 P elements sent per rank and step, times (N-1)/N).";
  program.offers_accumulation = false;
  program.why_no_local_first = "local-first sums whole gradients on each rank, which this stage does not keep";
  program.add_options = [](CLI::App& app, Options& options) {
    add_gather_options(app, options);
    add_shard_group_option(app, options);
    add_offered_elsewhere(app, "--as-world", "baseline");
  };
  program.make_trainer = [](const Context& context) { return std::make_unique<stage3_params::Trainer>(context); };
  program.formula = stage3_params::formula;
  return run(program, argc, argv);
}
