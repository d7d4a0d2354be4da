#pragma once
/// \file
/// Device memory of CUDA on the host: where allocations begin and end, poison, and what is around them.

#include <cstddef>
#include <string>

namespace cuda_on_host {

/// Exactly `bytes` bytes, full of poison; nullptr when there are none.
void* allocate(std::size_t bytes);
/// False for memory that was not allocated. Freed memory is poisoned, and kept for a while to see who writes to it.
bool release(void* memory);
/// Whether [memory, memory + bytes) lies within one allocation.
bool is_device_memory(const void* memory, std::size_t bytes);
/// Throws a Fault that begins with `who` when someone wrote beside an allocation, or to one that was freed.
void check_bounds(const std::string& who);

}  // namespace cuda_on_host
