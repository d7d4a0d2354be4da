#!/usr/bin/env python3
"""Shows that the order of additions is part of the algorithm (docs/determinism.md).

    python3 tools/order_of_sums.py

Needs no package. Every sum below is in fp32, rounded after each addition, as a rank would do it. The script ends with
status 1 if a result is not what the chapter says, so a test can run it.
"""
import math
import struct
import sys


def fp32(x):
    """Rounds a double to fp32."""
    return struct.unpack("f", struct.pack("f", x))[0]


def add(a, b):
    """One fp32 addition: the double sum of two fp32 numbers, rounded to fp32, is the correctly rounded fp32 sum."""
    return fp32(a + b)


def chain(terms):
    """((t0 + t1) + t2) + ..."""
    total = terms[0]
    for term in terms[1:]:
        total = add(total, term)
    return total


def ring(terms, owner):
    """The sum of a slice that belongs to `owner` in a ring: it starts at the rank after the owner and ends there."""
    n = len(terms)
    return chain([terms[(owner + 1 + i) % n] for i in range(n)])


def tree(terms):
    """The canonical order: split at the largest power of two below n, left + right. Never starts with a zero."""
    if len(terms) == 1:
        return terms[0]
    half = 1
    while 2 * half < len(terms):
        half *= 2
    return add(tree(terms[:half]), tree(terms[half:]))


def step(leaves, world):
    """A step's sum, where leaf m * world + r is micro-step m on rank r: over ranks, then over micro-steps."""
    return tree([tree(leaves[m:m + world]) for m in range(0, len(leaves), world)])


def local_first(leaves, world):
    """Each rank sums its own micro-steps one after the other, then one sum over ranks."""
    return tree([chain(leaves[r::world]) for r in range(world)])


def show(what, value):
    print(f"  {what:<58} {value:.9g}")
    return value


def main():
    print("One gradient element, as four ranks hold it: 16777216, 1, 1, 1. The exact sum is 16777219.")
    terms = [16777216.0, 1.0, 1.0, 1.0]
    rings = [show(f"ring, in the slice of rank {owner}", ring(terms, owner)) for owner in range(4)]
    balanced = show("tree, in any slice", tree(terms))

    leaves = [fp32(math.sqrt(g + 1)) for g in range(8)]
    print("Eight micro-batches of one step, the square roots of 1 to 8, on more and more ranks:")
    worlds = [show(f"tree over ranks, then micro-steps: {n} x {8 // n}", step(leaves, n)) for n in (1, 2, 4, 8)]
    others = [show(f"each rank's own micro-steps first: {n} x {8 // n}", local_first(leaves, n)) for n in (1, 2, 4, 8)]

    as_written = rings == [16777220.0, 16777220.0, 16777216.0, 16777216.0] and balanced == 16777218.0
    same = len(set(worlds)) == 1
    differ = len(set(others)) > 1
    print(f"The ring's sum depends on the slice: {'yes' if len(set(rings)) > 1 else 'no'}.")
    print(f"The tree's sum depends on the number of ranks: {'no' if same else 'yes'}.")
    print(f"That of own micro-steps first depends on it: {'yes' if differ else 'no'}.")
    return 0 if as_written and same and differ else 1


if __name__ == "__main__":
    sys.exit(main())
