#!/usr/bin/env python3
"""check_largest.py COMPARE: the largest models that real programs train under caps are those of the formulas."""

import json
import os
import subprocess
import sys
import tempfile

COMPARE = os.path.abspath(sys.argv[1])
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def largest(folder, ranks, *arguments):
    """The rows of compare --largest, by program; all within one layer of the formula, and none ended by nothing."""
    out = os.path.join(folder, "largest.json")
    command = [COMPARE, "--largest", "-n", str(ranks), "--json", out, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        print(f"error: {' '.join(command)} ended with {result.returncode}:\n{result.stdout}{result.stderr}", file=sys.stderr)
        sys.exit(1)
    check(max(map(len, result.stdout.splitlines())) <= 100, "a line of more than 100 columns")
    with open(out, encoding="utf-8") as file:
        rows = {row["program"]: row for row in json.load(file)["programs"]}
    for name, row in rows.items():
        what = f"{name} on {ranks} ranks with {' '.join(arguments)}: {row}"
        check(abs(row["layers"]["measured"] - row["layers"]["formula"]) <= 1 and row["layers"]["measured"] > (-1 if row["program"] == "baseline" else 1), what)
        check(row["ended_by"] in ("device", "host"), what)
    return rows


def main():
    with tempfile.TemporaryDirectory() as folder:
        files = ["--nvme-path", folder]
        rows = largest(folder, 2, "--device-memory", "9MiB", "--host-memory", "2MiB", *files)
        check(len(rows) == 10, f"rows: {list(rows)}")
        layers = {name: row["layers"]["measured"] for name, row in rows.items()}
        stages = [layers[name] for name in ("stage0_ddp", "stage1_optimizer", "stage2_gradients", "stage3_params", "offload-2-nvme", "offload-3-nvme-nvme")]
        check(stages == sorted(stages) and stages[0] < stages[-1], f"what leaves the device makes room: {layers}")
        check(rows["offload-3-host-host"]["ended_by"] == "host" and rows["offload-3-nvme-nvme"]["ended_by"] == "device", f"which cap ends it: {rows}")

        # A model whose states are more than 8 times the device's memory, and in files of all memory.
        cap = 3 * 2**20
        alone = ["--checkpoint-activations", "--device-memory", str(cap)]
        states = lambda rows, name: rows[name]["model_states"]
        rows = largest(folder, 1, *alone, "--programs", "baseline,offload-3-host-host")
        check(states(rows, "offload-3-host-host") > 8 * cap and states(rows, "baseline") < cap, f"host memory: {rows}")
        rows = largest(folder, 1, *alone, "--host-memory", str(cap), *files, "--programs", "offload-3-nvme-nvme")
        check(states(rows, "offload-3-nvme-nvme") > 8 * cap, f"files: {rows}")
        check(os.listdir(folder) == ["largest.json"], f"left behind: {os.listdir(folder)}")
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
