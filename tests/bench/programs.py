"""What the benches in Python share: runs of our programs, and the line that run_bench.py collects."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

# Shapes as options of our programs: the presets, and gpt2 cut to what two ranks of a small machine hold.
SHAPES = {
    "tiny": ["--model", "tiny"],
    "small": ["--model", "small"],
    "gpt2": ["--model", "gpt2", "--context", "256", "--micro-batch", "1"],
}


class Broken(Exception):
    """A program that should have run did not; the message says which and why."""


def run_program(build, program, ranks, options):
    """The summary.json of a run under tools/run, which binds each rank to a core."""
    with tempfile.TemporaryDirectory() as out:
        command = [str(SOURCE / "tools/run"), "-n", str(ranks), str(Path(build) / "bin" / program)]
        done = subprocess.run(command + options + ["--out", out], capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            raise Broken(f"{program} {' '.join(options)}: status {done.returncode}: {done.stderr.strip()[-500:]}")
        return json.loads((Path(out) / "summary.json").read_text())


def note(text):
    """For the reader, beside the lines that are collected."""
    print(text, file=sys.stderr, flush=True)


def print_ratio(name, value, bar, better="lower"):
    """One ratio."""
    print(json.dumps({"name": name, "value": round(value, 4), "bar": bar, "better": better}), flush=True)


def load():
    """Processes that want a core, on average over the last minute."""
    return os.getloadavg()[0]


def median(values):
    return statistics.median(values)
