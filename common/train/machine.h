#pragma once
/// \file
/// What the launcher and the machine say of themselves.

#include <initializer_list>
#include <optional>

#include "common/base/types.h"

namespace zero {

/// The first of these environment variables that holds a number: how a launcher tells a process that has not started
/// MPI which rank it is, and of how many.
std::optional<int> launched(std::initializer_list<const char*> variables);

/// Ranks of this job on this machine; 1 without a launcher.
Index ranks_here();

/// Memory and swap of this machine, in bytes; nothing where the system does not say.
std::optional<Index> machine_memory();

/// The largest memory that this process has held, in bytes.
Index process_peak();

}  // namespace zero
