#!/usr/bin/env python3
"""Compiles the CUDA sources with the real nvcc for every target, and their C++ sources with the C++ compiler and the
real headers; warnings are errors.

    compile_gate.py --nvcc=NVCC --include=FOLDER;... --host-compiler=CXX --flags=F;... --targets=75;... --root=ROOT
                    --out=FOLDER SOURCE...

Leaves the PTX of each kernel source in FOLDER: NAME.sm_75.ptx ..., and NAME.unfused.ptx, which was compiled without the
fma that the source writes (unfused.h). Status 77 without nvcc, 1 when a source does not compile.
"""
import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path


def run(command):
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if process.returncode != 0:
        print(" ".join(command), process.stdout, sep="\n")
    return process.returncode == 0


def compile_source(source, arguments, common, scratch):
    """Whether the source compiles; its PTX ends in the folder."""
    if source.suffix != ".cu":
        return run([arguments.host_compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                    f"-I{arguments.root}", *(f"-isystem{folder}" for folder in arguments.include.split(";")),
                    str(source)])
    targets = arguments.targets.split(";")
    code = [f"-gencode=arch=compute_{t},code=sm_{t}" for t in targets]
    if not run([*common, *code, "--keep", f"--keep-dir={scratch}", "-c", str(source), "-o", str(scratch / "object.o")]):
        return False
    for target in targets:
        shutil.copy(scratch / f"{source.stem}.compute_{target}.ptx", arguments.out / f"{source.stem}.sm_{target}.ptx")
    unfused = Path(__file__).with_name("unfused.h")
    return run([*common, f"-include={unfused}", f"-arch=compute_{targets[-1]}", "-ptx", str(source), "-o",
                str(arguments.out / f"{source.stem}.unfused.ptx")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("nvcc", "include", "host-compiler", "flags", "targets"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("sources", type=Path, nargs="+")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    if not arguments.nvcc or arguments.nvcc.endswith("NOTFOUND") or not os.access(arguments.nvcc, os.X_OK):
        print("skipped: nvcc was not found, so the CUDA sources were compiled by the C++ compiler alone")
        return 77
    common = [arguments.nvcc, f"-ccbin={arguments.host_compiler}", "-std=c++20", *arguments.flags.split(";"), f"-I{arguments.root}"]
    failed = 0
    for source in arguments.sources:
        start = time.monotonic()
        scratch = arguments.out / f"{source.stem}.scratch"
        scratch.mkdir()
        done = compile_source(source, arguments, common, scratch)
        shutil.rmtree(scratch)
        failed += not done
        with_nvcc = source.suffix == ".cu"
        made = f"compiles for sm_{arguments.targets}" if with_nvcc else "compiles with the real headers"
        print(f"{source.name}: {made if done else 'FAILED'}, "
              f"{time.monotonic() - start:.1f} s", flush=True)
    print(f"{len(arguments.sources) - failed} of {len(arguments.sources)} sources compile without a warning")
    return 1 if failed else 0


sys.exit(main())
