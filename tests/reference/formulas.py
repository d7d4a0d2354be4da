#!/usr/bin/env python3
"""Memory and traffic of every stage on paper: a second copy of the programs' formulas, from the model's shapes alone.

Rajbhandari et al. 2020 (ZeRO), sections 5 and 7, with what they leave out: the padding of flat units, the partial sums
of the tree of additions, the units that stage 3 gathers, activations, scratch memory, and what the collectives need.
On a GPU: what works beside what (docs/gpu.md), and so what has to be there at one time.
With offload: Ren et al. 2021 (ZeRO-Offload), section 4.1, and Rajbhandari et al. 2021 (ZeRO-Infinity), section 5.
Bytes are exact integers; results are per rank.

As a program it prints them as JSON, in the words of summary.json.
"""

import argparse
import json
import math
import sys
from collections import Counter
from dataclasses import dataclass, fields
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
FP32 = 4  # partial sums, sums between sharding groups and statistics are fp32 in every precision
INT32 = 4

# What is not in the paper: sizes that the programs chose.
STAGING = 4 * 2**20  # bytes through which a communicator's ranks exchange
PART = 256 * 2**10  # bytes of fp32 sums that a reduce-scatter makes at a time
LARGEST_COUNT = 2**31 - 1  # elements over all ranks that a collective of MPI counts
LINE = 128  # bytes to which the parts of the staging memory are aligned
NORM_ACCUMULATOR = 184  # bytes: 672 bits in words of 32, each in 8 bytes, and 16 bytes of counters
LOSS = 8  # a double
CANONICAL_SCRATCH = (384 + 32) * 384 + 512 * 384  # fp32 elements of a thread: packed panels, and outputs to be rounded
LIBRARY_SCRATCH = 3 * 512 * 512  # fp32 elements: bf16 operands widened, and their product
FOLLOWED_SUMS = 16384  # fp32 elements that the baseline takes at a time from the sum over ranks to that over micro-steps
CHUNK = 2**18  # elements of a slice that move between tiers as one
BLOCK = 4096  # bytes: what a file is made of
PASSING = 3  # chunks of each state in host memory on their way between files and AdamW: read, updated, written
UNITS_AHEAD = 2  # units whose parameters are in host memory on their way from files to the device
# On a GPU: what kernels leave for the host (the norm's accumulator, a digest of 16 bytes, the first tensor that is not
# finite, a sum, and whether an index was bad, in 8 each), what cuBLAS works in, and how much of STAGING is device memory.
RESULTS = NORM_ACCUMULATOR + 16 + 3 * 8
CUBLAS = 32 * 2**20
GPU_STAGING = STAGING // 2
TOKEN_ROWS = 1024  # of the tied table, whose gradient is added in fp32 before it is rounded


@dataclass(frozen=True)
class Run:
    stage: str  # one of STAGES
    model: gpt2.Config
    world: int = 1  # ranks; of the baseline, which is one process: the ranks whose order of additions it follows
    micro_steps: int = 1  # k: micro-batches of a rank in a step
    precision: str = "fp32"
    wrap: int = 1  # blocks in a unit
    tiles: int = 1  # offload and the baseline: parts of a block's products, each a unit of its own
    accumulation: str = "ranks-first"
    prefetch: int = 1
    reshard: bool = True  # stage 3: free a block's unit after its forward
    micro_batch: int = 1  # sequences
    checkpoint: bool = False  # keep each block's input, compute the rest again
    dropout: bool = False
    shard_group: int = 0  # stage 3: ranks that share one copy of the model states; 0: all
    bucket: int = 0  # bytes, over all slices, that one collective moves at most; 0: a unit
    collectives: str = "canonical"
    products: str = "canonical"
    threads: int = 1  # of products, on the CPU
    backend: str = "cpu"  # "cuda": queues beside each other, and memory that the host cannot read
    # Stages 2 and 3: where fp32 weights, moments and the gradient's slice live, and (stage 3) the parameters' slices.
    optimizer_place: str = "device"  # "host", "nvme"
    parameters_place: str = "device"
    delayed: bool = False  # the baseline, and with the optimizer in host memory: gradients are applied one step late

    @property
    def offloads(self):
        return self.optimizer_place != "device"

    @property
    def on_gpu(self):
        return self.backend == "cuda"

    @property
    def staging(self):
        """Bytes of the device's memory through which a communicator's ranks exchange."""
        return GPU_STAGING if self.on_gpu else STAGING

    @property
    def slices(self):
        """Into how many parts a unit is cut."""
        if self.stage == "baseline":
            return 1
        return self.shard_group if self.stage == "3" and self.shard_group and not self.offloads else self.world

    @property
    def groups(self):
        return 1 if self.stage == "baseline" else self.world // self.slices


def divide_up(value, step):
    return -(-value // step)


def round_up(value, step):
    return divide_up(value, step) * step


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


def tiles_of(block, shapes, tiles):
    """The units of a block whose four products are cut into tiles of their outputs: sizes of the tensors of each. A product
    is a matrix and its bias, and before two of them stands a norm."""
    units = []
    for names in (("norm1", "attention.qkv"), (None, "attention.projection"), ("norm2", "mlp.expand"), (None, "mlp.project")):
        norm, product = names
        rows, columns = shapes[f"{block} {product}.weight"]
        cuts = [rows * tile // tiles for tile in range(tiles + 1)]
        for tile in range(tiles):
            before = [shapes[f"{block} {norm}.{part}"] for part in ("weight", "bias")] if norm and tile == 0 else []
            after = [shapes[f"{block} {product}.bias"]] if tile == tiles - 1 else []
            units.append([math.prod(shape) for shape in (*before, (cuts[tile + 1] - cuts[tile], columns), *after)])
    return units


def unit_tensors(model, wrap, tiles=1):
    """The units in the order of the forward pass: (name, sizes of its tensors in elements)."""
    if tiles > 1:
        embedding = unit_tensors(model, 1)[0]
        blocks = [tiles_of(f"block {i}", gpt2.shapes(model), tiles) for i in range(model.layers)]
        return [embedding, *((f"block {i} part {j}", unit) for i, units in enumerate(blocks) for j, unit in enumerate(units))]
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
        return full * FP32 * padded
    if run.stage == "baseline":
        return (ranks + micro_steps) * FP32 * padded
    return micro_steps * FP32 * padded // run.slices


def activations(run):
    """Bytes that a forward pass keeps: of a block's input, of the rest of a block, outside the blocks, and in all.

    Letters as in Korthikanti et al. 2022: s tokens, b sequences, h width, a heads. A block keeps 16 sbh + a s^2 b elements:
    its input; the outputs of both norms; queries, keys and values; the probabilities; their product with the values; the
    stream after the attention; and 4h before and after GELU. Masks of dropout are made again. Each norm also keeps a
    mean and a deviation for each token.
    """
    element = PRECISIONS[run.precision].parameter
    s, b, h, a, v = run.model.context, run.micro_batch, run.model.width, run.model.heads, run.model.vocab
    block_input = element * s * b * h
    block_rest = element * ((2 + 3 + 1 + 1 + 8) * s * b * h + a * s * s * b) + 2 * 2 * FP32 * s * b
    last_output, final_norm = element * s * b * h, element * s * b * h + 2 * FP32 * s * b
    outside = last_output + final_norm + element * s * b * v + FP32 * s * b + 2 * INT32 * s * b  # logits, losses, tokens
    kept = min(run.model.layers, 1) if run.checkpoint else run.model.layers
    total = run.model.layers * block_input + kept * block_rest + outside
    return {"layer_input": block_input, "layer_rest": block_rest, "outside": outside, "total": total}


def workspace(run):
    """Scratch: gradients of activations in backward, what is rounded only in the end, and packed operands of products."""
    element = PRECISIONS[run.precision].gradient
    s, b, h, v = run.model.context, run.micro_batch, run.model.width, run.model.vocab
    elements = (1 + 1 + 4) * s * b * h  # of the residual stream, and of a narrow and a wide activation
    elements += s * s * (2 if run.dropout else 1)  # a head's scores, and its probabilities after dropout
    elements += 2 * h  # of the final norm's weight and bias, until the embedding's backward
    rounded_late = min(v, TOKEN_ROWS) * h if run.precision == "bf16" else 0
    rounded_late += 2 * 4 * s * b * h if run.tiles > 1 else 0  # an input's gradient, and what the next tile adds to it
    followed = FOLLOWED_SUMS if run.stage == "baseline" else 0
    scratch = element * elements + FP32 * (rounded_late + followed)
    if run.on_gpu:  # kernels take operands as they lie; the library has memory of its own
        return scratch + RESULTS + (CUBLAS if run.products == "library" else 0)
    return scratch + FP32 * (LIBRARY_SCRATCH if run.products == "library" else run.threads * CANONICAL_SCRATCH)


def in_flight(run, sizes):
    """Bytes of whole gradients in stages 2 and 3, where a unit's lives from its backward pass to its reduction or its way
    down. On a GPU both of these go on beside the next backward pass, and another gradient waits for them to end."""
    if run.stage not in ("2", "3"):
        return 0
    at_once = sizes
    if run.on_gpu and (run.slices > 1 or run.offloads):
        at_once = [sum(sizes[i : i + 2]) for i in range(len(sizes))]  # backward goes through neighbours
    return PRECISIONS[run.precision].gradient * max(at_once)


def columns_of(run, slice_size):
    """Elements of each slice that one collective moves."""
    if run.bucket == 0:
        return slice_size
    return min(slice_size, max(1, run.bucket // (run.slices * PRECISIONS[run.precision].gradient)))


def staged_block(staging, ranks):
    """The most bytes that a rank offers one other at a time: half of the staging memory less a counter and the tables."""
    tables = round_up(2 * 16 * ranks, LINE)
    return (staging - 2 * LINE - tables) // 2 // (ranks - 1) // LINE * LINE


def buckets(run, sizes):
    """Bytes of staging and of sums of all communicators of a rank."""
    bf16 = run.precision == "bf16"
    slice_size = max(sizes) // run.slices
    columns = columns_of(run, slice_size)

    def plain(ranks):  # one that moves fp32 and scalars only
        return 0 if ranks == 1 else run.staging + PART

    if run.slices == 1:
        states = PART if bf16 else 0  # gradients become fp32 there
    elif run.collectives == "native":
        part = min(columns, LARGEST_COUNT // run.slices)
        states = run.staging + FP32 * part + (run.slices * FP32 * part if bf16 or part < slice_size else 0)
    else:
        states = run.staging + PART
    if run.groups == 1:
        return states
    return states + plain(run.world) + plain(run.groups)  # for losses, and between groups


def host_buckets(run):
    """Bytes of staging in host memory: beside a GPU every communicator of two or more ranks has it."""
    if not run.on_gpu or run.stage == "baseline":
        return 0
    communicators = [run.slices] if run.groups == 1 else [run.slices, run.world, run.groups]
    return STAGING * sum(ranks > 1 for ranks in communicators)


def parts_of(run, columns):
    """In how many parts the sums of that many columns come out of a reduce-scatter."""
    if run.slices == 1:
        part = columns if run.precision == "fp32" else PART // FP32
    elif run.collectives == "native":
        part = min(columns, LARGEST_COUNT // run.slices)
    else:
        wire = FP32 if run.collectives == "ring" else PRECISIONS[run.precision].gradient
        part = min(PART // FP32, staged_block(run.staging, run.slices) // wire)
    return divide_up(columns, part)


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


def communication(run, sizes, times):
    """What a rank sends in a step: {purpose: (bytes, collectives)}. `times`: how often stage 3 gathers each unit."""
    if run.stage == "baseline":
        return {}
    widths, slices, k = PRECISIONS[run.precision], run.slices, run.micro_steps
    slice_sizes = [size // slices for size in sizes]
    calls = [divide_up(size, columns_of(run, size)) for size in slice_sizes]

    def gathered(element, repeats):  # all-gathers: the own slice to each of the others
        sent = sum(n * element * (slices - 1) * size for n, size in zip(repeats, slice_sizes))
        return sent, sum(n * count for n, count in zip(repeats, calls))

    reductions = 1 if run.accumulation == "local-first" else k
    sent = widths.gradient * (slices - 1) * sum(slice_sizes)  # one reduce-scatter: every other rank its part
    if run.collectives == "ring" and slices > 1:  # N - 1 hops, and after the first what travels is an fp32 sum
        sent = (widths.gradient + (slices - 2) * FP32) * sum(slice_sizes)
    once = [1] * len(sizes)
    result = {"gradients": (reductions * sent, reductions * sum(calls))}
    if run.stage == "0":  # the all-gather that makes the reduce-scatter an all-reduce
        more = gathered(widths.gradient, once)
        result["gradients"] = tuple(map(sum, zip(result["gradients"], more)))
    elif run.stage in ("1", "2"):  # the updated parameters
        result["parameters"] = gathered(widths.parameter, once)
    else:
        result["parameters"] = gathered(widths.parameter, [k * n for n in times])
    if run.groups > 1:  # each micro-step's sums, to the rank that has the same slice in every other group
        count = 0
        for size in slice_sizes:
            columns = columns_of(run, size)
            whole, rest = divmod(size, columns)
            count += whole * parts_of(run, columns) + (parts_of(run, rest) if rest else 0)
        result["gradients_across"] = (k * (run.groups - 1) * FP32 * sum(slice_sizes), k * count)
    norm = 0 if run.stage == "0" else 1  # whoever has whole gradients needs no message for the norm
    result["scalars"] = (LOSS * k * (run.world - 1) + norm * NORM_ACCUMULATOR * (slices - 1), 1 + norm)
    return result


def chunks(slice_size):
    """Elements of the pieces of a slice that move one after the other."""
    return [min(CHUNK, slice_size - begin) for begin in range(0, slice_size, CHUNK)]


def in_blocks(elements, element_bytes):
    """Bytes of so many elements in a file, or in a buffer that is read into: whole blocks."""
    return round_up(elements * element_bytes, BLOCK)


def offload(run, sizes, times):
    """What a rank holds below the device, ({category: bytes of host memory}, {category: bytes in files}), and what moves
    in a step, {direction: bytes}. `times`: how often stage 3 gathers each unit in a micro-step.

    The optimizer below the device holds fp32 weights in fp32 training, too: the parameters are not beside it.
    """
    widths = PRECISIONS[run.precision]
    cut = [chunks(size // run.slices) for size in sizes]
    elements, largest = sum(map(sum, cut)), max(map(max, cut))
    states = {"optimizer": [FP32] * 3, "gradients": [widths.gradient] * (2 if run.delayed else 1)}
    if run.stage == "3" and run.parameters_place != "device":
        states["parameters"] = [widths.parameter]

    def filed(element, repeats=None):  # bytes of one state in files, each unit so many times
        return sum(n * in_blocks(chunk, element) for unit, n in zip(cut, repeats or [1] * len(cut)) for chunk in unit)

    host, files, buffers = {}, {}, 0
    for name, elements_bytes in states.items():
        place = run.parameters_place if name == "parameters" else run.optimizer_place
        if place == "host":
            host[name] = sum(elements_bytes) * elements
        else:
            files[name] = sum(map(filed, elements_bytes))
            passing = UNITS_AHEAD * max(map(len, cut)) if name == "parameters" else PASSING
            buffers += passing * sum(in_blocks(largest, element) for element in elements_bytes)
    moved = {"down": widths.gradient * elements, "up": widths.parameter * elements, "read": 0, "written": 0}
    if "parameters" in states:  # every gather takes this rank's slice up
        repeats = [run.micro_steps * n for n in times]
        moved["up"] = widths.parameter * sum(n * sum(unit) for n, unit in zip(repeats, cut))
        if run.parameters_place == "nvme":
            moved["read"] += filed(widths.parameter, repeats)
            moved["written"] += filed(widths.parameter)
    else:
        buffers += widths.parameter * largest  # new parameters, on their way up
    if run.optimizer_place == "nvme":  # all is read for an update; what is new goes back, and the gradient came down
        once = 3 * filed(FP32) + filed(widths.gradient)
        moved["read"] += once
        moved["written"] += once
    if run.delayed:
        buffers += widths.parameter * elements  # new parameters, until the step beside them has ended
    if buffers:
        host["offload_buffers"] = buffers
    return host, files, moved


def plan(run):
    """Everything about a run, as a dictionary that can be written as JSON."""
    if run.accumulation == "local-first" and run.stage in ("2", "3"):
        raise ValueError("local-first accumulation needs full gradients, which stages 2 and 3 do not hold")
    if run.offloads and run.stage not in ("2", "3") or run.parameters_place != "device" and not (run.offloads and run.stage == "3"):
        raise ValueError("stages 2 and 3 offload the optimizer, and stage 3 with it the parameters")
    if run.delayed and run.stage != "baseline" and run.optimizer_place != "host":
        raise ValueError("only the baseline and an optimizer in host memory apply a gradient late")
    widths = PRECISIONS[run.precision]
    if run.tiles > 1 and (run.wrap > 1 or run.checkpoint or not (run.offloads or run.stage == "baseline")):
        raise ValueError("tiles are for offload and the baseline, with a wrap of 1 and without checkpointing")
    units = unit_tensors(run.model, run.wrap, run.tiles)
    sizes = [padded_size(tensors, run.slices) for _, tensors in units]
    padded = sum(sizes)

    memory = {name: int(size) for name, size in model_states(run.stage, padded, run.slices, run.precision).items()}
    if run.offloads:
        memory["gradients"] = memory["optimizer"] = 0
        memory["parameters"] *= run.parameters_place == "device"
    elif run.delayed:  # the gradient that waits, and the next one
        memory["gradients"] *= 2
    memory["partial_sums"] = partial_sums(run, padded)
    times, peak = gathers(sizes, run.prefetch, run.reshard)
    memory["gathered"] = widths.parameter * peak if run.stage == "3" else 0
    memory["gradient_in_flight"] = in_flight(run, sizes)
    memory["activations"] = activations(run)["total"]
    memory["workspace"] = workspace(run)
    memory["buckets"] = buckets(run, sizes)

    sent = communication(run, sizes, times)
    host, files, moved = offload(run, sizes, times) if run.offloads else ({}, {}, {})
    if host_buckets(run):
        host["buckets"] = host_buckets(run)
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
        "host_memory": host,
        "nvme_memory": files,
        "offload": moved,
        "activations": activations(run),
        "communication": {purpose: size for purpose, (size, _) in sent.items()},
        "calls": {purpose: count for purpose, (_, count) in sent.items()},
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
    parser.add_argument("--tiles", type=at_least(1), default=1, help="parts of a block's products, each a unit")
    parser.add_argument("--accumulation", choices=("ranks-first", "local-first"), default="ranks-first")
    parser.add_argument("--prefetch", type=at_least(0), default=1)
    parser.add_argument("--reshard", choices=("on", "off"), default="on")
    parser.add_argument("--micro-batch", type=at_least(1), default=1)
    parser.add_argument("--checkpoint", action="store_true", help="keep each block's input, compute the rest again")
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--shard-group", type=at_least(0), default=0, help="stage 3: ranks of a group; 0: all")
    parser.add_argument("--bucket", type=at_least(0), default=0, help="bytes; 0: a unit")
    parser.add_argument("--collectives", choices=("canonical", "ring", "native"), default="canonical")
    parser.add_argument("--products", choices=("canonical", "library"), default="canonical", help="whatever the backend")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=at_least(1), default=1)
    parser.add_argument("--optimizer-place", choices=("device", "host", "nvme"), default="device")
    parser.add_argument("--parameters-place", choices=("device", "host", "nvme"), default="device")
    parser.add_argument("--delayed", action="store_true", help="each gradient is applied one step late")
    o = parser.parse_args(arguments)
    if o.width % o.heads != 0:
        parser.error(f"--heads {o.heads} does not divide --width {o.width}")
    model = gpt2.Config(o.layers, o.heads, o.width, o.context, o.vocab)
    if o.shard_group and o.world % o.shard_group != 0:
        parser.error(f"--shard-group {o.shard_group} does not divide --world {o.world}")
    same = {field.name: getattr(o, field.name) for field in fields(Run) if field.name not in ("model", "reshard")}
    try:
        return plan(Run(model=model, reshard=o.reshard == "on", **same))
    except ValueError as error:
        return parser.error(str(error))


if __name__ == "__main__":
    json.dump(parse(sys.argv[1:]), sys.stdout, indent=1)
    print()
