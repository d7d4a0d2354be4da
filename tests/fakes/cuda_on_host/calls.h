#pragma once
/// \file
/// What every call of the runtime API does beside its work.

#include <string>

#include "tests/fakes/cuda_on_host/cuda_runtime.h"

namespace cuda_on_host {

/// The error that a test wants of this call, once. Throws a Fault when the calls come from more than one thread.
cudaError_t enter(const char* call);
/// Remembers an error for cudaGetLastError().
cudaError_t leave(cudaError_t error);

/// A call whose work is body(), which returns its cudaError_t.
template <class Body>
cudaError_t answer(const char* call, Body body) {
  const cudaError_t planned = enter(call);
  return leave(planned != cudaSuccess ? planned : body());
}

}  // namespace cuda_on_host
