#pragma once
/// \file
/// Settings that tests make through the environment, for programs they start.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

namespace cuda_on_host {

/// What the variable names, by its place in `names`; `otherwise` when it is not set. Another name ends the program.
template <class Enum>
Enum setting(const char* variable, std::initializer_list<std::string_view> names, Enum otherwise) {
  const char* const value = std::getenv(variable);
  if (value == nullptr) return otherwise;
  int place = 0;
  for (const std::string_view name : names) {
    if (name == value) return static_cast<Enum>(place);
    ++place;
  }
  std::fprintf(stderr, "%s=%s is unknown\n", variable, value);
  std::exit(2);
}

/// A number, or `otherwise`.
inline std::size_t number_setting(const char* variable, std::size_t otherwise) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

inline unsigned seed_setting() { return static_cast<unsigned>(number_setting("CUDA_ON_HOST_SEED", 0)); }

}  // namespace cuda_on_host
