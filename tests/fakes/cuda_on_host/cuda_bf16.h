#pragma once
/// \file
/// Empty but for what the real nccl.h asks about before it names the type.

#define __CUDA_BF16_TYPES_EXIST__  // NOLINT: CUDA's name
