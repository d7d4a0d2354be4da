#include "common/model/config.h"

namespace zero {

const std::vector<ModelPreset>& model_presets() {
  // {L, H, C, T, V}, micro-batch. The last four are GPT-2's published sizes: 124M, 355M, 774M and 1.5B parameters.
  static const std::vector<ModelPreset> presets = {
      {"tiny", {4, 4, 128, 128, 256}, 8},
      {"small", {6, 6, 384, 256, 256}, 4},
      {"gpt2", {12, 12, 768, 1024, 50257}, 1},
      {"gpt2-medium", {24, 16, 1024, 1024, 50257}, 1},
      {"gpt2-large", {36, 20, 1280, 1024, 50257}, 1},
      {"gpt2-xl", {48, 25, 1600, 1024, 50257}, 1},
  };
  return presets;
}

std::optional<ModelPreset> find_preset(std::string_view name) {
  for (const ModelPreset& preset : model_presets()) {
    if (preset.name == name) return preset;
  }
  return std::nullopt;
}

}  // namespace zero
