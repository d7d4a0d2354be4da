#include "common/train/option_types.h"
#include "common/train/run.h"
#include "stage1_optimizer/formula.h"
#include "stage1_optimizer/trainer.h"

int main(int argc, char** argv) {
  using namespace zero;
  Program program;
  program.name = "stage1_optimizer";
  program.description =
      "ZeRO stage 1: optimizer states sharded. Gradients are reduce-scattered, every rank updates its "
      "slice and all gather the new parameters (2 P elements sent per rank and step, times (N-1)/N).";
  program.add_options = [](CLI::App& app, Options&) {
    add_offered_elsewhere(app, "--as-world", "baseline");
    for (const char* option : {"--prefetch", "--reshard-after-forward", "--shard-group"}) {
      add_offered_elsewhere(app, option, "stage3_params");
    }
  };
  program.make_trainer = [](const Context& context) { return std::make_unique<stage1_optimizer::Trainer>(context); };
  program.formula = stage1_optimizer::formula;
  return run(program, argc, argv);
}
