#pragma once
/// \file
/// Do all ranks multiply alike?

#include "common/comm/communicator.h"

namespace zero {

/// Every rank computes the same small products and digests them. Throws UnusableInput, the same on all ranks, that
/// names the ranks whose bits differ from rank 0's. Collective.
void probe_products(Device& device, Communicator& comm, Dtype dtype);

}  // namespace zero
