#pragma once
/// \file
/// What a run's options mean for the formulas.

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "tools/stages.h"

namespace zero::tools {

/// The option's value as text, whatever its JSON type; nothing where it is absent or null.
std::optional<std::string> option_text(const nlohmann::json& options, const char* name);

/// The setting that a run's options (those of a summary, or of a command line) describe; missing ones are taken from
/// `otherwise`. Throws UnusableInput, naming the option, where neither has it, or where a value is none.
formula::Setting setting_of(const nlohmann::json& options, const nlohmann::json& otherwise, Index ranks);

/// The row of stages() that a run of `executable` with these options is; nothing for a program of another name. Throws
/// UnusableInput for options that `offload` refuses.
const Stage* stage_of_run(const std::string& executable, const nlohmann::json& options);

}  // namespace zero::tools
