#pragma once
/// \file
/// Sizes in bytes, for people.

#include <string>
#include <string_view>

#include "common/base/types.h"

namespace zero {

/// "512.0 MiB": one digit after the point in the largest unit that fits; below 1 KiB "17 bytes".
std::string format_bytes(Index bytes);

/// Bytes from "1048576", "512MiB", "1.5 GiB" or "2GB": KiB, MiB, GiB, TiB are powers of 1024, kB, MB, GB, TB of 1000, B
/// is one. A fraction must come out as whole bytes. Throws UnusableInput naming the value when it is anything else,
/// negative, or beyond 64 bits.
Index parse_bytes(std::string_view text);

}  // namespace zero
