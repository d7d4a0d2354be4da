#!/usr/bin/env python3
"""Plants the fault of a missing wait for an event: for every such wait of a stage on pretended GPUs, one after the other,
and expects it to show in some order that the remaining events allow. check_waits.py RUN IGNORED_WAIT CASE"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

run, program, case = sys.argv[1:]
GRADIENTS, PARAMETERS = 3, 4
DEVICE, HOST = 0, 1
FREED = "before it ended: it uses device memory that was freed"

# Stage, where optimizer and parameters are, steps, micro-steps; and how many waits may be missed, since what another one
# waits for comes later: forks of the communication queue after which nothing new was computed (unit after unit when
# parameters are published, the scan behind a reduce-scatter).
CASES = {
    "stage2": ((GRADIENTS, DEVICE, DEVICE, 2, 1), 6),
    "stage3": ((PARAMETERS, DEVICE, DEVICE, 1, 2), 0),
    "offload_stage3": ((PARAMETERS, HOST, HOST, 1, 1), 5),
}
ORDERS = [("lazy", 0), ("eager_others", 0), *(("shuffled", seed) for seed in range(4))]


def job(wait, schedule, seed):
    """Status and output of a job in which that wait is ignored."""
    setting = [str(value) for value in CASES[case][0]]
    environment = {**os.environ, "CUDA_ON_HOST_SCHEDULE": schedule, "CUDA_ON_HOST_SEED": str(seed)}
    done = subprocess.run([run, "-n", "2", program, *setting, str(wait)], capture_output=True, text=True, env=environment,
                          timeout=100, check=False)
    assert done.returncode in (0, 3), (wait, schedule, seed, done.returncode, done.stdout, done.stderr)
    return done.returncode, done.stdout


def shows(wait):
    """What the missing wait leads to, or None."""
    for schedule, seed in ORDERS:
        status, text = job(wait, schedule, seed)
        if status == 3:
            said = [line for line in text.splitlines() if line.startswith("caught: ")]
            return f"{schedule}: {said[0] if said else 'caught'}"  # a rank that ends the job may not be heard
    return None


status, text = job(-1, "lazy", 0)
assert status == 0, text
waits = int(text.split()[-1])
with ThreadPoolExecutor(2) as two:
    found = list(two.map(shows, range(waits)))
for number, what in enumerate(found):
    print(f"without wait {number}: {what}")
missed = found.count(None)
print(f"{waits - missed} of {waits} missing waits show")
assert waits > 0 and missed <= CASES[case][1], missed
if case == "stage3":
    assert any(FREED in what for what in found), "a gradient freed before its reduce-scatter ended is not among them"
