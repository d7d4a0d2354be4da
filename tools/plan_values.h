#pragma once
/// \file
/// Reads the values of plan's command line. All throw UnusableInput with one sentence that names the option.

#include <limits>
#include <optional>
#include <string>

#include "common/base/types.h"

namespace zero::tools {

/// A value as it stands on the command line, which can be the empty text; nothing where an option is not given.
using Value = std::optional<std::string>;

/// From `least` to `most`; `otherwise` where it is not given.
Index whole_number(const std::string& option, const Value& given, Index least, Index otherwise,
                   Index most = std::numeric_limits<Index>::max());
/// Whether `text` is `yes`; it may be `no`.
bool one_of_two(const std::string& option, const std::string& text, const char* no, const char* yes);
/// Bytes, more than none.
Index positive_size(const std::string& option, const std::string& text);
/// Of `--parameters`.
Index bare_parameters(const std::string& text);
/// From 0 to below 1.
double probability(const std::string& option, const std::string& text);

}  // namespace zero::tools
