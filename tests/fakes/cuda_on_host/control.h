#pragma once
/// \file
/// What a test can ask of CUDA on the host beyond the runtime API.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "tests/fakes/cuda_on_host/cuda_runtime.h"

namespace cuda_on_host {

/// A fault that a kernel was caught at; the text names the kernel. Thrown where someone waits for the stream.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// In which order a grid's blocks run, and a block's threads between two barriers.
enum class Order { forward, reverse, shuffled };
void set_order(Order order);

/// The next call of this name returns `error` and does nothing.
void fail_next(const std::string& call, cudaError_t error);

/// Allocations that were not freed.
std::size_t live_allocations();

/// Kernels that ran, and threads of them.
struct Counts {
  std::uint64_t kernels = 0, threads = 0;
};
Counts counts();

/// Every byte of memory that was not written, or was freed: as fp32, bf16 and double a NaN.
constexpr unsigned char kPoison = 0xFF;

/// Whether writes out of bounds are found by AddressSanitizer, which ends the program; otherwise they are found in the
/// bytes around an allocation after each kernel (a Fault).
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
constexpr bool kAddressSanitizer = false;
#endif

}  // namespace cuda_on_host
