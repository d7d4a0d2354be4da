#include "common/device/buffer.h"

#include <utility>

#include "common/device/device.h"

namespace zero {

Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      tier_(other.tier_),
      category_(other.category_),
      array_(std::exchange(other.array_, Array{})) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    reset();
    device_ = std::exchange(other.device_, nullptr);
    tier_ = other.tier_;
    category_ = other.category_;
    array_ = std::exchange(other.array_, Array{});
  }
  return *this;
}

void Buffer::reset() {
  if (device_ != nullptr && array_.size > 0) {
    device_->release(tier_, array_.data, array_.bytes());
    device_->ledger_.remove(tier_, category_, array_.bytes());
  }
  device_ = nullptr;
  array_ = Array{};
}

}  // namespace zero
