// Dumps a run of the baseline for compare_dump.py: dump_run DIR [odd|once] [bf16]. Without MPI.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <set>

#include "common/base/error.h"
#include "tests/support/stage_run.h"

namespace zero::test {
namespace {

using Json = nlohmann::json;

void write(const std::filesystem::path& path, const void* data, Index bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), bytes);
  if (!file) throw ResourceFailure(path.string() + " cannot be written");
}

/// Writes one view of all tensors, widened to fp32, and notes the file names in the manifest.
void dump_tensors(const std::filesystem::path& directory, Json& tensors, const std::string& what, const FlatUnit& unit,
                  ConstArray stored, Device& device) {
  const Buffer widened = device.allocate(Category::workspace, stored.size);
  device.kernels().copy(widened.array(), stored);
  const ConstArray values = widened.array();
  for (const TensorPart& part : unit.parts(0, unit.size())) {
    const std::string file = fmt::format("{}.{}.f32", part.tensor->id, what);
    tensors[static_cast<std::size_t>(part.tensor->id)][what] = file;
    write(directory / file, values.part(part.flat_begin, part.size).data, part.size * 4);
  }
}

std::vector<Index> shape_of(const std::string& name, Index size, const ModelConfig& c) {
  if (name.ends_with("token.weight")) return {c.vocab, c.width};
  if (name.ends_with("position.weight")) return {c.context, c.width};
  if (name.ends_with("qkv.weight")) return {3 * c.width, c.width};
  if (name.ends_with("projection.weight")) return {c.width, c.width};
  if (name.ends_with("expand.weight")) return {4 * c.width, c.width};
  if (name.ends_with("project.weight")) return {c.width, 4 * c.width};
  return {size};
}

/// The gradient of step t's only leaf, before clipping, from the trainer's parameters as they are.
void dump_gradient(const std::filesystem::path& directory, Json& tensors, const std::string& what, Run& run, Index t) {
  const Context& context = run.context();
  const std::vector<FlatUnit>& units = run.trainer().units();
  std::vector<ConstArray> parameters(units.size());
  run.trainer().visit_state([&](StateKind kind, const UnitView& view) {
    if (kind == StateKind::parameters) parameters[static_cast<std::size_t>(view.unit)] = view.values;
  });
  std::vector<Buffer> gradients;
  for (const FlatUnit& unit : units) {
    gradients.push_back(context.device.allocate(Category::gradients, unit.size(), context.model.dtype));
  }
  Gpt2 model(context.config, context.micro_batch, units, context.model, context.device);
  context.load_leaf(t, 0, model);
  model.embed_forward(parameters[0]);
  for (Index u = 1; u < std::ssize(units); ++u) model.forward(u, parameters[u]);
  model.head_forward(parameters[0]);
  model.head_backward(parameters[0]);
  for (Index u = std::ssize(units) - 1; u > 0; --u) model.backward(u, parameters[u], gradients[u].array());
  model.embed_backward(gradients[0].array());
  for (Index u = 0; u < std::ssize(units); ++u) {
    dump_tensors(directory, tensors, what, units[u], gradients[u].array(), context.device);
  }
}

void dump(const std::filesystem::path& directory, const RunSetting& setting) {
  std::filesystem::create_directories(directory);
  Run run(setting, MPI_COMM_SELF);
  const std::vector<FlatUnit>& units = run.trainer().units();
  Json tensors = Json::array();
  for (const FlatUnit& unit : units) {
    for (const TensorSpec& tensor : unit.tensors()) {
      tensors.push_back({{"name", tensor.name}, {"shape", shape_of(tensor.name, tensor.size, setting.config)}});
    }
  }
  const auto dump_state = [&](StateKind wanted, const std::string& what) {
    run.trainer().visit_state([&](StateKind kind, const UnitView& view) {
      if (kind == wanted) dump_tensors(directory, tensors, what, units[view.unit], view.values, run.context().device);
    });
  };
  const bool bf16 = setting.dtype == Dtype::bf16;
  const StateKind master = bf16 ? StateKind::master : StateKind::parameters;  // what the optimizer updates
  dump_state(master, "initial");
  dump_gradient(directory, tensors, "gradient", run, 1);
  std::vector<double> losses, norms;
  for (Index t = 1; t <= setting.steps; ++t) {
    const StepResult result = run.trainer().train_step(t);
    losses.push_back(result.loss);
    norms.push_back(result.norm.value);
  }
  dump_state(master, "final");
  dump_state(StateKind::parameters, "parameters");
  dump_state(StateKind::momentum, "momentum");
  dump_state(StateKind::variance, "variance");
  dump_gradient(directory, tensors, "last_gradient", run, setting.steps);

  const std::size_t rows = static_cast<std::size_t>(setting.micro_batch * setting.config.context);
  std::vector<std::int32_t> tokens, targets, some(rows), next(rows);
  for (Index t = 0; t < setting.steps; ++t) {
    run.context().sampler.load(t * setting.micro_batch, some, next);
    tokens.insert(tokens.end(), some.begin(), some.end());
    targets.insert(targets.end(), next.begin(), next.end());
  }
  write(directory / "tokens.i32", tokens.data(), std::ssize(tokens) * 4);
  write(directory / "targets.i32", targets.data(), std::ssize(targets) * 4);

  const AdamWOptions& o = run.context().optimizer;
  const Json manifest = {{"layers", setting.config.layers},
                         {"heads", setting.config.heads},
                         {"width", setting.config.width},
                         {"context", setting.config.context},
                         {"vocab", setting.config.vocab},
                         {"precision", bf16 ? "bf16" : "fp32"},
                         {"micro_batch", setting.micro_batch},
                         {"tokens", "tokens.i32"},
                         {"targets", "targets.i32"},
                         {"losses", losses},
                         {"grad_norms", norms},
                         {"optimizer",
                          {{"lr", o.learning_rate},
                           {"schedule", o.schedule == Schedule::cosine ? "cosine" : "constant"},
                           {"warmup", o.warmup},
                           {"min_lr", o.min_learning_rate},
                           {"beta1", o.beta1},
                           {"beta2", o.beta2},
                           {"eps", o.epsilon},
                           {"weight_decay", o.weight_decay},
                           {"clip", o.clip},
                           {"steps", o.steps}}},
                         {"tensors", tensors}};
  std::ofstream(directory / "manifest.json") << manifest.dump(1);
}

}  // namespace
}  // namespace zero::test

int main(int argc, char** argv) {
  using namespace zero;
  if (argc < 2) return 2;
  const std::set<std::string> words(argv + 2, argv + argc);
  test::RunSetting setting;
  setting.learning_rate = 6e-4;
  setting.steps = 4;
  if (words.contains("bf16")) setting.dtype = Dtype::bf16;
  if (words.contains("odd")) {  // odd sizes, heads that differ from 1, data below 61
    setting.config = {.layers = 3, .heads = 3, .width = 33, .context = 20, .vocab = 61};
    setting.data = ZERO_TEST_DATA "/bytes_below_61.txt";
    setting.micro_batch = 3;
  } else if (words.contains("once")) {
    // One step, so large that biases leave zero and norm weights one. In this run no number that is stored in bf16 lies
    // so near the middle of two that an error of fp32 decides which it becomes (another run has one now and then).
    setting.config = {.layers = 2, .heads = 3, .width = 33, .context = 20, .vocab = 61};
    setting.data = ZERO_TEST_DATA "/bytes_below_61.txt";
    setting.micro_batch = 2;
    setting.learning_rate = 1e-2;
    setting.steps = 1;
  } else {
    setting.config = find_preset("tiny")->config;
    setting.data = ZERO_TEST_DATA "/../../docs/corpus.txt";
    setting.micro_batch = words.contains("bf16") ? 16 : 2;
  }
  test::dump(argv[1], setting);
  return 0;
}
