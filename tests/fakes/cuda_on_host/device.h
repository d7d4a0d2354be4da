#pragma once
/// \file
/// The GPUs of CUDA on the host.

#include <cstddef>
#include <cstdint>

namespace cuda_on_host {

int current_device();
/// Whether `bytes` more fit on the GPU.
bool fits(std::size_t bytes);
/// What is used of it, beside the pool.
void count_plain(std::ptrdiff_t bytes);

/// Of control.h's set_seed() and counts().
void seed_streams(unsigned seed);
void seed_grid(unsigned seed);
std::uint64_t work_that_ran();

}  // namespace cuda_on_host
