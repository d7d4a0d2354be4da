#pragma once
/// \file
/// A CUDA device for tests: a stream, kernels on it, and vectors in its memory.

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "common/device/cuda/cuda_kernels.h"
#include "common/device/cuda/cuda_products.h"
#include "common/device/cuda/runtime.h"
#include "tests/cuda/adversary.h"
#include "tests/device/views.h"

namespace zero::test {

/// Device memory of exactly `bytes` bytes; none for 0.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    if (bytes > 0) cuda::check(cudaMalloc(&data_, bytes), "cudaMalloc");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Gives views in device memory for vectors on the host, each in an allocation of exactly its size. A vector is
/// uploaded when it is placed for the first time since finish(), which downloads those that may have been written.
class OnDevice {
 public:
  explicit OnDevice(cudaStream_t stream) : stream_(stream) {}

  template <class T>
  Array operator()(std::vector<T>& v) {
    return {place(&v, v.data(), v.size() * sizeof(T), v.data()), static_cast<Index>(v.size()), view(v).dtype};
  }
  template <class T>
  ConstArray operator()(const std::vector<T>& v) {
    return {place(&v, v.data(), v.size() * sizeof(T), nullptr), static_cast<Index>(v.size()), view(v).dtype};
  }
  const std::int32_t* indices(const std::vector<std::int32_t>& v) {
    return static_cast<const std::int32_t*>(place(&v, v.data(), v.size() * sizeof(std::int32_t), nullptr));
  }

  void finish() {
    for (auto& [vector, block] : blocks_) {
      if (!block.placed) continue;
      block.placed = false;
      if (block.back != nullptr && block.bytes > 0)
        cuda::read_back(block.back, block.memory->data(), block.bytes, stream_);
    }
    cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  struct Block {
    std::unique_ptr<DeviceMemory> memory;
    std::size_t bytes = 0;
    bool placed = false;
    void* back = nullptr;  ///< where it is downloaded to
  };

  void* place(const void* vector, const void* host, std::size_t bytes, void* back) {
    Block& block = blocks_[vector];
    if (block.memory == nullptr || block.bytes != bytes) {
      if (block.memory != nullptr) cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
      block = {std::make_unique<DeviceMemory>(bytes), bytes, false, nullptr};
    }
    if (!block.placed) {
      block.back = nullptr;
      if (bytes > 0) {
        cuda::check(cudaMemcpyAsync(block.memory->data(), host, bytes, cudaMemcpyHostToDevice, stream_),
                    "cudaMemcpyAsync");
      }
    }
    block.placed = true;
    if (back != nullptr) block.back = back;
    return block.memory->data();
  }

  cudaStream_t stream_;
  std::map<const void*, Block> blocks_;
};

/// All that a test needs of a GPU, whose threads run in `order`.
class Gpu {
 public:
  explicit Gpu(Order order) : scratch_(static_cast<std::size_t>(CudaKernels::scratch_bytes())) {
    set_order(order);
    kernels.check_indices();
  }

 private:
  cuda::Stream stream_;
  DeviceMemory scratch_;

 public:
  [[nodiscard]] cudaStream_t stream() const { return stream_.handle(); }
  CudaKernels kernels{stream_.handle(), scratch_.data()};
  OnDevice place{stream_.handle()};
};

}  // namespace zero::test
