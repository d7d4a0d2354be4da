"""What offload costs, on one rank:

  offload/sweep_TYPE_over_fio        bytes a second of the optimizer's sweep over a swap file (sweep_bench: each chunk
                                     read, updated, written back), over those of fio with the same system calls, blocks
                                     of 1 MiB, the depth that the swap file may have, the same shares of reads and
                                     writes, on the same file system
  offload/nvme_step_over_host_step   a step with everything in storage over one with everything in host memory. The bar
                                     is what the bandwidths predict, over 0.85: passes and sweep each take as long as
                                     they do with host memory, or as fio would take for the bytes moved beside them,
                                     whichever is longer
  offload/delayed_exposed            time that a step waits for AdamW with --delayed-update, over without. Here the
                                     program runs without tools/run, which would bind both of its threads to one core;
                                     with one core it is left out, and a line says so

Alternatives take turns and each round has its own ratio; the median over rounds is printed. Without fio (Debian: fio) the
ratios that need it are left out, and a line says so. Swap files are made in the build folder unless --directory names
another place.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import SHAPES, Broken, median, note, print_ratio, run_program

DEPTH = 16  # offload/settings.h: kSwapDepth
MIB = 1 << 20


class Sweeps:
    """sweep_bench with states of some size, ready to sweep."""

    def __init__(self, build, directory, mib, dtype):
        line = [str(Path(build) / "bin/sweep_bench"), str(directory), str(mib), dtype]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.description = self.process.stdout.readline().strip()
        if not self.description:
            raise Broken(f"{line}: status {self.process.wait()}")

    def sweep(self):
        """(seconds, bytes read, bytes written)."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 3:
            raise Broken(f"sweep_bench: status {self.process.wait()}")
        return float(answer[0]), int(answer[1]), int(answer[2])

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def fio(directory, description, mib, read, written):
    """Bytes a second of `read` and `written` bytes on a file of `mib` MiB in the directory."""
    engine = "io_uring" if description.startswith("io_uring") else "psync"
    direct = int("O_DIRECT" in description.split("(")[0])
    line = ["fio", "--name=sweep", f"--filename={directory}/fio.dat", f"--size={mib}M", "--rw=rw", "--bs=1M",
            f"--rwmixread={round(100 * read / (read + written))}", f"--iodepth={DEPTH}", f"--ioengine={engine}",
            f"--direct={direct}", f"--io_size={read + written}", "--output-format=json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode != 0:
        raise Broken(f"{line}: status {done.returncode}: {done.stderr.strip()[-500:]}")
    job = json.loads(done.stdout)["jobs"][0]
    milliseconds = max(job["read"]["runtime"], job["write"]["runtime"])
    return 1e3 * (job["read"]["io_bytes"] + job["write"]["io_bytes"]) / milliseconds


def measure_sweep(build, directory, dtype, quick):
    """Prints the ratio and returns fio's rate, if there is fio."""
    mib = 128 if quick else 512
    sweeps = Sweeps(build, directory, mib, dtype)
    has_fio = shutil.which("fio") is not None
    ours, theirs = [], []
    try:
        sweeps.sweep()  # to warm up
        for _ in range(3 if quick else 7):
            seconds, read, written = sweeps.sweep()
            ours.append((read + written) / seconds)
            if has_fio:
                theirs.append(fio(directory, sweeps.description, mib, read, written))
    finally:
        sweeps.end()
        (Path(directory) / "fio.dat").unlink(missing_ok=True)
    shown = f"fio {median(theirs) / 1e9:.2f}" if has_fio else "no fio here, so no ratio (Debian: apt-get install fio)"
    note(f"sweep of {mib} MiB of states in {dtype} by {sweeps.description}, GB/s: {median(ours) / 1e9:.2f}; {shown}")
    if not has_fio:
        return None
    print_ratio(f"offload/sweep_{dtype}_over_fio", median([a / b for a, b in zip(ours, theirs)]), 0.85, "higher")
    return median(theirs)


def shape(quick):
    return SHAPES["tiny" if quick else "small"] + ["--precision", "bf16"]


def steady(summary, what, skip_last=0):
    """The median over the steps after two to warm up."""
    values = summary["seconds"][what]
    return median(values[2:len(values) - skip_last])


def measure_step(build, directory, rate, quick):
    options = shape(quick) + ["--steps", "6"]
    nvme = ["--offload-optimizer", "nvme", "--offload-params", "nvme", "--nvme-path", str(directory)]
    ratios, predictions = [], []
    for _ in range(1 if quick else 3):
        host = run_program(build, "offload", 1, options + ["--offload-params", "host"])
        disk = run_program(build, "offload", 1, options + nvme)
        held = {name: c["peak"] for name, c in disk["memory"]["ranks"][0]["tiers"]["nvme"]["categories"].items()}
        moved = {way: bytes["moved"] for way, bytes in disk["offload"]["ranks"][0].items() if way != "rank"}
        sweep = 2 * held["optimizer"] + held["gradients"] + held["parameters"]
        beside_passes = moved["read"] + moved["written"] - sweep
        total, update = steady(host, "total"), steady(host, "optimizer")
        predicted = max(total - update, beside_passes / rate) + max(update, sweep / rate)
        ratios.append(steady(disk, "total") / total)
        predictions.append(predicted / total)
        note(
            f"a step, ms: host {1e3 * total:.1f} (AdamW {1e3 * update:.1f}), nvme {1e3 * steady(disk, 'total'):.1f} "
            f"(sweep {1e3 * steady(disk, 'optimizer'):.1f}), predicted {1e3 * predicted:.1f}: "
            f"{(moved['read'] + moved['written']) / 1e6:.1f} MB at {rate / 1e9:.2f} GB/s"
        )
    print_ratio("offload/nvme_step_over_host_step", median(ratios), round(median(predictions) / 0.85, 3))


def run_unbound(build, options):
    """The summary of the program on one rank that may use every core."""
    with tempfile.TemporaryDirectory() as out:
        line = [str(Path(build) / "bin/offload"), *options, "--out", out]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode != 0:
            raise Broken(f"{line}: status {done.returncode}: {done.stderr.strip()[-500:]}")
        return json.loads((Path(out) / "summary.json").read_text())


def measure_delay(build, quick):
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        note("delayed update: one core has nothing to spare for AdamW, so it is not measured")
        return
    options = shape(quick) + ["--steps", "8"]
    ratios = []
    for _ in range(1 if quick else 3):
        at_once = run_unbound(build, options)
        late = run_unbound(build, options + ["--delayed-update", "--delay-after", "1"])
        # The last step applies its own gradient at once, too.
        exposed = [steady(at_once, "optimizer"), steady(late, "optimizer", skip_last=1)]
        totals = [steady(at_once, "total"), steady(late, "total", skip_last=1)]
        ratios.append(exposed[1] / exposed[0])
        note(
            f"delayed update, {cores} cores, ms: waits for AdamW {1e3 * exposed[0]:.2f}, delayed {1e3 * exposed[1]:.2f}; "
            f"a step {1e3 * totals[0]:.1f}, delayed {1e3 * totals[1]:.1f}"
        )
    print_ratio("offload/delayed_exposed", median(ratios), 0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--directory", help="where swap files are made (default: a folder in the build folder)")
    parser.add_argument("--quick", action="store_true", help="small states and models, few rounds")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(dir=options.directory or options.build) as directory:
            rates = [measure_sweep(options.build, directory, dtype, options.quick) for dtype in ("fp32", "bf16")]
            if rates[1]:
                measure_step(options.build, directory, rates[1], options.quick)
        measure_delay(options.build, options.quick)
    except (Broken, OSError, subprocess.TimeoutExpired) as error:
        note(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
