"""Runs the benches, prints a table of their ratios, and writes bench.json into the build folder.

    cmake --build build --target bench                            all of them
    python3 tests/bench/run_bench.py --build build --only adamw   some, after cmake --build build --target bench_programs

A missed bar is reported and no failure: times depend on the machine. The status is 1 when a bench breaks. A bench prints
one line of JSON for each ratio, {"name", "value", "bar", "better"}, on standard output, and what else it has to say on
standard error. bench.json is {"ratios": [those]}; a run of some benches, or a quick one, writes bench-partial.json
instead, so that bench.json always holds ratios of one whole run.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from programs import SOURCE, load, note


@dataclass(frozen=True)
class Bench:
    name: str
    command: list
    seconds: int  # about, on two idle cores
    quick_seconds: int


def benches(build):
    run = str(SOURCE / "tools/run")
    here = Path(__file__).resolve().parent
    comm = str(build / "bin/comm_bench")
    return [
        Bench("products", [str(build / "bin/products_bench")], 40, 4),
        Bench("adamw", [str(build / "bin/adamw_bench")], 5, 1),
        Bench("comm2", [run, "-n", "2", comm], 5, 2),
        Bench("comm4", [run, "-n", "4", comm], 10, 4),
        Bench("memory", [sys.executable, str(here / "memory_bench.py"), "--build", str(build)], 40, 10),
        Bench("host_adamw", [str(build / "bin/host_adamw_bench")], 20, 3),
        Bench("offload", [sys.executable, str(here / "offload_bench.py"), "--build", str(build)], 90, 15),
        Bench("precision", [sys.executable, str(here / "precision_bench.py"), "--build", str(build)], 120, 10),
        Bench("step", [sys.executable, str(here / "step_bench.py"), "--build", str(build)], 660, 15),
    ]


def run_one(bench, quick):
    """Its ratios; raises ValueError or CalledProcessError when it breaks."""
    command = bench.command + (["--quick"] if quick else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    ratios = [json.loads(line) for line in done.stdout.splitlines()]
    for ratio in ratios:
        if sorted(ratio) != ["bar", "better", "name", "value"] or ratio["better"] not in ("lower", "higher"):
            raise ValueError(f"not a ratio: {ratio}")
    if not ratios:
        raise ValueError("it printed no ratio")
    return ratios


def passes(ratio):
    if ratio["better"] == "lower":
        return ratio["value"] <= ratio["bar"]
    return ratio["value"] >= ratio["bar"]


def table(ratios):
    width = max(len(ratio["name"]) for ratio in ratios)
    lines = [f"{'ratio':<{width}}  {'value':>7}  {'bar':>15}  result"]
    for ratio in ratios:
        bar = f"at {'most' if ratio['better'] == 'lower' else 'least'} {ratio['bar']:.2f}"
        result = "pass" if passes(ratio) else "MISS"
        lines.append(f"{ratio['name']:<{width}}  {ratio['value']:>7.3f}  {bar:>15}  {result}")
    missed = sum(not passes(ratio) for ratio in ratios)
    return "\n".join(lines) + f"\n{len(ratios)} ratios, {missed} missed"


def machine():
    """What the figures hold for."""
    model = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB"


def write(path, ratios):
    """Whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"ratios": ratios}, indent=1) + "\n")
    os.replace(part, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=SOURCE / "build", help="the build folder (default: build)")
    parser.add_argument("--only", metavar="NAME,...",
                        help="some of products, adamw, comm2, comm4, memory, host_adamw, offload, step")
    parser.add_argument("--quick", action="store_true", help="small shapes, few rounds: to see that all of it works")
    options = parser.parse_args()
    chosen = benches(options.build.resolve())
    if options.only:
        names = options.only.split(",")
        unknown = [name for name in names if name not in {bench.name for bench in chosen}]
        if unknown:
            parser.error(f"--only {unknown[0]}: there is no such bench; {', '.join(b.name for b in chosen)} are there")
        chosen = [bench for bench in chosen if bench.name in names]

    def about(bench):
        return bench.quick_seconds if options.quick else bench.seconds

    note(f"machine: {machine()}; load {load():.1f}; about {sum(map(about, chosen))} s on two idle cores")
    if load() > 0.5:
        note("the machine is not idle: ratios of what runs on both cores (comm, step) will be off")
    ratios, broken = [], []
    for i, bench in enumerate(chosen, start=1):
        note(f"[{i}/{len(chosen)}] {bench.name}, about {about(bench)} s")
        begin = time.monotonic()
        try:
            ratios += run_one(bench, options.quick)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            note(f"error: bench {bench.name}: {error}")
            broken.append(bench.name)
        note(f"[{i}/{len(chosen)}] {bench.name} took {time.monotonic() - begin:.0f} s; load now {load():.1f}")

    if ratios:
        print(table(ratios))
    if broken:
        note(f"error: {', '.join(broken)} broke, so no file was written")
        return 1
    path = options.build / ("bench-partial.json" if options.only or options.quick else "bench.json")
    write(path, ratios)
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
