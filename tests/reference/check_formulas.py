#!/usr/bin/env python3
"""The formulas against printed tables, cases worked by hand and the programs; exits with 1 and says which fail.

check_formulas.py                 the ZeRO paper's tables, and the cases
check_formulas.py RUN BIN TEXT    what the programs in BIN, started with RUN on the data TEXT, hold and send
check_formulas.py RUN BIN TEXT cuda    the same with --backend cuda, of programs whose GPUs are pretended; and what
                                       the program plan in BIN says of each run
"""

import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from fractions import Fraction

import gpt2
from formulas import Run, activations, gathers, model_states, padded_size, parts_of, plan, unit_tensors

# Rajbhandari et al. 2020, table 1, as printed: GB of model states per device for stages 1, 2, 3 at each degree N.
TABLE_1 = {
    "7.5": {
        1: ("120", "120", "120"),
        4: ("52.5", "41.3", "30"),
        16: ("35.6", "21.6", "7.5"),
        64: ("31.4", "16.6", "1.88"),
        256: ("30.4", "15.4", "0.47"),
        1024: ("30.1", "15.1", "0.12"),
    },
    "128": {
        1: ("2048", "2048", "2048"),
        4: ("896", "704", "512"),
        16: ("608", "368", "128"),
        64: ("536", "284", "32"),
        256: ("518", "263", "8"),
        1024: ("513", "257", "2"),
    },
    "1000": {
        1: ("16000", "16000", "16000"),
        4: ("7000", "5500", "4000"),
        16: ("4750", "2875", "1000"),
        64: ("4187", "2218", "250"),
        256: ("4046", "2054", "62.5"),
        1024: ("4011", "2013", "15.6"),
    },
}
# The cells of the table that are not the exact value: the first column is rounded, the other two are cut off.
TABLE_1_ROUNDING = {"7.5": ROUND_HALF_UP, "128": ROUND_FLOOR, "1000": ROUND_FLOOR}

# The same paper, table 2, "max theoretical model size" on 32 GB at N = 64, by degree of model parallelism.
TABLE_2 = {
    1: ("2B", "7.6B", "14.4B", "128B"),
    2: ("4B", "15.2B", "28.8B", "256B"),
    4: ("8B", "30.4B", "57.6B", "0.5T"),
    8: ("16B", "60.8B", "115.2B", "1T"),
    16: ("32B", "121.6B", "230.4B", "2T"),
}

failures = []


def equal(got, expected, what):
    if got != expected:
        failures.append(f"{what}: {got!r}, expected {expected!r}")


def total(stage, parameters, world, precision="bf16"):
    return sum(model_states(stage, parameters, world, precision).values())


def exact_decimal(fraction):
    value = Decimal(fraction.numerator) / Decimal(fraction.denominator)
    assert Fraction(value) == fraction, "needs more digits than Decimal carries"
    return value


def check_table_1():
    cells = 0
    for billions, rows in TABLE_1.items():
        parameters = int(Decimal(billions) * 10**9)
        for world, printed in rows.items():
            for stage, cell in zip("123", printed):
                gigabytes = exact_decimal(total(stage, parameters, world) / 10**9)
                shown = gigabytes.quantize(Decimal(cell), rounding=TABLE_1_ROUNDING[billions])
                equal(str(shown), cell, f"ZeRO table 1, {billions}B, N = {world}, stage {stage}")
                cells += 1
    equal(cells, 54, "cells of ZeRO table 1")


def short(billions):
    """As table 2 prints: one decimal at most, and T from half a trillion on."""
    unit, value = ("T", billions / 1000) if billions >= 500 else ("B", billions)
    return f"{value.quantize(Decimal('0.1'), rounding=ROUND_HALF_UP).normalize():f}{unit}"


def check_table_2():
    memory, world = 32 * 10**9, 64
    for column, stage in enumerate(("baseline", "1", "2", "3")):
        largest = Fraction(memory) / total(stage, 1, world) / 10**9
        value = Decimal(largest.numerator) / Decimal(largest.denominator)
        first = value.quantize(Decimal("0.1"), rounding=ROUND_HALF_UP)  # the paper multiplies the rounded first row
        for model_parallel, printed in TABLE_2.items():
            equal(short(first * model_parallel), printed[column], f"ZeRO table 2, stage {stage}, MP = {model_parallel}")


def check_paper_text():
    """Figure 1 and section 3.1, and the same without a master copy, all in fp32."""
    for stage, expected in (("baseline", 120), ("0", 120), ("1", 31.40625), ("2", 16.640625), ("3", 1.875)):
        equal(float(total(stage, 7_500_000_000, 64) / 10**9), expected, f"ZeRO figure 1, stage {stage}")
    equal(total("baseline", 1_500_000_000, 1), 24 * 10**9, "GPT-2 1.5B needs 24 GB")
    for stage, expected in (("baseline", 16), ("1", 8 + 8 / 8), ("2", 4 + 12 / 8), ("3", 16 / 8)):
        equal(float(total(stage, 1, 8, "fp32")), expected, f"bytes per parameter in fp32 at N = 8, stage {stage}")


SMALL = gpt2.Config(layers=2, heads=1, width=11, context=20, vocab=61)


def check_units():
    # Embedding unit: 671 -> 672, 220 -> 896, 11 -> 928, 11 ends at 939. Block: 11, 11, 363, 33, 121, 11, 11, 11, 484,
    # 44, 484, 11 start at 0, 32, 64, 448, 512, 640, 672, 704, 736, 1248, 1312, 1824 and end at 1835.
    (_, embedding), (_, block), _ = unit_tensors(SMALL, 1)
    equal(sum(embedding) + 2 * sum(block), 4103, "parameters of the small model")
    for slices, unit, expected in (
        (1, embedding, 960),
        (3, embedding, 960),
        (7, embedding, 1120),
        (1, block, 1856),
        (3, block, 1920),
        (8, block, 2048),
        (3, block + block, 3744),  # the second block starts at 1856 and ends at 3691
    ):
        equal(padded_size(unit, slices), expected, f"padded size for {slices} slices of tensors {unit}")
    five = replace(SMALL, layers=5)
    names = [name for name, _ in unit_tensors(five, 2)]
    equal(names, ["embedding", "blocks 0-1", "blocks 2-3", "block 4"], "units of 5 blocks with wrap 2")
    equal([len(t) for _, t in unit_tensors(five, 9)], [4, 60], "tensors in the units when wrap exceeds the layers")
    nothing = gpt2.Config(layers=0, heads=1, width=1, context=1, vocab=3)  # some of the ranks hold only padding
    equal(plan(Run("1", nothing, world=7))["padded_parameters"], 224, "6 parameters on 7 ranks, padded")


def check_small_runs():
    """The small model on 3 ranks: units of 960, 1920, 1920, so 4800 elements padded, 1600 of each slice."""

    def check(expected_memory, expected_sent, stage, **options):
        result = plan(Run(stage, SMALL, world=3, **options))
        what = f"stage {stage} {options}"
        names = ("parameters", "gradients", "optimizer", "partial_sums", "gathered")
        equal(tuple(result["memory"][name] for name in names), expected_memory, what)
        equal(tuple(result["communication"].get(name, 0) for name in names[1::-1]), expected_sent, what)

    # A third leaves out one slice of three: 4800 elements send 3200, 12800 bytes in fp32.
    check((19200, 19200, 38400, 0, 0), (25600, 0), "0")
    check((19200, 19200, 12800, 0, 0), (12800, 12800), "1")
    check((19200, 6400, 12800, 0, 0), (12800, 12800), "2")
    check((6400, 6400, 12800, 0, 15360), (12800, 25600), "3")  # two block units gathered at once
    check((9600, 9600, 57600, 0, 0), (12800, 0), "0", precision="bf16")
    check((9600, 9600, 19200, 0, 0), (6400, 6400), "1", precision="bf16")
    check((9600, 3200, 19200, 0, 0), (6400, 6400), "2", precision="bf16")
    check((3200, 3200, 19200, 0, 7680), (6400, 12800), "3", precision="bf16")
    # Four micro-steps: two partial sums of a slice; gradients four times, parameters once, in stage 3 four times.
    check((19200, 19200, 38400, 12800, 0), (64000, 0), "0", micro_steps=4)
    check((19200, 19200, 12800, 12800, 0), (51200, 12800), "1", micro_steps=4)
    check((6400, 6400, 12800, 12800, 15360), (51200, 102400), "3", micro_steps=4)
    check((6400, 6400, 12800, 6400, 19200), (38400, 38400), "3", micro_steps=3, reshard=False)
    check((6400, 6400, 12800, 0, 7680), (12800, 25600), "3", prefetch=0)
    check((19200, 19200, 38400, 19200, 0), (25600, 0), "0", micro_steps=4, accumulation="local-first")
    check((19200, 19200, 12800, 19200, 0), (12800, 12800), "1", micro_steps=4, accumulation="local-first")
    check((19200, 19200, 12800, 0, 0), (12800, 12800), "1", accumulation="local-first")

    # The baseline is one process (units of 960, 1856, 1856), whatever world it follows in its order of additions.
    for world, micro_steps, accumulation, sums in (
        (1, 1, "ranks-first", 0),
        (5, 3, "ranks-first", 3),
        (8, 4, "ranks-first", 5),
        (5, 3, "local-first", 3),
        (5, 1, "local-first", 2),
    ):
        result = plan(Run("baseline", SMALL, world=world, micro_steps=micro_steps, accumulation=accumulation))
        states = {"parameters": 18688, "gradients": 18688, "optimizer": 37376}
        expected = {**states, "partial_sums": sums * 18688, "gathered": 0}
        got = {name: result["memory"][name] for name in expected}
        equal(got, expected, f"baseline as world {world}, {micro_steps} micro-steps, {accumulation}")
        equal(result["communication"], {}, "the baseline sends nothing")
    for stage in ("2", "3"):
        try:
            plan(Run(stage, SMALL, world=3, accumulation="local-first"))
            failures.append(f"stage {stage} accepts local-first accumulation")
        except ValueError:
            pass


def check_activations():
    """The small model: sbh = 220, as^2b = 400, sb = 20, so 16 sbh + as^2b = 3920 elements of a block."""
    for precision, expected in (
        # Outside: 2 sbh + 20 x 61 logits, and 20 x (2 statistics, loss, token, target) of 4 bytes.
        ("fp32", {"layer_input": 880, "layer_rest": 4 * 3700 + 320, "outside": 4 * (440 + 1220) + 400}),
        ("bf16", {"layer_input": 440, "layer_rest": 2 * 3700 + 320, "outside": 2 * (440 + 1220) + 400}),
    ):
        for checkpoint, blocks in ((False, 2), (True, 1)):
            total = 2 * expected["layer_input"] + blocks * expected["layer_rest"] + expected["outside"]
            got = activations(Run("3", SMALL, world=4, precision=precision, checkpoint=checkpoint, dropout=True))
            equal(got, {**expected, "total": total}, f"activations in {precision}, checkpointing {checkpoint}")
    for name, layers, heads, width, context, micro_batch in (
        ("GPT-3", 96, 96, 12288, 2048, 1),  # the paper's 5as/h is 80 there
        ("MT-NLG", 105, 128, 20480, 2048, 1),  # and 64
    ):
        model = gpt2.Config(layers, heads, width, context, 51200)
        got = activations(Run("0", model, precision="bf16", micro_batch=micro_batch))
        sbh, per_token = context * micro_batch * width, context * micro_batch
        paper = sbh * 34 + 5 * heads * context**2 * micro_batch  # Korthikanti et al. 2022, equation 1
        masks = 2 * sbh + heads * context**2 * micro_batch  # a byte each
        dropped = 2 * heads * context**2 * micro_batch  # the probabilities after dropout
        equal(got["layer_input"] + got["layer_rest"], paper - masks - dropped + 16 * per_token, f"a block of {name}")
        equal(5 * heads * context // width, {"GPT-3": 80, "MT-NLG": 64}[name], f"5as/h of {name}")
    empty = gpt2.Config(layers=0, heads=1, width=11, context=20, vocab=61)
    equal(activations(Run("0", empty, checkpoint=True))["total"], 7040, "activations of a model without blocks")


def check_groups():
    """The small model on 4 ranks in 2 groups: units of 960, 1856, 1856 cut in 2, so 2336 elements of each slice."""

    def check(expected_memory, expected_sent, **options):
        result = plan(Run("3", SMALL, world=4, shard_group=2, **options))
        names = ("parameters", "gradients", "optimizer", "partial_sums", "gathered", "gradient_in_flight")
        purposes = ("gradients", "gradients_across", "parameters", "scalars")
        equal(tuple(result["memory"][name] for name in names), expected_memory, f"groups of 2, {options}")
        equal(tuple(result["communication"][name] for name in purposes), expected_sent, f"groups of 2, {options}")

    check((9344, 9344, 18688, 0, 14848, 7424), (9344, 9344, 18688, 208))
    check((4672, 4672, 28032, 0, 7424, 3712), (4672, 9344, 9344, 208), precision="bf16")  # sums across are fp32
    check((9344, 9344, 18688, 9344, 14848, 7424), (28032, 28032, 56064, 256), micro_steps=3)
    for stage, group in (("3", 4), ("3", 0), ("1", 2)):  # one group; stages that have none
        equal(
            {**plan(Run(stage, SMALL, world=4, shard_group=group)), "units": []},
            {**plan(Run(stage, SMALL, world=4)), "units": []},
            f"stage {stage} in groups of {group}",
        )
    alone = plan(Run("3", SMALL, world=4, shard_group=1))  # replicas: every rank holds what one rank would
    equal(alone["memory"]["parameters"], 18688, "parameters in groups of one rank")
    equal(alone["communication"]["gradients_across"], 3 * 18688, "sent across groups of one rank")
    equal(alone["communication"]["parameters"], 0, "parameters sent in groups of one rank")


def check_ring():
    """Slices of 1600 elements on 3 ranks: the first hop carries what is stored, the second a sum in fp32."""
    for precision, expected in (("fp32", 8 * 1600), ("bf16", 6 * 1600)):
        got = plan(Run("1", SMALL, world=3, precision=precision, collectives="ring"))["communication"]
        equal(got["gradients"], expected, f"gradients of a ring in {precision}")


def check_bf16_states():
    """bf16 with 4 ranks: the paper's 16P, 4P + 12P/N, 2P + 14P/N and 16P/N, to the byte."""
    for stage, per_parameter in (("baseline", 16), ("0", 16), ("1", 7), ("2", 5.5), ("3", 4)):
        result = plan(Run(stage, SMALL, world=4, precision="bf16"))
        held = sum(result["memory"][name] for name in ("parameters", "gradients", "optimizer"))
        equal(held, per_parameter * result["padded_parameters"], f"model states of stage {stage} in bf16")


def check_offload():
    """The small model on 3 ranks: slices of 320, 640 and 640 elements, 1600 in all, each a chunk."""

    def check(expected_host, expected_files, expected_moved, stage, optimizer, parameters="device", **options):
        result = plan(Run(stage, SMALL, world=3, optimizer_place=optimizer, parameters_place=parameters, **options))
        what = f"offload on stage {stage}, {optimizer}, {parameters}, {options}"
        names = ("parameters", "gradients", "optimizer", "offload_buffers")
        equal(tuple(result["host_memory"].get(name, 0) for name in names), expected_host, f"{what}: host")
        equal(tuple(result["nvme_memory"].get(name, 0) for name in names[:3]), expected_files, f"{what}: files")
        equal(tuple(result["offload"][name] for name in ("down", "up", "read", "written")), expected_moved, f"{what}: moved")
        on_device = {"parameters": (0 if parameters != "device" else 4800 if stage == "2" else 1600), "gradients": 0, "optimizer": 0}
        element = 2 if options.get("precision") == "bf16" else 4
        equal({name: result["memory"][name] // element for name in on_device}, on_device, f"{what}: states on the device")

    # A chunk of 640 elements on its way up; in files every slice is one block of 4096 bytes, and 3 of each state pass.
    check((0, 6400, 19200, 2560), (0, 0, 0), (6400, 6400, 0, 0), "2", "host")
    check((0, 3200, 19200, 1280), (0, 0, 0), (3200, 3200, 0, 0), "2", "host", precision="bf16")
    check((0, 12800, 19200, 2560 + 6400), (0, 0, 0), (6400, 6400, 0, 0), "2", "host", delayed=True)
    check((0, 0, 0, 12 * 4096 + 2560), (0, 3 * 4096, 9 * 4096), (6400, 6400, 12 * 4096, 12 * 4096), "2", "nvme")
    check((6400, 6400, 19200, 0), (0, 0, 0), (6400, 12800, 0, 0), "3", "host", "host")  # every unit comes up twice
    check((6400, 6400, 19200, 0), (0, 0, 0), (6400, 19200, 0, 0), "3", "host", "host", micro_steps=3, reshard=False)
    check((0, 6400, 19200, 2 * 4096), (3 * 4096, 0, 0), (6400, 12800, 6 * 4096, 3 * 4096), "3", "host", "nvme")
    check((0, 0, 0, 14 * 4096), (3 * 4096, 3 * 4096, 9 * 4096), (6400, 12800, 18 * 4096, 15 * 4096), "3", "nvme", "nvme")
    for micro_steps in (1, 4):  # the paper's 4M bytes over all ranks: 2M of gradients down, 2M of parameters up
        result = plan(Run("2", SMALL, world=3, precision="bf16", micro_steps=micro_steps, optimizer_place="host"))
        equal(3 * (result["offload"]["down"] + result["offload"]["up"]), 4 * 4800, "moved over all ranks")
    # A slice of two chunks and a bit more: 2^19 + 32 elements on 2 ranks.
    one = gpt2.Config(layers=0, heads=1, width=32, context=1, vocab=32768 - 1)
    result = plan(Run("3", one, world=2, optimizer_place="nvme", parameters_place="nvme"))
    equal(result["padded_parameters"], 2**20 + 64, "elements of two slices of two chunks and a bit more")
    equal(result["nvme_memory"]["parameters"], 2 * 2**20 + 4096, "a slice of two chunks and 32 elements in a file")
    equal(result["host_memory"]["offload_buffers"], (3 * 4 + 2 * 3) * 2**20, "buffers of whole chunks")
    for run in (Run("1", SMALL, optimizer_place="host"), Run("2", SMALL, optimizer_place="host", parameters_place="host"), Run("3", SMALL, parameters_place="host"), Run("3", SMALL, optimizer_place="nvme", delayed=True)):
        try:
            plan(run)
            failures.append(f"{run} is accepted")
        except ValueError:
            pass


def check_gpu():
    """The small model on GPUs, with units of 960, 1920, 1920 elements on 3 ranks and 960, 1856, 1856 on one."""

    def check(expected, stage, **options):
        result = plan(Run(stage, SMALL, backend="cuda", **options))
        memory, host = result["memory"], result["host_memory"]
        got = memory["gradient_in_flight"], memory["buckets"], host.get("buckets", 0)
        equal(got, expected, f"stage {stage} on GPUs, {options}: gradient in flight, buckets, buckets of the host")

    # Two MiB of a communicator are on the device, with 256 KiB of sums, and four in host memory.
    mib, one = 2**20, (2 * 2**20 + 2**18, 4 * 2**20)
    check((0, *one), "1", world=3)
    check((4 * 3840, *one), "2", world=3)
    check((4 * 3840, *one), "3", world=3)
    check((2 * 3840, *one), "3", world=3, precision="bf16")
    check((4 * 4704, *one), "3", world=3, wrap=2)  # the embedding, and both blocks in a unit of 3744
    check((4 * 1856, 0, 0), "3")  # nothing to reduce
    check((4 * 3712, 0, 0), "3", optimizer_place="host")  # but something to copy
    check((0, 0, 0), "baseline", world=3)
    check((4 * 3712, 3 * one[0], 3 * one[1]), "3", world=4, shard_group=2)  # the group, all, between groups
    check((4 * 1856, 2 * one[0], 2 * one[1]), "3", world=4, shard_group=1)
    native = 2 * mib + 4 * 640  # the sums of a slice of a block
    check((4 * 3840, native, 4 * mib), "2", world=3, collectives="native")
    # Half of a staging memory less 768 bytes, for 15 others: 139,784 bytes, or 69,879, down to a multiple of 128.
    for backend, elements in (("cpu", 139776 // 4), ("cuda", 69760 // 4)):
        run = Run("3", SMALL, world=32, shard_group=16, backend=backend)
        equal([parts_of(run, elements + more) for more in (0, 1)], [1, 2], f"parts of sums on {backend}")
    for products, threads, more in (("canonical", 1, 0), ("canonical", 8, 0), ("library", 1, 32 * mib)):
        options = {"world": 3, "threads": threads, "products": products}
        gpu, cpu = (plan(Run("2", SMALL, backend=backend, **options))["memory"]["workspace"] for backend in ("cuda", "cpu"))
        elements = 6 * 220 + 400 + 22  # gradients of activations, of a head's scores, of the final norm
        equal(gpu, 4 * elements + 224 + more, f"workspace with {products} products on a GPU")
        equal(cpu, 4 * (elements + (3 * 512**2 if more else threads * 356352)), f"workspace with {products} products on a CPU")


def check_gathers():
    # Uses with three block units: E 1 2 3 E 3 2 1 (the second E is the head). A unit stays when its next use is at most
    # `prefetch` uses away: 2 uses for block 3, 4 for E and block 2, 6 for block 1.
    for prefetch, reshard, expected_times, expected_peak in (
        (0, True, [2, 2, 2, 2], 300),  # the largest unit alone
        (1, True, [2, 2, 2, 2], 500),  # 2 and 3
        (2, True, [2, 2, 2, 1], 600),  # 1, 2 and 3 while 1 computes
        (3, True, [2, 2, 2, 1], 610),  # all
        (4, True, [1, 2, 1, 1], 610),
        (5, True, [1, 2, 1, 1], 610),
        (6, True, [1, 1, 1, 1], 610),
        (9, True, [1, 1, 1, 1], 610),
        (0, False, [1, 1, 1, 1], 610),
        (2, False, [1, 1, 1, 1], 610),
    ):
        got = gathers([10, 100, 200, 300], prefetch, reshard)
        equal(got, (expected_times, expected_peak), f"gathers with prefetch {prefetch}, reshard {reshard}")
    equal(gathers([10], 0, True), ([2], 10), "gathers of a model without blocks")
    equal(gathers([10], 1, True), ([1], 10), "gathers of a model without blocks, the head prefetched")
    equal(gathers([10, 100], 1, True), ([2, 2], 110), "gathers with one block unit")

    # Whatever the depth: never more units at once than the one in use and those ahead, and none gathered three times.
    for count in range(1, 7):
        for prefetch in range(0, 14):
            times, peak = gathers([1] * count, prefetch, True)
            if peak > min(count, 1 + prefetch) or max(times) > 2 or min(times) < 1:
                failures.append(f"gathers of {count} units with prefetch {prefetch}: {times}, at once {peak}")


def check_traffic_ratios():
    """Section 7: stages 1 and 2 send what plain data parallelism sends, stage 3 half as much again."""
    model = gpt2.Config(layers=12, heads=12, width=768, context=1024, vocab=50257)
    for world in (1, 2, 3, 8, 64):
        sent = {}
        for stage in "0123":
            purposes = plan(Run(stage, model, world=world))["communication"]
            sent[stage] = purposes["gradients"] + purposes.get("parameters", 0)
        padded = plan(Run("0", model, world=world))["padded_parameters"]
        equal(sent["0"], 2 * 4 * padded * (world - 1) // world, f"stage 0 sends 2 parameters' worth at N = {world}")
        equal((sent["1"], sent["2"], 2 * sent["3"]), (sent["0"], sent["0"], 3 * sent["0"]), f"traffic at N = {world}")
    equal(plan(Run("0", model))["parameters"], 124439808, "parameters of GPT-2 124M")
    equal(math.prod(gpt2.shapes(model)["block 11 mlp.project.weight"]), 4 * 768 * 768, "size of the last projection")


PROGRAMS = {"baseline": "baseline", "0": "stage0_ddp", "1": "stage1_optimizer", "2": "stage2_gradients", "3": "stage3_params"}


def settings_of_runs():
    """Some of all settings, the same each time, every value in several of them: (run, what to add to its command)."""
    choose = random.Random(2)
    stages = ["3", "3", "3", "2", "2", "1", "0", "baseline"]  # stage 3 has the most options
    for i in range(36):
        offloads = i >= 20
        stage = stages[i % len(stages)] if not offloads else "3" if i % 3 else "2"
        world = choose.choice((4, 4, 2) if stage == "3" else (2, 3, 4, 5))
        local_first = stage in ("baseline", "0", "1") and choose.random() < 0.3
        groups = [size for size in (1, 2) if world % size == 0] if stage == "3" and not offloads else []
        places = {}
        if offloads:
            places["optimizer_place"] = choose.choice(("host", "nvme"))
            places["parameters_place"] = choose.choice(("device", "host", "nvme", "nvme")) if stage == "3" else "device"
            places["delayed"] = places["optimizer_place"] == "host" and choose.random() < 0.5
        elif stage == "baseline":
            places["delayed"] = choose.random() < 0.5
        tiles = choose.choice((1, 1, 2, 3)) if offloads or stage == "baseline" else 1
        run = Run(
            stage,
            gpt2.Config(choose.choice((2, 3, 5)), *choose.choice(((1, 11), (2, 10), (4, 32))), choose.choice((20, 33)), 256),
            world=world,
            micro_steps=choose.choice((1, 2, 3)),
            precision=choose.choice(("bf16", "fp32")),
            tiles=tiles,
            wrap=choose.choice((1, 2)) if tiles == 1 else 1,
            accumulation="local-first" if local_first else "ranks-first",
            prefetch=choose.choice((0, 1, 2)) if stage == "3" else 1,
            reshard=choose.random() < 0.7 or stage != "3",
            micro_batch=choose.choice((1, 3)),
            checkpoint=choose.random() < 0.5 and tiles == 1,
            dropout=choose.random() < 0.5,
            shard_group=choose.choice([0, *groups, *groups]),
            bucket=choose.choice((0, 700, 4096)),
            collectives=choose.choice((*["canonical"] * 4, "ring", "native")),
            threads=choose.choice((1, 2)),
            **places,
        )
        yield run, choose.choice(([], ["--eval-every", 1], ["--transport", "messages"], ["--clip", 0]))


def on_gpus(settings):
    """Some of them on pretended GPUs, one for each rank or one for all: (run, what to add to its command, GPUs)."""
    choose = random.Random(3)
    for i, (run, more) in enumerate(settings):
        if i % 5 > 1 and not 1 < run.groups < run.world:  # every stage, kind of collectives and place is among the rest
            continue
        run = replace(run, backend="cuda", products=choose.choice(("canonical", "library")))
        native = run.collectives == "native"  # is NCCL's, and needs a GPU for each rank
        yield run, [] if native else more, run.world if native or choose.random() < 0.5 else 1


def check_plan(run, programs, what):
    """The program plan says of a run what the second copy says."""
    options = command_of(run, programs, "", "")
    options = list(map(str, options[options.index("--layers") :]))
    for name in ("--steps", "--nvme-path", "--delay-after", "--stage", "--offload-optimizer", "--offload-params", "--as-world"):
        if name in options:
            del options[options.index(name) : options.index(name) + 2]
    places = [run.optimizer_place, *([run.parameters_place] if run.parameters_place != "device" else [])]
    stage = "-".join(["offload", run.stage, *places]) if run.offloads else run.stage
    command = [os.path.join(programs, "plan"), "--world", str(run.world), "--stage", stage, "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        failures.append(f"{' '.join(command)}: {done.returncode}: {done.stderr}")
        return
    (got,) = json.loads(done.stdout)["stages"]
    expected = plan(run)
    for tier in ("memory", "host_memory", "nvme_memory"):
        held = got.get(tier, {})
        for name in sorted({*held, *expected[tier]}):
            equal(held.get(name, 0), expected[tier].get(name, 0), f"{what}: {tier} {name} by plan")


def command_of(run, programs, starter, files):
    """The command line of a run, and its options but for `--out`."""
    options = ["--layers", run.model.layers, "--heads", run.model.heads, "--width", run.model.width]
    options += ["--context", run.model.context, "--vocab", run.model.vocab, "--micro-batch", run.micro_batch]
    options += ["--global-batch", run.micro_batch * run.world * run.micro_steps, "--precision", run.precision]
    options += ["--wrap", run.wrap, "--accumulation", run.accumulation, "--threads", run.threads]
    options += ["--collectives", run.collectives, "--steps", 3 if run.delayed else 2]
    options += ["--backend", run.backend, "--products", run.products]
    options += ["--bucket", run.bucket] if run.bucket else []
    options += ["--tile", run.tiles] if run.tiles > 1 else []
    options += ["--checkpoint-activations"] if run.checkpoint else []
    options += ["--dropout", 0.25] if run.dropout else []
    options += ["--delayed-update", "--delay-after", 1] if run.delayed else []
    program = os.path.join(programs, "offload" if run.offloads else PROGRAMS[run.stage])
    if run.offloads:
        options += ["--stage", run.stage, "--offload-optimizer", run.optimizer_place]
        options += ["--offload-params", {"device": "none"}.get(run.parameters_place, run.parameters_place)]
        options += ["--nvme-path", files] if "nvme" in (run.optimizer_place, run.parameters_place) else []
    if run.stage == "baseline":
        return [program, *options, "--as-world", run.world]
    if run.stage == "3":
        options += ["--prefetch", run.prefetch, "--reshard-after-forward", "on" if run.reshard else "off"]
        options += ["--shard-group", run.shard_group] if run.shard_group else []
    return [starter, "-n", run.world, program, *options]


def check_summary(run, summary, what):
    """Every rank holds and sends what the formulas say, and the program's own formulas agree."""
    expected = plan(run)
    equal(summary["parameters"], expected["parameters"], f"{what}: parameters")
    equal(summary["padded_parameters"], expected["padded_parameters"], f"{what}: padded parameters")
    for rank in summary["memory"]["ranks"]:
        for tier, sizes in (("device", expected["memory"]), ("host", expected["host_memory"]), ("nvme", expected["nvme_memory"])):
            held = rank["tiers"].get(tier, {"categories": {}})["categories"]
            for name in sorted({*held, *sizes}):
                got, size = held.get(name, {"formula": 0, "peak": 0, "current": 0}), sizes.get(name, 0)
                equal((got["formula"], got["peak"]), (size, size), f"{what}: {tier} {name} (its formula, held)")
                if name in ("parameters", "gradients", "optimizer"):
                    equal(got["current"], size, f"{what}: {tier} {name} at the end")
    moved = summary["offload"]["ranks"]
    equal(len(moved), run.world if run.offloads else 0, f"{what}: ranks that move between tiers")
    for rank in moved:
        for name in sorted({*rank, *expected["offload"]} - {"rank"}):
            size = expected["offload"].get(name, 0)
            equal(rank.get(name), {"formula": size, "moved": size}, f"{what}: moved {name}")
    for rank in summary["communication"]["ranks"]:
        for name in sorted({*rank, *expected["communication"]} - {"rank"}):
            got, size = rank.get(name, {"formula": 0, "sent": 0, "calls": 0}), expected["communication"].get(name, 0)
            equal(got["formula"], size, f"{what}: {name}, its formula")
            if run.collectives != "native" or run.slices == 1:  # the library's own are not counted
                equal(got["sent"], size, f"{what}: {name} sent")
            equal(got["calls"], expected["calls"].get(name, 0), f"{what}: collectives for {name}")


def check_layer_measured(runs, what):
    """A further layer adds to what was held what the formula says of one layer."""
    (fewer, less), (more, larger) = runs
    expected = activations(more)
    added = [s["memory"]["ranks"][0]["tiers"]["device"]["categories"]["activations"]["peak"] for s in (less, larger)]
    of_layer = expected["layer_input"] + (0 if more.checkpoint else expected["layer_rest"])
    equal(added[1] - added[0], of_layer * (more.model.layers - fewer.model.layers), what)


def ended(command, gpus, limit=60):
    """Runs it: its exit status, and what it wrote to standard error. Past the limit it and its ranks are ended."""
    quiet = {"env": {**os.environ, "CUDA_ON_HOST_DEVICES": str(gpus)}, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **quiet) as process:
        try:
            _, error = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # mpirun passes it on to its ranks
            return f"not done after {limit} s", ""
    return process.returncode, error


def check_programs(starter, programs, text, backend="cpu"):
    """The number of runs, all compared with the formulas."""
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        files = os.path.join(folder, "files")
        os.mkdir(files)

        def summary_of(run, *more, gpus=0):
            nonlocal count
            count += 1
            out = os.path.join(folder, str(count))
            command = [*command_of(run, programs, starter, files), "--data", text, *more, "--out", out]
            status, error = ended(list(map(str, command)), gpus)
            if status != 0:
                failures.append(f"{' '.join(map(str, command))}: {status}: {error[-400:]}")
                return None
            with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
                return json.load(file)

        if backend == "cuda":
            for run, more, gpus in on_gpus(settings_of_runs()):
                summary = summary_of(run, *more, gpus=gpus)
                if summary is not None:
                    check_summary(run, summary, f"{run} {more} on {gpus} GPUs")
                check_plan(run, programs, f"{run}")
            return count
        for run, more in settings_of_runs():
            summary = summary_of(run, *more)
            if summary is not None:
                check_summary(run, summary, f"{run} {more}")
        for precision, checkpoint in itertools.product(("fp32", "bf16"), (False, True)):
            runs = [Run("baseline", replace(SMALL, layers=layers, vocab=256), precision=precision, checkpoint=checkpoint) for layers in (2, 5)]
            summaries = [summary_of(run) for run in runs]
            if None not in summaries:
                check_layer_measured(list(zip(runs, summaries)), f"activations of three layers in {precision}, checkpointing {checkpoint}")
    return count


def main():
    if len(sys.argv) > 1:
        count = check_programs(*sys.argv[1:])
        for failure in failures[:50]:
            print(f"error: {failure}", file=sys.stderr)
        if not failures:
            print(f"formulas: {count} runs hold and send to the byte what they say")
        return 1 if failures else 0
    check_table_1()
    check_table_2()
    check_paper_text()
    check_units()
    check_small_runs()
    check_bf16_states()
    check_activations()
    check_groups()
    check_ring()
    check_offload()
    check_gpu()
    check_gathers()
    check_traffic_ratios()
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    if not failures:
        print("formulas: the paper's table 1 (54 cells), table 2 (20 cells), and the cases worked by hand: as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
