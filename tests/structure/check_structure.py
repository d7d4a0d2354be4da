#!/usr/bin/env python3
"""Checks the promises about the shape of the source: check_structure.py ROOT.

- Neighbouring trainers differ by few lines, so that the difference between two stages is the lesson.
- common/ names no stage and has no switch on one; it does not know offload; stage folders and offload do not include
  each other, name no CUDA or NCCL and have no #if; formulas include no ledger, units, trainers or storage; the layers of
  common/ include only what is below them.
"""

import difflib
import pathlib
import re
import sys

MOST_CHANGED_LINES = 110
STAGES = ["stage0_ddp", "stage1_optimizer", "stage2_gradients", "stage3_params"]
PROGRAMS = [*STAGES, "offload"]  # folders with a trainer and a formula of their own
# What each layer of common/ may include besides itself.
BELOW = {
    "base": set(),
    "device": {"base"},
    "comm": {"base", "device"},
    "shard": {"base", "device"},
    "data": {"base"},
    "storage": {"base", "device"},
    "optim": {"base", "device", "shard", "comm"},
    "model": {"base", "device", "shard"},
    "formula": {"base"},
    "train": {"base", "device", "shard", "comm", "data", "optim", "model", "formula"},
}

root = pathlib.Path(sys.argv[1])
faults = []


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def changed(a, b):
    return sum(1 for line in difflib.unified_diff(lines(a), lines(b), n=0) if re.match(r"[+-](?!\+\+ |-- )", line))


for before, after in zip(STAGES, STAGES[1:]):
    count = sum(changed(root / before / name, root / after / name) for name in ("trainer.h", "trainer.cpp"))
    print(f"{before} to {after}: {count} lines added and deleted, at most {MOST_CHANGED_LINES}")
    if count > MOST_CHANGED_LINES:
        faults.append(f"{before} and {after} differ by {count} lines")

for path in sorted((root / "common").rglob("*")):
    if path.suffix not in (".h", ".cpp", ".cu"):
        continue
    layer = path.relative_to(root / "common").parts[0]
    for number, line in enumerate(lines(path), 1):
        where = f"{path.relative_to(root)}:{number}"
        if re.search(r"\bstages? *[0-9]|stage[0-9]_", line, re.IGNORECASE) and layer != "formula":
            faults.append(f"{where}: common/ names a stage: {line.strip()}")
        if re.match(r'#include "offload/', line):
            faults.append(f"{where}: common/ includes offload: {line}")
        included = re.match(r'#include "common/(\w+)/', line)
        if included and included.group(1) != layer and included.group(1) not in BELOW[layer]:
            faults.append(f"{where}: {layer} includes {included.group(1)}, which is not below it")

for program in PROGRAMS:
    for path in sorted((root / program).glob("*.[hc]*")):
        for number, line in enumerate(lines(path), 1):
            included = re.match(r'#include "(stage\w+|offload)/', line)
            if included and included.group(1) != program:
                faults.append(f"{path.relative_to(root)}:{number}: {program} includes {included.group(1)}: {line}")
            if re.search(r"cuda|nccl|^ *# *if", line, re.IGNORECASE):
                faults.append(f"{path.relative_to(root)}:{number}: {program} names a backend or has an #if: {line}")

for path in [*(root / "common/formula").glob("*"), *(p for s in PROGRAMS for p in (root / s).glob("formula.*"))]:
    for number, line in enumerate(lines(path), 1):
        included = re.match(r'#include "(.*)"', line)
        if included and not re.match(r"common/(formula/|base/types\.h)|(stage\w+|offload)/formula\.h", included.group(1)):
            faults.append(f"{path.relative_to(root)}:{number}: a formula includes {included.group(1)}")

for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
