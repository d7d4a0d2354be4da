#!/usr/bin/env python3
"""The formulas against the ZeRO paper's printed tables and cases worked by hand; exits with 1 and says which fail."""

import math
import sys
from dataclasses import replace
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from fractions import Fraction

import gpt2
from formulas import Run, gathers, model_states, padded_size, plan, unit_tensors

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
        equal(tuple(result["communication"][name] for name in names[1::-1]), expected_sent, what)

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
        equal(result["memory"], expected, f"baseline as world {world}, {micro_steps} micro-steps, {accumulation}")
        equal(result["communication"], {"gradients": 0, "parameters": 0}, "the baseline sends nothing")
    for stage in ("2", "3"):
        try:
            plan(Run(stage, SMALL, world=3, accumulation="local-first"))
            failures.append(f"stage {stage} accepts local-first accumulation")
        except ValueError:
            pass


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
        sent = {s: sum(plan(Run(s, model, world=world))["communication"].values()) for s in "0123"}
        padded = plan(Run("0", model, world=world))["padded_parameters"]
        equal(sent["0"], 2 * 4 * padded * (world - 1) // world, f"stage 0 sends 2 parameters' worth at N = {world}")
        equal((sent["1"], sent["2"], 2 * sent["3"]), (sent["0"], sent["0"], 3 * sent["0"]), f"traffic at N = {world}")
    equal(plan(Run("0", model))["parameters"], 124439808, "parameters of GPT-2 124M")
    equal(math.prod(gpt2.shapes(model)["block 11 mlp.project.weight"]), 4 * 768 * 768, "size of the last projection")


def main():
    check_table_1()
    check_table_2()
    check_paper_text()
    check_units()
    check_small_runs()
    check_gathers()
    check_traffic_ratios()
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    if not failures:
        print("formulas: the paper's table 1 (54 cells), table 2 (20 cells), and the cases worked by hand: as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
