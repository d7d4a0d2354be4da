#include "common/base/digest.h"

#include <fmt/format.h>

namespace zero {

std::string to_hex(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

}  // namespace zero
