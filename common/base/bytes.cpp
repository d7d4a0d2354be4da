#include "common/base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "common/base/error.h"

namespace zero {
namespace {

struct Unit {
  std::string_view name;
  Index bytes;
};
constexpr Index kKibi = 1024;
constexpr Index kKilo = 1000;
constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"KiB", kKibi},
                                          {"MiB", kKibi* kKibi},
                                          {"GiB", kKibi* kKibi* kKibi},
                                          {"TiB", kKibi* kKibi* kKibi* kKibi},
                                          {"kB", kKilo},
                                          {"MB", kKilo* kKilo},
                                          {"GB", kKilo* kKilo* kKilo},
                                          {"TB", kKilo* kKilo* kKilo* kKilo}}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string format_bytes(Index bytes) {
  if (bytes < kKibi) return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
  double value = static_cast<double>(bytes);
  std::string_view unit;
  for (const std::string_view next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (!unit.empty() && value < 1023.95) break;  // 1023.95 would be printed as 1024.0
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

Index parse_bytes(std::string_view text) {
  const auto refuse = [&](std::string_view why) -> UnusableInput {
    return UnusableInput(
        fmt::format("size '{}' {}; a size is a number of bytes or looks like 512MiB or 2GB", text, why));
  };
  std::size_t at = 0;
  constexpr Index kLargest = std::numeric_limits<Index>::max();
  Index whole = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    const Index digit = text[at] - '0';
    if (whole > (kLargest - digit) / 10) throw refuse("is too large");
    whole = whole * 10 + digit;
  }
  if (at == 0) throw refuse("is not a size");
  Index fraction = 0;
  Index fraction_scale = 1;
  if (at < text.size() && text[at] == '.') {
    const std::size_t first = ++at;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      if (at - first >= 6) throw refuse("has more than six digits after the point");
      fraction = fraction * 10 + (text[at] - '0');
      fraction_scale *= 10;
    }
    if (at == first) throw refuse("is not a size");
  }
  std::size_t unit_at = at;
  while (unit_at < text.size() && text[unit_at] == ' ') ++unit_at;
  const std::string_view name = text.substr(unit_at);
  if (name.empty() && unit_at != at) throw refuse("is not a size");
  for (const Unit& unit : kUnits) {
    if (unit.name != name) continue;
    if (whole > kLargest / unit.bytes) throw refuse("is too large");
    const __int128 parts = static_cast<__int128>(fraction) * unit.bytes;
    if (parts % fraction_scale != 0) throw refuse("is not a whole number of bytes");
    const __int128 bytes = static_cast<__int128>(whole) * unit.bytes + parts / fraction_scale;
    if (bytes > kLargest) throw refuse("is too large");
    return static_cast<Index>(bytes);
  }
  throw refuse("is not a size");
}

}  // namespace zero
