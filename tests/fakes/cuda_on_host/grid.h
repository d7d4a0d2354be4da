#pragma once
/// \file
/// Runs the threads of a kernel.

#include <functional>
#include <string>

#include "tests/fakes/cuda_on_host/control.h"
#include "tests/fakes/cuda_on_host/cuda_runtime.h"

namespace cuda_on_host {

/// A launch as it waits in its stream.
struct Launch {
  std::string name;  ///< "kernel NAME", for faults
  dim3 grid, block;  ///< along x only
  std::size_t shared_bytes = 0;
  std::function<void()> thread;  ///< what each thread runs
};

/// The limits of every GPU since compute capability 7.5, without opting in to more.
constexpr std::size_t kMostThreads = 1024, kMostSharedBytes = 48 * 1024;

/// Runs all blocks, one after the other. Throws a Fault when a thread of a block does not come to a barrier that
/// another waits at, and when a thread writes past the shared memory (with AddressSanitizer that ends the program).
void run(const Launch& launch);

/// The kernels and threads that ran.
Counts counts_of_grid();

}  // namespace cuda_on_host
