#pragma once
/// \file
/// Memory of CUDA on the host: where allocations begin and end, poison, and what is around them.

#include <cstddef>
#include <string>

#include "tests/fakes/cuda_on_host/arena.h"

namespace cuda_on_host {

enum class Tier { device, pinned };

/// Device memory that is filled with poison and freed outside of any stream is so when work runs next: nobody looks at
/// it before. This is called then.
void settle();

/// `bytes` bytes that are there at once, full of poison; nullptr when there are none.
void* allocate(Tier tier, std::size_t bytes);
/// Addresses of device memory that is not there before deliver(); nullptr when there are none.
void* promise(std::size_t bytes);
void deliver(void* memory);

/// The host gives the memory up. False for what is not the begin of an allocation, or was given up before.
bool disown(Tier tier, void* memory);
/// Work of the device: it ends. Poison, which is watched for a while to see who writes to it. Throws a Fault when it is
/// not there yet.
void withdraw(void* memory);
/// The same outside of any stream.
void release(Tier tier, void* memory);

/// Whether [memory, memory + bytes) lies within one allocation that the host owns.
bool owned(Tier tier, const void* memory, std::size_t bytes);
/// Whether the memory came from cudaMallocAsync.
bool from_pool(const void* memory);

/// For work that runs: throws a Fault that begins with `who` unless [memory, memory + bytes) is ordinary host memory,
/// or lies within one allocation that is there.
void require_there(const void* memory, std::size_t bytes, const std::string& who);

/// Throws a Fault that begins with `who` when someone wrote beside an allocation, or to one that was freed. Of what was
/// freed, `bytes_of_freed` are looked at, each time those that come next.
void check_bounds(const std::string& who, std::size_t bytes_of_freed);

}  // namespace cuda_on_host
