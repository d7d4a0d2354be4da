#pragma once
/// \file
/// The sizes of a GPT-2.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.h"

namespace zero {

/// Letters used in comments: L layers, H heads, C width, T context, V vocabulary.
struct ModelConfig {
  Index layers = 0;
  Index heads = 0;
  Index width = 0;    ///< a multiple of heads
  Index context = 0;  ///< tokens in a sequence
  Index vocab = 0;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// A named model with the micro-batch that suits it.
struct ModelPreset {
  std::string_view name;
  ModelConfig config;
  Index micro_batch = 1;
};

/// `tiny`, `small`, `gpt2`, `gpt2-medium`, `gpt2-large`, `gpt2-xl`.
const std::vector<ModelPreset>& model_presets();

/// The preset of that name, if there is one.
std::optional<ModelPreset> find_preset(std::string_view name);

}  // namespace zero
