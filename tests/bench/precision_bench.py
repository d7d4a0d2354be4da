"""A training step of one process, as ratios of times measured in turn, with library products where they were built:

  precision/SHAPE/bf16_over_fp32         --precision bf16 over fp32; beside it stands what the products alone would give
  precision/SHAPE/bf16_over_torch        bf16 over PyTorch with bf16 autocast
  precision/SHAPE/recompute_over_keep    --checkpoint-activations over keeping all, bf16

Bars are those of a machine with AVX512-BF16; without it bf16 products go through fp32, the first ratio says so, and the
second compares two ways of doing without. Without PyTorch its ratio is left out; without oneDNN only the last is measured,
with canonical products.
"""

import argparse
import subprocess
import sys

from programs import SHAPES, Broken, median, note, print_ratio, run_program
from step_bench import CASES, WARM_UP, has_library_products, interpreter_with_torch, torch_steps


def measure(build, name, python, library, steps, rounds):
    def ours(*options):
        products = "library" if library else "canonical"
        options = SHAPES[name] + ["--steps", str(steps), "--products", products, *options]
        return lambda: run_program(build, "stage0_ddp", 1, options)["seconds"]["total"]

    ways = {
        "bf16": ours("--precision", "bf16"),
        "recompute": ours("--precision", "bf16", "--checkpoint-activations"),
    }
    if library:
        ways["fp32"] = ours()
    if library and python:
        ways["torch"] = lambda: torch_steps(python, CASES[name], steps, ranks=1, autocast=True)
    times = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            times[way].append(median(run()[WARM_UP:]))
    note(f"{name}, ms a step of one process: " + ", ".join(f"{way} {1e3 * median(t):.1f}" for way, t in times.items()))

    def ratio(what, way, other, bar):
        if way in times and other in times:
            print_ratio(f"precision/{name}/{what}", median([a / b for a, b in zip(times[way], times[other])]), bar)

    ratio("bf16_over_fp32", "bf16", "fp32", 0.60)
    ratio("bf16_over_torch", "bf16", "torch", 0.85)
    ratio("recompute_over_keep", "recompute", "bf16", 1.36)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--quick", action="store_true", help="the smallest shape only, one round")
    options = parser.parse_args()
    library = has_library_products(options.build)
    if not library:
        note("precision: library products were not built (oneDNN was not found), so bf16 is compared with nothing")
    python = interpreter_with_torch()
    if not python:
        note("precision: nothing is compared with PyTorch, which is not installed (Debian: apt-get install python3-torch)")
    try:
        measure(options.build, "tiny" if options.quick else "gpt2", python, library, *((4, 1) if options.quick else (6, 3)))
    except (Broken, subprocess.TimeoutExpired) as error:
        note(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
