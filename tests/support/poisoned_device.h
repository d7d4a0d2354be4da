#pragma once
/// \file
/// A CPU device whose products go wrong once, as planned: how tests plant a value that is not finite.

#include <functional>
#include <memory>

#include "common/device/device.h"

namespace zero::test {

/// What one product is: the sizes of its output (m, n) and of its sums (k).
struct ProductShape {
  Index m, n, k;
  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

/// The first product of shape `where` puts `value` in its first element, once.
struct Poison {
  ProductShape where;
  float value = 0;
  bool spent = false;
};

/// A CPU device with canonical products on one thread. `poison` outlives it; nullptr: none.
std::unique_ptr<Device> make_poisoned_device(Poison* poison);

}  // namespace zero::test
