#pragma once
/// \file
/// Streams and events of CUDA on the host: queued work, and the order it runs in. For the fakes of NCCL and cuBLAS too.

#include <functional>
#include <string>

#include "tests/fakes/cuda_on_host/cuda_runtime.h"

namespace cuda_on_host {

/// Whether work may run, where that hangs on more than CUDA's order: on other processes.
enum class Readiness { now, later, never };

/// Something that waits in a stream for its turn.
struct Work {
  std::string name;                       ///< for faults
  std::function<void()> run;              ///< may touch device memory
  std::function<Readiness()> ready = {};  ///< empty: now
};

/// Whether the stream exists and was not destroyed.
bool usable(cudaStream_t stream);
/// The stream must be usable.
void queue(cudaStream_t stream, Work work);

/// Runs what all work queued on the stream so far depends on, in the order of the schedule. Throws a Fault when that
/// cannot come to an end, and those of the work.
void run_all(cudaStream_t stream);
/// The same, without a Fault when that cannot come to an end: then false.
bool try_run_all(cudaStream_t stream);

}  // namespace cuda_on_host
