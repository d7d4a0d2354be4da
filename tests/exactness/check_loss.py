#!/usr/bin/env python3
"""Trains every program on 100 KB of real text: the loss must fall below 2.6 nats per byte within 200 steps, and all
programs must end with the same digests. check_loss.py BIN RUN TEXT; status 77 when TEXT is not there."""

import json
import pathlib
import subprocess
import sys
import tempfile

STEPS, BAR = 200, 2.6
binaries, run, text = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
if not text.is_file():
    print(f"skipped: {text} is not there")
    sys.exit(77)

with tempfile.TemporaryDirectory() as folder:
    sample = pathlib.Path(folder) / "text.txt"
    sample.write_bytes(text.read_bytes()[:100_000])
    digests = set()
    for program in ("baseline", "stage0_ddp", "stage1_optimizer", "stage2_gradients", "stage3_params"):
        start = ["--as-world", "2"] if program == "baseline" else []
        line = [str(binaries / program), *start, "--data", str(sample), "--steps", str(STEPS), "--micro-batch", "4",
                "--out", folder]
        if program != "baseline":
            line = [run, "-n", "2", *line]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((pathlib.Path(folder) / "summary.json").read_text())
        lowest = min(summary["losses"])
        reached = next((t for t, loss in enumerate(summary["losses"], 1) if loss < BAR), None)
        print(f"{program:17} lowest loss {lowest:.4f}, below {BAR} at step {reached}, last {summary['losses'][-1]:.4f}")
        if reached is None:
            sys.exit(f"{program}: the loss did not fall below {BAR} in {STEPS} steps")
        digests.add(json.dumps(summary["digest"], sort_keys=True))
    if len(digests) != 1:
        sys.exit("the programs do not end with the same digests")
