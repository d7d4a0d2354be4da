#include "common/train/option_types.h"
#include "common/train/run.h"
#include "stage2_gradients/formula.h"
#include "stage2_gradients/trainer.h"

int main(int argc, char** argv) {
  using namespace zero;
  Program program;
  program.name = "stage2_gradients";
  program.description =
      "ZeRO stage 2: optimizer states and gradients sharded. Each unit's gradient is reduce-scattered "
      "as soon as it is complete and only the own slice is kept (2 P elements sent per rank and step, "
      "times (N-1)/N).";
  program.offers_accumulation = false;
  program.why_no_local_first = "local-first sums whole gradients on each rank, which this stage does not keep";
  program.add_options = [](CLI::App& app, Options&) {
    add_offered_elsewhere(app, "--as-world", "baseline");
    for (const char* option : {"--prefetch", "--reshard-after-forward", "--shard-group"}) {
      add_offered_elsewhere(app, option, "stage3_params");
    }
  };
  program.make_trainer = [](const Context& context) { return std::make_unique<stage2_gradients::Trainer>(context); };
  program.formula = stage2_gradients::formula;
  return run(program, argc, argv);
}
