#pragma once
/// \file
/// A CUDA device whose work runs in the way that the test is given.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/device/cuda/cuda_device.h"
#include "tests/cuda/adversary.h"

namespace zero::test {

inline constexpr Index kSize = 1000;

inline std::vector<float> downloaded(Device& device, ConstArray array) {
  std::vector<float> host(static_cast<std::size_t>(array.size), -1.0F);
  device.download(host.data(), array);
  return host;
}

inline std::vector<float> all(float value) { return std::vector<float>(static_cast<std::size_t>(kSize), value); }

inline float* floats(const Buffer& buffer) { return static_cast<float*>(buffer.array().data); }

inline std::string reason_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// Given a number for choose_adversary().
class CudaDeviceQueues : public ::testing::TestWithParam<std::size_t> {
 protected:
  CudaDeviceQueues() { choose_adversary(GetParam()); }
  ~CudaDeviceQueues() override { choose_adversary(0); }

  Buffer buffer(Tier tier = Tier::device) {
    return device_.allocate_uninitialized(Category::activations, kSize, Dtype::fp32, tier);
  }

  CudaDevice device_{ProductKind::canonical, 0};
};

}  // namespace zero::test
