#pragma once
/// \file
/// What a test can ask of cuBLAS on the host beyond its API.

#include <cublas_v2.h>

#include <cstdint>
#include <string>

namespace cublas_on_host {

/// The next call of this name returns `status` and does nothing.
void fail_next(const std::string& call, cublasStatus_t status);

/// Products that were queued.
std::uint64_t products();

/// The threads that the CPU's products work with, which can change their bits. At first what the environment variable
/// CUBLAS_ON_HOST_THREADS says, or 1.
void set_threads(int threads);

}  // namespace cublas_on_host
