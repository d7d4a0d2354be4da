#pragma once
/// \file
/// What a test can ask of CUDA on the host beyond the runtime API.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "tests/fakes/cuda_on_host/cuda_runtime.h"

namespace cuda_on_host {

/// A fault that the program was caught at; the text names the kernel or call. Thrown where someone waits for the work.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// In which order a grid's blocks run, and a block's threads between two barriers. At first what the environment
/// variable CUDA_ON_HOST_ORDER says, or forward.
enum class Order { forward, reverse, shuffled };
void set_order(Order order);

/// Which of the queued work runs when someone waits for a point of a stream. The order of each stream and its events
/// are honoured, nothing else. At first what the environment variable CUDA_ON_HOST_SCHEDULE says, or lazy.
enum class Schedule {
  lazy,          ///< no more than the point depends on
  eager_others,  ///< first all that can run in other streams, then what the point depends on
  shuffled,      ///< the next of any stream, drawn at random, until the point is reached
};
void set_schedule(Schedule schedule);
/// Draws anew, for Schedule::shuffled and Order::shuffled. At first CUDA_ON_HOST_SEED, or 0.
void set_seed(unsigned seed);

/// How many GPUs there are, the same for all processes. At first CUDA_ON_HOST_DEVICES, or 1.
void set_device_count(int count);
/// Bytes of each GPU, at most 3 GiB, which is what it has at first unless CUDA_ON_HOST_MEMORY says less.
void set_device_memory(std::size_t bytes);

/// The next call of this name returns `error` and does nothing.
void fail_next(const std::string& call, cudaError_t error);

/// Calls of cudaStreamWaitEvent so far that had something to wait for.
std::uint64_t waits();
/// Plants the fault of a missing wait: call number `wait`, counted from 0 as waits() does, does nothing.
void ignore_wait(std::uint64_t wait);

/// Allocations of device and pinned memory that were not freed.
std::size_t live_allocations();

/// Bytes allocated with cudaMallocAsync, each allocation rounded up to 512, from its call to that of cudaFreeAsync.
struct Used {
  std::size_t now = 0, most = 0;
};
Used used_of_pool();
/// The same for pinned memory, in exact bytes.
Used used_of_pinned();

/// Kernels that ran, and threads of them; all work that ran (copies, fills, events, allocations as well).
struct Counts {
  std::uint64_t kernels = 0, threads = 0, work = 0;
};
Counts counts();

/// Every byte of memory that was not written, or was freed: as fp32, bf16 and double a NaN.
constexpr unsigned char kPoison = 0xFF;

/// Whether kernels that touch what they must not are found by AddressSanitizer, which ends the program at the very
/// byte; otherwise writes are found in the bytes around an allocation after each kernel (a Fault).
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
constexpr bool kAddressSanitizer = false;
#endif

}  // namespace cuda_on_host
