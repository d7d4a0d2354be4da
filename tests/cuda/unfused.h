#pragma once
/// \file
/// Included before everything else, takes every fma out of the source. What nvcc makes of the source then has none,
/// unless the compiler put one there.

#define __builtin_fmaf(a, b, c) ((a) * (b) + (c))
