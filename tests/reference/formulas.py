#!/usr/bin/env python3
"""Memory and traffic of every stage on paper: a second copy of the programs' formulas, from the model's shapes alone.

Rajbhandari et al. 2020 (ZeRO), sections 5 and 7, with what they leave out: the padding of flat units, the partial sums
of the tree of additions, and the units that stage 3 gathers. Bytes are exact integers; results are per rank. Scalars
(loss, norm) are not counted.

As a program it prints them as JSON, in the words of summary.json.
"""

import argparse
import json
import math
import sys
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import gpt2

ALIGNMENT = 32  # elements: where a tensor may start in a flat unit
STAGES = ("baseline", "0", "1", "2", "3")


@dataclass(frozen=True)
class Precision:
    """Bytes of an element. It goes over the wire in the type in which it is stored."""

    parameter: int
    gradient: int
    optimizer: int  # the master copy if there is one, momentum, variance


PRECISIONS = {"fp32": Precision(4, 4, 4 + 4), "bf16": Precision(2, 2, 4 + 4 + 4)}
PARTIAL_SUM = 4  # partial sums are fp32 in every precision


@dataclass(frozen=True)
class Run:
    stage: str  # one of STAGES
    model: gpt2.Config
    world: int = 1  # ranks; of the baseline, which is one process: the ranks whose order of additions it follows
    micro_steps: int = 1  # k: micro-batches of a rank in a step
    precision: str = "fp32"
    wrap: int = 1  # blocks in a unit
    accumulation: str = "ranks-first"
    prefetch: int = 1
    reshard: bool = True  # stage 3: free a block's unit after its forward


def round_up(value, step):
    return -(-value // step) * step


def log2_floor(value):
    return value.bit_length() - 1


def model_states(stage, parameters, world, precision):
    """Bytes of one rank by category; exact, so a Fraction: the ranks need not divide evenly.

    `parameters` is the number of elements: the true one for the paper's tables, the padded one for what a rank holds.
    """
    widths = PRECISIONS[precision]
    share = Fraction(parameters, 1)
    split = share / world
    return {
        "parameters": widths.parameter * (split if stage == "3" else share),
        "gradients": widths.gradient * (split if stage in ("2", "3") else share),
        "optimizer": widths.optimizer * (split if stage in ("1", "2", "3") else share),
    }


def unit_tensors(model, wrap):
    """The units in the order of the forward pass: (name, sizes of its tensors in elements)."""
    embedding, blocks = [], [[] for _ in range(model.layers)]
    for name, shape in gpt2.shapes(model).items():
        words = name.split()
        (blocks[int(words[1])] if words[0] == "block" else embedding).append(math.prod(shape))
    units = [("embedding", embedding)]
    for first in range(0, model.layers, wrap):
        last = min(first + wrap, model.layers) - 1
        label = f"block {first}" if first == last else f"blocks {first}-{last}"
        units.append((label, [size for block in blocks[first : last + 1] for size in block]))
    return units


def padded_size(tensors, slices):
    """Elements of a flat unit: each tensor starts at a multiple of 32, and the N equal slices do too."""
    end = 0
    for size in tensors:
        end = round_up(end, ALIGNMENT) + size
    return round_up(end, ALIGNMENT * slices)


def partial_sums(run, padded):
    """Bytes of the fp32 partial sums: a binary counter of n leaves holds at most floor(log2 n) beside the newest."""
    ranks, micro_steps = log2_floor(run.world), log2_floor(run.micro_steps)
    if run.accumulation == "local-first":  # one running sum, then (in the baseline only) the tree over the ranks
        full = int(run.micro_steps > 1) + (ranks if run.stage == "baseline" else 0)
        return full * PARTIAL_SUM * padded
    if run.stage == "baseline":
        return (ranks + micro_steps) * PARTIAL_SUM * padded
    return micro_steps * PARTIAL_SUM * padded // run.world


def gathers(sizes, prefetch, reshard):
    """What one micro-step of stage 3 gathers: (how often each unit, the most elements gathered at one time).

    `sizes` are those of the embedding unit and then of the block units in forward order. The uses of a micro-step are:
    embedding, blocks forward, head (which is the embedding unit again, forward and backward), blocks backward.
    """
    count = len(sizes)
    uses = list(range(count)) + [0] + list(reversed(range(1, count)))
    gathered = Counter()
    held = set()
    peak = 0
    for now, unit in enumerate(uses):
        window = uses[now : now + 1 + prefetch]
        for wanted in window:
            if wanted not in held:
                held.add(wanted)
                gathered[wanted] += 1
        peak = max(peak, sum(sizes[i] for i in held))
        still_wanted = window[1:] if reshard else uses[now + 1 :]
        if unit not in still_wanted:
            held.remove(unit)
    return [gathered[i] for i in range(count)], peak


def plan(run):
    """Everything about a run, as a dictionary that can be written as JSON."""
    if run.accumulation == "local-first" and run.stage in ("2", "3"):
        raise ValueError("local-first accumulation needs full gradients, which stages 2 and 3 do not hold")
    slices = 1 if run.stage == "baseline" else run.world
    widths = PRECISIONS[run.precision]
    units = unit_tensors(run.model, run.wrap)
    sizes = [padded_size(tensors, slices) for _, tensors in units]
    padded = sum(sizes)

    memory = {name: int(size) for name, size in model_states(run.stage, padded, slices, run.precision).items()}
    memory["partial_sums"] = partial_sums(run, padded)
    memory["gathered"] = 0
    times, peak = gathers(sizes, run.prefetch, run.reshard)
    if run.stage == "3":
        memory["gathered"] = widths.parameter * peak

    def others(elements):  # of a collective over `elements`, the part that leaves the rank: (N-1)/N
        return elements // slices * (slices - 1)

    reductions = 1 if run.accumulation == "local-first" else run.micro_steps
    sent = {"gradients": widths.gradient * reductions * others(padded), "parameters": 0}
    if run.stage == "0":  # the all-gather that makes the reduce-scatter an all-reduce
        sent["gradients"] += widths.gradient * others(padded)
    elif run.stage in ("1", "2"):  # the updated parameters
        sent["parameters"] = widths.parameter * others(padded)
    elif run.stage == "3":
        per_micro_step = sum(n * others(size) for n, size in zip(times, sizes))
        sent["parameters"] = widths.parameter * run.micro_steps * per_micro_step

    listing = []
    for (name, tensors), size, n in zip(units, sizes, times):
        listing.append({"name": name, "parameters": sum(tensors), "padded": size})
        if run.stage == "3":
            listing[-1]["gathers_per_micro_step"] = n
    return {
        "parameters": sum(sum(tensors) for _, tensors in units),
        "padded_parameters": padded,
        "units": listing,
        "memory": memory,
        "communication": sent,
    }


def parse(arguments):
    def at_least(least):
        def number(text):
            value = int(text)
            if value < least:
                raise argparse.ArgumentTypeError(f"{value} is below {least}")
            return value

        return number

    parser = argparse.ArgumentParser(description="Memory and traffic per rank, in bytes, as JSON.")
    parser.add_argument("--stage", choices=STAGES, required=True)
    parser.add_argument("--layers", type=at_least(0), default=4)
    for name, default in (("heads", 4), ("width", 128), ("context", 128), ("vocab", 256)):
        parser.add_argument(f"--{name}", type=at_least(1), default=default)
    parser.add_argument("--world", type=at_least(1), default=1, help="ranks (baseline: whose order it follows)")
    parser.add_argument("--micro-steps", type=at_least(1), default=1)
    parser.add_argument("--precision", choices=sorted(PRECISIONS), default="fp32")
    parser.add_argument("--wrap", type=at_least(1), default=1)
    parser.add_argument("--accumulation", choices=("ranks-first", "local-first"), default="ranks-first")
    parser.add_argument("--prefetch", type=at_least(0), default=1)
    parser.add_argument("--reshard", choices=("on", "off"), default="on")
    o = parser.parse_args(arguments)
    if o.width % o.heads != 0:
        parser.error(f"--heads {o.heads} does not divide --width {o.width}")
    model = gpt2.Config(o.layers, o.heads, o.width, o.context, o.vocab)
    sharding = {"wrap": o.wrap, "accumulation": o.accumulation, "prefetch": o.prefetch, "reshard": o.reshard == "on"}
    try:
        return plan(Run(o.stage, model, o.world, o.micro_steps, o.precision, **sharding))
    except ValueError as error:
        return parser.error(str(error))


if __name__ == "__main__":
    json.dump(parse(sys.argv[1:]), sys.stdout, indent=1)
    print()
