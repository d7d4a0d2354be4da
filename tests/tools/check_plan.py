#!/usr/bin/env python3
"""check_plan.py PLAN: the program plan against the paper's Table 1 and against the second copy of the formulas in Python."""

import itertools
import json
import os
import random
import subprocess
import sys
from decimal import Decimal

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import formulas
import gpt2

PLAN = sys.argv[1]
failures = []

# Rajbhandari et al. 2020, table 1: GB of model states a device of stages 1, 2, 3 at N devices, as printed.
PRINTED = {
    7_500_000_000: {1: "120 120 120", 4: "52.5 41.3 30", 16: "35.6 21.6 7.5", 64: "31.4 16.6 1.88", 256: "30.4 15.4 0.47", 1024: "30.1 15.1 0.12"},
    128_000_000_000: {1: "2048 2048 2048", 4: "896 704 512", 16: "608 368 128", 64: "536 284 32", 256: "518 263 8", 1024: "513 257 2"},
    1_000_000_000_000: {1: "16000 16000 16000", 4: "7000 5500 4000", 16: "4750 2875 1000", 64: "4187 2218 250", 256: "4046 2054 62.5", 1024: "4011 2013 15.6"},
}
# The exact values of the same cells.
EXACT = {
    7_500_000_000: {1: "120 120 120", 4: "52.5 41.25 30", 16: "35.625 21.5625 7.5", 64: "31.40625 16.640625 1.875", 256: "30.3515625 15.41015625 0.46875", 1024: "30.087890625 15.1025390625 0.1171875"},
    128_000_000_000: {1: "2048 2048 2048", 4: "896 704 512", 16: "608 368 128", 64: "536 284 32", 256: "518 263 8", 1024: "513.5 257.75 2"},
    1_000_000_000_000: {1: "16000 16000 16000", 4: "7000 5500 4000", 16: "4750 2875 1000", 64: "4187.5 2218.75 250", 256: "4046.875 2054.6875 62.5", 1024: "4011.71875 2013.671875 15.625"},
}


def check(condition, what):
    if not condition:
        failures.append(what)


def run(*arguments):
    return subprocess.run([PLAN, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def plan(*arguments):
    result = run(*arguments, "--json")
    if result.returncode != 0:
        failures.append(f"plan {arguments} ended with {result.returncode}: {result.stderr}")
        return None
    return json.loads(result.stdout)


def check_table_1():
    cells = {(r["parameters"], r["world"], r["stage"]): r["model_states"] for r in plan("--paper-table1")["rows"]}
    check(len(cells) == 54, f"{len(cells)} cells of table 1")
    lines = run("--paper-table1").stdout.splitlines()
    text = {int(line.split()[0]): line.split()[1:] for line in lines if line[:1].isdigit()}
    check(all(len(row) == 9 for row in text.values()) and len(text) == 6, f"rows of table 1: {text}")
    head = next(i for i, line in enumerate(lines) if line.startswith("N "))
    groups, columns = lines[head - 1], lines[head]
    check(groups.replace("-", " ").split() == ["7.5B", "128B", "1T"], f"the models above table 1: {groups!r}")
    ends = [at + len("Pos+g+p") for at in range(len(columns)) if columns.startswith("Pos+g+p", at)]
    check([len(groups[:end]) for end in ends] == [len(groups[: groups.index(name)]) + len(name) + len(groups[groups.index(name) + len(name) :].split("  ")[0]) for name in ("7.5B", "128B", "1T")], f"models end with their columns: {groups!r}")
    markdown = [line for line in run("--paper-table1", "--markdown").stdout.splitlines() if line.startswith("|")]
    check("7.5B" in markdown[0] and "Pos+g+p" in markdown[2] and len({line.count("|") for line in markdown[:1] + markdown[2:]}) == 1, f"table 1 as Markdown: {markdown[:3]}")
    for parameters, rows in PRINTED.items():
        for world, printed in rows.items():
            for stage, paper, exact in zip("123", printed.split(), EXACT[parameters][world].split()):
                got = Decimal(cells[(parameters, world, stage)])
                last_digit = Decimal(1).scaleb(Decimal(paper).as_tuple().exponent)
                check(abs(got - Decimal(paper)) <= last_digit, f"{parameters} N {world} stage {stage}: {got}, printed {paper}")
                check(got == Decimal(exact), f"{parameters} N {world} stage {stage}: {got}, exactly {exact}")
                cell = f"{float(exact):.0f}" if float(exact) >= 1000 else f"{float(exact):.4g}"
                check(cell in text[world], f"{cell} is not in the row of N = {world}")
            # --parameters gives the same, rounded up to bytes in each of the three states.
            for row in plan("--parameters", parameters, "--world", world, "--precision", "bf16")["stages"]:
                if row["stage"] in "123":
                    off = row["model_states"] - Decimal(EXACT[parameters][world].split()[int(row["stage"]) - 1]) * 10**9
                    check(0 <= off < 3, f"--parameters {parameters} N {world} stage {row['stage']} is off by {off} bytes")


def settings():
    """Some of all settings, the same each time: as the second copy takes them, without a stage and a model's sizes."""
    choose = random.Random(5)
    setting = {}
    shapes = [(2, 4, 512, 8, 61), (2, 1, 11, 20, 61), (5, 4, 32, 16, 256), (0, 1, 1, 1, 3), (1, 2, 4, 7, 5), (3, 2, 64, 8, 2000)]
    for _ in range(400):
        world = choose.choice((1, 2, 3, 4, 6, 8))
        collectives = choose.choice(("canonical", "canonical", "ring", "native"))
        shape = choose.choice(shapes)
        setting = {
            "world": world,
            "micro_steps": choose.choice((1, 1, 2, 3, 4, 9)),
            "precision": choose.choice(("fp32", "bf16")),
            "wrap": (wrap := choose.choice((1, 2, 9))),
            "accumulation": choose.choice(("ranks-first", "ranks-first", "local-first")),
            "prefetch": choose.choice((0, 1, 2, 5)),
            "reshard": choose.choice((True, True, False)),
            "micro_batch": choose.choice((1, 2, 5)),
            "checkpoint": (checkpoint := choose.choice((False, True))),
            "dropout": choose.choice((False, True)),
            "shard_group": choose.choice([0, *(size for size in (1, 2, 4, 8) if world % size == 0)]),
            "bucket": choose.choice((0, 0, 1, 100, 30000)),
            "collectives": collectives,
            "products": choose.choice(("canonical", "library")),
            "backend": choose.choice(("cpu", "cuda")),
            "threads": choose.choice((1, 1, 3)),
            "delayed": choose.random() < 0.2,
            "tiles": choose.choice((1, 1, 2, 3)) if wrap == 1 and not checkpoint and shape[2] > 2 else 1,
        }
        yield shape, setting
    # Slices so long, and groups so large, that the staging memory says in how many parts a sum comes.
    for backend, group, precision, collectives in itertools.product(("cpu", "cuda"), (8, 16), ("fp32", "bf16"), ("canonical", "ring")):
        long = {"world": 32, "shard_group": group, "bucket": 0, "accumulation": "ranks-first", "delayed": False, "tiles": 1}
        yield (1, 4, 512, 8, 61), setting | long | {"backend": backend, "precision": precision, "collectives": collectives}


def arguments_of(sizes, setting):
    """The same setting as plan takes it."""
    options = []
    for name, value in zip(("layers", "heads", "width", "context", "vocab"), sizes):
        options += [f"--{name}", value]
    for name in ("world", "precision", "wrap", "accumulation", "prefetch", "micro_batch", "collectives", "backend", "threads"):
        options += [f"--{name.replace('_', '-')}", setting[name]]
    by_default = "library" if setting["backend"] == "cuda" else "canonical"
    options += ["--products", setting["products"]] if setting["products"] != by_default else []
    options += ["--global-batch", setting["micro_batch"] * setting["world"] * setting["micro_steps"]]
    options += ["--reshard-after-forward", "on" if setting["reshard"] else "off"]
    options += ["--checkpoint-activations"] if setting["checkpoint"] else []
    options += ["--dropout", "0.1"] if setting["dropout"] else []
    options += ["--shard-group", setting["shard_group"]] if setting["shard_group"] else []
    options += ["--bucket", setting["bucket"]] if setting["bucket"] else []
    options += ["--delayed-update"] if setting["delayed"] else []
    options += ["--tile", setting["tiles"]] if setting["tiles"] > 1 else []
    return options


PLACES = {"none": "device", "host": "host", "nvme": "nvme"}
# By label of plan: the stage of the second copy, where its optimizer lives, and where its parameters.
OFFLOAD = {f"offload-2-{optimizer}": ("2", optimizer, "none") for optimizer in ("host", "nvme")}
OFFLOAD |= {f"offload-3-{o}" + (f"-{p}" if p != "none" else ""): ("3", o, p) for o in ("host", "nvme") for p in PLACES}


def run_of(label, model, setting):
    """The second copy's words for a row of plan; nothing for one that does not apply a gradient late."""
    stage, optimizer, parameters = OFFLOAD.get(label, (label, "device", "none"))
    if setting["delayed"] and label != "baseline" and optimizer != "host":
        return None
    if optimizer == "device" and label != "baseline":
        setting = setting | {"tiles": 1}  # only programs that update on the host and the baseline have them
    return formulas.Run(stage, model, **setting, optimizer_place=PLACES.get(optimizer, optimizer), parameters_place=PLACES[parameters])


def check_grid():
    """plan says of every category and purpose what the second copy says, and nothing else."""
    count = 0
    for sizes, setting in settings():
        options = arguments_of(sizes, setting)
        model = gpt2.Config(*sizes)
        local_first = setting["accumulation"] == "local-first"
        labels = ("baseline", "0", "1") if local_first else (*formulas.STAGES, *OFFLOAD)
        if setting["delayed"] and local_first:
            labels = ("baseline",)
        result = plan(*options, "--stage", "all" if local_first else "all,offload")
        if result is None:
            continue
        stages = {s["stage"]: s for s in result["stages"]}
        check([result["options"][name] for name in ("backend", "products")] == [setting["backend"], setting["products"]], f"options of {options}")
        check(set(stages) == {label for label in labels if run_of(label, model, setting)}, f"stages of {options}: {set(stages)}")
        for label, got in stages.items():
            expected = formulas.plan(run_of(label, model, setting))
            what = f"stage {label} of plan {' '.join(map(str, options))}"
            check(result["parameters"] == expected["parameters"], f"{what}: parameters")
            check(got["padded_parameters"] == expected["padded_parameters"], f"{what}: padded parameters")
            for category in {*got["memory"], *expected["memory"]}:
                held, size = got["memory"].get(category, 0), expected["memory"].get(category, 0)
                check(held == size, f"{what}: {category} {held}, expected {size}")
            for purpose in {*got["communication"], *expected["communication"]}:
                sent = got["communication"].get(purpose, {"formula": 0, "calls": 0})
                size, calls = expected["communication"].get(purpose, 0), expected["calls"].get(purpose, 0)
                check(sent["formula"] == size, f"{what}: {purpose} sends {sent['formula']}, expected {size}")
                check(sent["calls"] == calls, f"{what}: {purpose} takes {sent['calls']} collectives, expected {calls}")
            for tier, total in (("memory", "total"), ("host_memory", "host_total"), ("nvme_memory", "nvme_total")):
                held, sizes_of_tier = got.get(tier, {}), expected[tier]
                check(held == {name: size for name, size in sizes_of_tier.items() if size or name in held}, f"{what}: {tier} {held}, expected {sizes_of_tier}")
                check(got.get(total, 0) == sum(held.values()), f"{what}: {total}")
            moved = {name: size for name, size in expected["offload"].items() if size or name in got["offload"]}
            check(got.get("offload", {}) == moved, f"{what}: moved {got.get('offload')}, expected {moved}")
            layers = result["activations"]
            of_layers = {name: layers[name] for name in ("layer_input", "layer_rest", "outside", "total")}
            check(of_layers == expected["activations"], f"{what}: activations by layer {of_layers}, expected {expected['activations']}")
            check(layers["total"] == got["memory"]["activations"], f"{what}: activations by layer are not the category")
            count += 1
    check(count > 3000, f"only {count} settings were compared")
    return count


def check_bf16():
    """bf16 without padding: 16P, 4P + 12P/N, 2P + 14P/N and 16P/N bytes, and the paper's 7.5 billion on 64."""
    expected = {"baseline": 16, "0": 16, "1": 4 + 12 / 4, "2": 2 + 14 / 4, "3": 16 / 4}
    for row in plan("--world", 4, "--model", "tiny", "--precision", "bf16")["stages"]:
        check(row["padded_parameters"] == 842496, f"stage {row['stage']}: tiny is padded on 4 ranks, so that this test says nothing")
        check(row["model_states"] == expected[row["stage"]] * 842496, f"stage {row['stage']} in bf16: {row['model_states']} bytes")
    text = run("--world", 64, "--parameters", "7.5e9", "--precision", "bf16").stdout
    for number in ("120.00", "31.41", "16.64", "1.88", "16P in stage0_ddp", "4P + 12P/N", "2P + 14P/N", "16P/N in"):
        check(number in " ".join(text.split()), f"{number} is not in the plan of the paper's figure 1")


def check_groups():
    """Sharding groups are stage 3's alone, and one group of all ranks is none."""
    base = ("--world", 8, "--precision", "bf16")
    one, grouped, all_ranks = plan(*base), plan(*base, "--shard-group", 2), plan(*base, "--shard-group", 8)
    check(one == all_ranks, "a sharding group of all ranks is the default")
    check(one["stages"][:-1] == grouped["stages"][:-1], "sharding groups change stages that have none")
    held = grouped["stages"][-1]["model_states"]
    check(held == 16 * 842496 / 2, f"a group of 2 of 8 ranks holds {held} bytes of tiny, expected 16P/2")
    text = " ".join(run(*base, "--shard-group", 2).stdout.split())
    check("16P/S in stage3_params" in text and "8 ranks in groups of 2" in text and "go across groups" in text, f"the text of groups: {text}")


def check_refusals():
    for arguments, word in (
        ([], "--world"),
        (["--world", "0"], "--world"),
        (["--world", "-1"], "--world"),
        (["--world", ""], "--world"),
        (["--world", "4x"], "--world"),
        *((["--world", "2", f"--{name}", ""], f"--{name} '' is not a whole number from") for name in ("layers", "heads", "width", "context", "vocab", "micro-batch", "global-batch", "wrap", "prefetch", "threads")),
        *((["--world", "2", f"--{name}="], f"--{name}") for name in ("bucket", "device-memory", "parameters", "model", "stage", "precision", "collectives")),
        (["--world", "2", "--bucket", ""], "--bucket: size '' is not a size; a size is a number of bytes or looks like"),
        (["--world", "2", "--parameters", ""], "--parameters '' is not a whole number from 1 to 1e14; 7.5e9 would do"),
        (["--world", "99999999999999999999"], "--world"),
        (["--world", "4", "--heads", "3"], "128"),
        (["--world", "3", "--micro-batch", "4", "--global-batch", "10"], "12 would do"),
        (["--world", "2", "--stage", "4"], "--stage"),
        (["--world", "2", "--stage", "2", "--accumulation", "local-first"], "whole gradients"),
        (["--world", "2", "--bucket", "0"], "--bucket"),
        (["--world", "2", "--device-memory", "lots"], "--device-memory"),
        (["--world", "2", "--width", "1000000000000", "--heads", "1"], "too large"),
        (["--world", "2", "--layers", "1000000000"], "--layers"),
        (["--world", "2", "--parameters", "1e9", "--layers", "3"], "--layers"),
        (["--world", "2", "--nonsense"], "--nonsense is not an option of plan; plan --help lists them"),
        (["--wolrd", "2", "--jsno"], "--wolrd is not an option of plan; --world is, and plan --help lists them"),
        (["--jsno", "--wolrd=2"], "--jsno is not an option of plan; --json is, and plan --help lists them"),
        (["two"], "'two' stands where an option is expected"),
        (["--world"], "--world needs a value"),
        (["--stage", "--world", "2"], "--stage needs a value"),
        (["--world", "2", "--stage", "stage4"], "the name of a program"),
        (["-n", "2", "--world", ""], "--world (-n) is given more than once"),
        (["--world", "2", "-n", "2"], "--world (-n) is given more than once"),
        (["--world", "2", "--json", "--dropout", "0", "--dropout", "0"], "--dropout is given more than once"),
        *((["--world", "2", "--dropout", value], f"--dropout '{value}' is not a number from 0 to below 1; 0.1 would do") for value in ("", "1", "-0.1", "nan", "0.1x", "0x1p-2", "1e400")),
        (["--world", "6", "--shard-group", "4"], "--shard-group 4 is neither a power of two that divides 6 ranks nor all of them"),
        (["--world", "6", "--shard-group", "4"], "; 2 would do"),
        (["--world", "6", "--shard-group", "3"], "; 2 would do"),
        (["--world", "4", "--shard-group", "8"], "; 4 would do"),
        (["--world", "4", "--shard-group", "0"], "--shard-group '0' is not a whole number from 1 up"),
        (["--world", "4", "--shard-group", "2", "--stage", "2"], "has no sharding groups; --stage 3 would do"),
        (["--world", "2", "--precision", "fp16"], "--precision 'fp16' is not known; fp32 or bf16 would do"),
        (["--world", "2", "--backend", "auto"], "--backend auto is decided where a run starts, which may be another machine; cpu or cuda would do"),
        (["--world", "2", "--backend", "gpu"], "--backend 'gpu' is not known; cpu or cuda would do"),
        (["--world", "2", "--backend="], "--backend"),
        (["--world", "2", "--backend", "cuda", "--products", "fast"], "--products 'fast' is not known; canonical or library would do"),
        (["--world", "2", "--parameters", "1e9", "--dropout", "0.1"], "--parameters plans model states and --dropout changes activations"),
        (["--world", "2", "--parameters", "1e9", "--checkpoint-activations"], "--checkpoint-activations changes activations"),
        (["--world", "2", "--host-memory", "lots"], "--host-memory"),
        (["--world", "2", "--stage", "2,9"], "--stage '9' is not known; all, baseline, 0, 1, 2, 3, offload, the name of a program or offload-2-host would do"),
        (["--world", "2", "--stage", "2,"], "--stage '' is not known"),
        (["--world", "2", "--stage", "offload", "--accumulation", "local-first"], "--accumulation local-first is not for --stage offload"),
        (["--world", "2", "--stage", "offload-2-nvme", "--delayed-update"], "--delayed-update is not for --stage offload-2-nvme; baseline or offload-2-host would do"),
        (["--world", "2", "--stage", "offload-2-host", "--shard-group", "1"], "--stage offload-2-host, which has no sharding groups"),
        (["--paper-table1", "--world", "2"], "--world has no meaning with --paper-table1"),
        (["--markdown", "--precision", "bf16", "--world", "2", "--paper-table1"], "--precision has no meaning with --paper-table1"),
    ):
        result = run(*arguments)
        sentence = result.stderr
        check(result.returncode == 2 and result.stdout == "", f"plan {arguments}: status {result.returncode}")
        check(sentence.startswith("error: ") and sentence.count("\n") == 1 and word in sentence, f"plan {arguments}: {sentence!r}")


def check_offload():
    """What a table of tiers says, and what fits under caps of both."""
    base = ("--world", 1, "--parameters", "1e12", "--precision", "bf16")
    caps = ("--device-memory", "32GB", "--host-memory", "1500GB")
    rows = {row["stage"]: row for row in plan(*base, *caps, "--stage", "all,offload")["stages"]}
    tera = lambda row: tuple(rows[row][name] / 10**12 for name in ("total", "host_total", "nvme_total"))
    for row, expected in (("offload-2-host", (2, 14, 0)), ("offload-3-host-host", (0, 16, 0)), ("offload-3-host-nvme", (0, 14, 2))):
        check(all(abs(got - want) < 0.001 for got, want in zip(tera(row), expected)), f"{row} of 1T parameters: {tera(row)} TB")
    for row, expected in (("0", 2e9), ("offload-2-host", 16e9), ("offload-3-host-host", 93.75e9)):
        check(0 <= expected - rows[row]["largest_parameters"] < 100, f"{row}: {rows[row]['largest_parameters']} parameters fit")
    check(not rows["offload-3-host"]["fits"] and rows["offload-3-nvme-nvme"]["fits"], "only files hold 1T parameters")
    text = run(*base, *caps, "--stage", "offload").stdout
    lines = text.splitlines()
    head = next(line for line in lines if line.split() == ["device", "host", "nvme", "down", "up", "read", "written"])
    row = next(line for line in lines[lines.index(head) :] if line.startswith("offload-3-nvme-host"))
    check(len(head) == len(row), f"columns of tiers: {head!r}, {row!r}")
    check("16P/N in host memory in offload-3-host-host" in " ".join(text.split()), "the formula of states in one place")
    for host in ("200kB", "3MB"):  # of a model: neither cap is passed, and one more layer passes one
        for label in OFFLOAD:
            options = ("--world", 2, "--width", 64, "--context", 64, "--micro-batch", 1, "--stage", label, "--device-memory", "16MB", "--host-memory", host)
            fitting = lambda layers: plan(*options, "--layers", layers)["stages"][0]
            largest = fitting(1)["largest_layers"]
            what = f"{largest} layers of {label} in 16 MB and {host}"
            check(largest is None or fitting(largest)["fits"], f"{what} do not fit")
            check(not fitting(0 if largest is None else largest + 1)["fits"], f"{what}: one more fits, too")


def check_largest():
    """The largest model that fits does, and the next does not; however much fits, few formulas are asked."""
    for memory in ("1MB", "20MB", "1GB", "100GB"):
        for options in (["--wrap", 1], ["--wrap", 7, "--prefetch", 3]):
            for stage in plan("--world", 3, "--device-memory", memory, *options)["stages"]:
                largest = stage["largest_layers"]
                ask = lambda layers: plan("--world", 3, "--stage", stage["stage"], "--device-memory", memory, "--layers", layers, *options)["stages"][0]["fits"]
                what = f"{largest} layers of stage {stage['stage']} in {memory} with {options}"
                check(largest is None or ask(largest), f"{what} do not fit")
                check(not ask(0 if largest is None else largest + 1), f"{what}: one more fits, too")
    for memory in ("8000000TB", "10TB"):
        rows = plan("--world", 4, "--model", "tiny", "--device-memory", memory)["stages"]
        check(all(row["largest_layers"] > 10**4 for row in rows), f"layers in {memory}")


def check_text():
    for arguments in (["--world", 4], ["--world", 64, "--model", "gpt2-xl", "--precision", "bf16", "--device-memory", "16GB", "--checkpoint-activations", "--dropout", "0.1", "--shard-group", 8], ["--paper-table1"], ["--parameters", "1e12", "--world", 1024], ["--world", 4, "--stage", "all,offload", "--host-memory", "1GB"]):
        lines = run(*arguments).stdout.splitlines()
        check(lines and max(map(len, lines)) <= 100, f"plan {arguments} has a line of more than 100 columns")
    for one, other in ((("-n", 3), ("--world", 3)), (("-n3",), ("--world=3",)), (("-n", 3, "--stage", "stage3_params"), ("-n", 3, "--stage", 3)), (("-n", 3, "--stage", "baseline"), ("-n", 3, "--stage=baseline"))):
        check(run(*one).stdout == run(*other).stdout != "", f"plan {one} is plan {other}")
    lines = run("--world", 4).stdout
    check("GPU" not in lines and "in each tier" not in lines, "plan speaks of GPUs where there are none")
    on_gpus = " ".join(run("--world", 4, "--backend", "cuda").stdout.split())
    for sentence in (
        "on GPUs with library products",
        "What it holds in each tier:",
        "baseline 101.18 0.00 0.00",
        "stage3_params 89.79 4.19 0.00",
        "33.6 MB of a rank's workspace are what cuBLAS works in",
        "with its GPU a rank holds 4.2 MB of host memory, whatever the stage",
        "stage2_gradients holds 1.6 MB of whole gradients, those of two units in a row",
    ):
        check(sentence in on_gpus, f"plan --backend cuda does not say: {sentence}")
    for arguments, absent in ((("--world", 1), ("two units in a row", "in each tier")), (("--world", 4, "--products", "canonical"), ("cuBLAS",)), (("--world", 4, "--parameters", "1e9"), ("GPU", "in each tier", "units"))):
        text = run(*arguments, "--backend", "cuda").stdout
        check(text and not any(words in text for words in absent), f"plan {arguments} --backend cuda says one of {absent}")
    check("stage 3 sends 1.50 times what stage 2 sends" in lines and "activations stay" in lines, "the sentences of plan --world 4")


def main():
    check_table_1()
    count = check_grid()
    check_bf16()
    check_groups()
    check_refusals()
    check_offload()
    check_largest()
    check_text()
    for failure in failures[:50]:
        print(f"error: {failure}", file=sys.stderr)
    if not failures:
        print(f"plan: 54 cells of table 1, and {count} settings equal the second copy of the formulas")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
