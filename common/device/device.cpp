#include "common/device/device.h"

#include <fmt/format.h>

#include <limits>
#include <stdexcept>

#include "common/base/bytes.h"
#include "common/base/error.h"

namespace zero {
namespace {

/// What an empty buffer points to, so that it counts as a buffer and its view may be handed to memcpy.
alignas(128) std::byte empty_block[128];

void check_alike(ConstArray out, ConstArray in) {
  if (out.size != in.size || out.dtype != in.dtype) throw std::logic_error("a copy between tiers of unlike views");
}

}  // namespace

Buffer Device::allocate(Category category, Index size, Dtype dtype, Tier tier) {
  return make(category, size, dtype, tier, true);
}

Buffer Device::allocate_uninitialized(Category category, Index size, Dtype dtype, Tier tier) {
  return make(category, size, dtype, tier, false);
}

Buffer Device::make(Category category, Index size, Dtype dtype, Tier tier, bool zero) {
  if (size < 0) throw std::logic_error("a buffer of a negative size");
  if (size == 0) return {this, tier, category, Array{empty_block, 0, dtype}};
  if (size > std::numeric_limits<Index>::max() / size_of(dtype)) {
    throw ResourceFailure(
        fmt::format("asked for {} elements ({}), more than 64 bits can address", size, name(category)));
  }
  const Index bytes = size * size_of(dtype);
  ledger_.add(tier, category, bytes);
  void* memory = nullptr;
  try {
    memory = acquire(tier, category, bytes);
  } catch (...) {
    ledger_.remove(tier, category, bytes);
    throw;
  }
  if (memory == nullptr) {
    ledger_.remove(tier, category, bytes);
    throw ResourceFailure(fmt::format("asked for {} ({}), which the machine does not have, with {}; ask plan what fits",
                                      format_bytes(bytes), name(category), ledger_.held(tier)));
  }
  if (zero) fill_zero(tier, memory, bytes);
  return {this, tier, category, Array{memory, size, dtype}};
}

Mark Device::copy_down(Array host, ConstArray device) {
  check_alike(host, device);
  const OnQueue queue(*this, Queue::copies);
  queue_copy(host.data, device.data, host.bytes());
  transfers_.down += host.bytes();
  return mark();
}

Mark Device::copy_up(Array device, ConstArray host) {
  check_alike(device, host);
  const OnQueue queue(*this, Queue::copies);
  queue_copy(device.data, host.data, device.bytes());
  transfers_.up += device.bytes();
  return mark();
}

}  // namespace zero
