#pragma once
/// \file
/// Empty: the real nccl.h includes it and uses nothing of it.
