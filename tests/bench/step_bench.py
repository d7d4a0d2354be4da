"""A training step on two ranks, as ratios of times measured in turn:

  step/SHAPE/library_over_torch, canonical_over_torch   stage 0 with either kind of products over PyTorch's DDP
  step/SHAPE/stage3_over_stage0                         both with canonical products
  step/SHAPE/canonical_over_native_collectives          stage 0, MPI's own collectives against those in our order

Each alternative runs once in each round, on the same two cores, a rank on each; a run's time is the median of its steps
after two to warm up, a round has a ratio, and the median over rounds is printed. Without PyTorch (Debian's
python3-torch) its ratios are left out, and a line says so.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from programs import SHAPES, SOURCE, Broken, median, note, print_ratio, run_program

RANKS = 2
WARM_UP = 2  # the first step touches memory for the first time; DDP arranges its buckets after it


@dataclass(frozen=True)
class Case:
    layers: int
    heads: int
    width: int
    context: int
    vocab: int
    micro_batch: int
    library_bar: float  # of the time of PyTorch's step
    steps: int
    rounds: int
    foreach: bool  # what is faster for PyTorch in this shape


CASES = {
    "tiny": Case(4, 4, 128, 128, 256, 8, library_bar=0.72, steps=32, rounds=5, foreach=True),
    "small": Case(6, 6, 384, 256, 256, 4, library_bar=0.85, steps=8, rounds=5, foreach=False),
    "gpt2": Case(12, 12, 768, 256, 50257, 1, library_bar=0.78, steps=6, rounds=3, foreach=False),
}


def interpreter_with_torch():
    """This one, or the system's: PyTorch comes from a Debian package, which another Python does not see."""
    for python in dict.fromkeys([sys.executable, "/usr/bin/python3"]):
        found = subprocess.run([python, "-c", "import torch, numpy"], capture_output=True, check=False)
        if found.returncode == 0:
            return python
    return None


def torch_environment():
    """PyTorch tuned for this: it picks AVX2 code where AVX-512 is faster, and its allocator gives memory back to the
    system after each use unless told not to."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        flags = ""
    if "avx512f" in flags and "avx512vl" in flags:
        environment["ATEN_CPU_CAPABILITY"] = "avx512"
    environment.update(
        MALLOC_MMAP_THRESHOLD_=str(4 << 30), MALLOC_TRIM_THRESHOLD_=str(8 << 30), MALLOC_TOP_PAD_=str(64 << 20)
    )
    return environment


def torch_steps(python, case, steps, ranks=RANKS, autocast=False):
    """Seconds of each step of DDP, each process pinned to one core as mpirun pins ours."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(ranks):
            core = cores[rank % len(cores)]
            command = [python, str(Path(__file__).with_name("torch_ddp.py")), "--rank", str(rank)]
            command += ["--world", str(ranks), "--rendezvous", f"{folder}/rendezvous", "--steps", str(steps)]
            command += ["--data", str(SOURCE / "docs/corpus.txt")] + (["--foreach"] if case.foreach else [])
            command += ["--autocast"] if autocast else []
            for name in ["layers", "heads", "width", "context", "vocab", "micro_batch"]:
                command += ["--" + name.replace("_", "-"), str(getattr(case, name))]
            command = ["taskset", "-c", str(core)] + command
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            processes.append(subprocess.Popen(command, env=torch_environment(), **pipes))
        try:
            outputs = [process.communicate(timeout=900) for process in processes]
        finally:
            for process in processes:
                process.kill()
        for process, (_, errors) in zip(processes, outputs):
            if process.returncode != 0:
                raise Broken(f"torch_ddp.py: status {process.returncode}: {errors.strip()[-500:]}")
    return json.loads(outputs[0][0])["seconds"]


def has_library_products(build):
    try:
        run_program(build, "stage0_ddp", 1, ["--steps", "1", "--micro-batch", "1", "--products", "library"])
    except Broken as error:
        if "library" not in str(error):
            raise
        return False
    return True


def measure(build, name, case, python, library, quick):
    steps, rounds = (4, 1) if quick else (case.steps, case.rounds)

    def ours(program, *options):
        options = SHAPES[name] + ["--steps", str(steps), *options]
        return lambda: run_program(build, program, RANKS, options)["seconds"]["total"]

    ways = {"canonical": ours("stage0_ddp")}
    if library:
        ways["library"] = ours("stage0_ddp", "--products", "library")
    if python:
        ways["torch"] = lambda: torch_steps(python, case, steps)
    ways["stage3"] = ours("stage3_params")
    ways["native"] = ours("stage0_ddp", "--collectives", "native")

    times = {way: [] for way in ways}
    fastest = dict.fromkeys(ways, float("inf"))  # what a machine that is not idle disturbs least
    for _ in range(rounds):
        for way, run in ways.items():
            steps_seconds = run()[WARM_UP:]
            times[way].append(median(steps_seconds))
            fastest[way] = min(fastest[way], *steps_seconds)
    shown = [f"{way} {1e3 * median(t):.1f} ({1e3 * fastest[way]:.1f})" for way, t in times.items()]
    note(f"{name}, ms a step (the fastest): " + ", ".join(shown))

    def ratio(what, way, other, bar):
        if way in times and other in times:
            rounds_ratios = [a / b for a, b in zip(times[way], times[other])]
            print_ratio(f"step/{name}/{what}", median(rounds_ratios), bar)

    ratio("library_over_torch", "library", "torch", case.library_bar)
    ratio("canonical_over_torch", "canonical", "torch", 1.0)
    ratio("stage3_over_stage0", "stage3", "canonical", 1.1)
    ratio("canonical_over_native_collectives", "canonical", "native", 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--quick", action="store_true", help="the smallest shape only, one round")
    parser.add_argument("--shapes", default=",".join(CASES), help="some of %(default)s")
    options = parser.parse_args()
    python = interpreter_with_torch()
    if not python:
        note("step: nothing is compared with PyTorch, which is not installed (Debian: apt-get install python3-torch)")
    library = has_library_products(options.build)
    if not library:
        note("step: library products were not built (oneDNN was not found), so none are measured")
    try:
        for name in ["tiny"] if options.quick else options.shapes.split(","):
            measure(options.build, name, CASES[name], python, library, options.quick)
    except (Broken, subprocess.TimeoutExpired) as error:
        note(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
