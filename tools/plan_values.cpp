#include "tools/plan_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "common/base/bytes.h"
#include "common/base/error.h"
#include "tools/table.h"

namespace zero::tools {

Index whole_number(const std::string& option, const Value& given, Index least, Index otherwise, Index most) {
  if (!given) return otherwise;
  const std::string& text = *given;
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range || (error == std::errc() && value > most)) {
    throw UnusableInput(fmt::format("{} {} is too large; up to {} would do", option, harmless(text, 40), most));
  }
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    throw UnusableInput(fmt::format("{} '{}' is not a whole number from {} up; {} would do", option, harmless(text, 40),
                                    least, std::max(least, otherwise)));
  }
  return value;
}

bool one_of_two(const std::string& option, const std::string& text, const char* no, const char* yes) {
  if (text == yes) return true;
  if (text == no) return false;
  throw UnusableInput(fmt::format("{} '{}' is not known; {} or {} would do", option, harmless(text, 40), no, yes));
}

Index positive_size(const std::string& option, const std::string& text) {
  Index bytes = 0;
  try {
    bytes = parse_bytes(text);
  } catch (const UnusableInput& error) {
    throw UnusableInput(fmt::format("{}: {}", option, error.what()));
  }
  if (bytes == 0) throw UnusableInput(fmt::format("{} is 0, which holds nothing; 1MiB would do", option));
  return bytes;
}

Index bare_parameters(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != '\0' || text.empty() || !(value >= 1) || value > 1e14 || value != std::floor(value)) {
    throw UnusableInput(
        fmt::format("--parameters '{}' is not a whole number from 1 to 1e14; 7.5e9 would do", harmless(text, 40)));
  }
  return static_cast<Index>(value);
}

double probability(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool number = !text.empty() && *end == '\0' && text.find_first_not_of("0123456789.eE+-") == std::string::npos;
  if (!number || !(value >= 0 && value < 1)) {
    throw UnusableInput(
        fmt::format("{} '{}' is not a number from 0 to below 1; 0.1 would do", option, harmless(text, 40)));
  }
  return value;
}

}  // namespace zero::tools
