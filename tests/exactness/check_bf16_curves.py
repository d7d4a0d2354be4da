#!/usr/bin/env python3
"""Trains `tiny` on real text in fp32 and in bf16: after 200 steps the losses must agree within 0.02 nats, at the last
step and in the mean of the last ten. check_bf16_curves.py BASELINE TEXT (of which the first 100 KB are used)."""

import json
import pathlib
import subprocess
import sys
import tempfile

STEPS, BAR, LEARNED = 200, 0.02, 2.8
program, text = sys.argv[1], pathlib.Path(sys.argv[2])

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    sample = folder / "text.txt"
    sample.write_bytes(text.read_bytes()[:100_000])
    line = [program, "--model", "tiny", "--data", str(sample), "--steps", str(STEPS), "--micro-batch", "4"]
    runs = {
        precision: subprocess.Popen(
            [*line, "--precision", precision, "--out", str(folder / precision)], stdout=subprocess.DEVNULL
        )
        for precision in ("fp32", "bf16")
    }
    failed = [precision for precision, run in runs.items() if run.wait() != 0]  # waits for both
    if failed:
        sys.exit(f"error: the run in {failed[0]} failed")
    fp32, bf16 = (json.loads((folder / precision / "summary.json").read_text())["losses"] for precision in runs)

differences = [b - a for a, b in zip(fp32, bf16)]
last, mean = differences[-1], sum(differences[-10:]) / 10
farthest = max(range(STEPS), key=lambda step: abs(differences[step]))
print(f"step {STEPS}: fp32 {fp32[-1]:.4f}, bf16 {bf16[-1]:.4f}, difference {last:+.4f}")
print(f"mean difference of the last ten steps {mean:+.4f}")
print(f"largest difference {differences[farthest]:+.4f}, at step {farthest + 1}, where fp32 is at {fp32[farthest]:.4f}")
if fp32 == bf16:
    sys.exit("error: the two curves are the same: bf16 was not used")
if not sum(fp32[-10:]) / 10 < LEARNED:
    sys.exit(f"error: fp32 has not come below {LEARNED} nats, so the curves say little")
for what, difference in (("at the last step", last), ("in the mean of the last ten", mean)):
    if not abs(difference) <= BAR:  # also when it is no number
        sys.exit(f"error: {what} bf16 is {difference:+.4f} nats from fp32, more than {BAR}")
