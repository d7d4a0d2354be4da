#pragma once
/// \file
/// What every command line of the project has in common, whatever reads it.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// The name in `known` that `word` was probably meant to be: at most two changed, added, missing or swapped letters
/// away; empty where there is none.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// The first argument that is an option whose value is missing, since another option (a word that begins with "--")
/// stands in its place; empty where there is none. `takes_value` tells for a whole argument ("--out") whether it is an
/// option that the next argument is the value of.
std::string option_without_value(const std::vector<std::string>& arguments,
                                 const std::function<bool(const std::string& argument)>& takes_value);

}  // namespace zero
