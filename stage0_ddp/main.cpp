#include "common/train/option_types.h"
#include "common/train/run.h"
#include "stage0_ddp/formula.h"
#include "stage0_ddp/trainer.h"

int main(int argc, char** argv) {
  using namespace zero;
  Program program;
  program.name = "stage0_ddp";
  program.description =
      "Stage 0: plain data parallelism. Every rank holds all parameters, gradients and optimizer "
      "states; gradients are averaged over the ranks (2 P elements sent per rank and step, times "
      "(N-1)/N).";
  program.add_options = [](CLI::App& app, Options&) {
    add_offered_elsewhere(app, "--as-world", "baseline");
    for (const char* option : {"--prefetch", "--reshard-after-forward", "--shard-group"}) {
      add_offered_elsewhere(app, option, "stage3_params");
    }
  };
  program.make_trainer = [](const Context& context) { return std::make_unique<stage0_ddp::Trainer>(context); };
  program.formula = stage0_ddp::formula;
  return run(program, argc, argv);
}
