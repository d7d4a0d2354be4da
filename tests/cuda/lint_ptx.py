#!/usr/bin/env python3
"""Checks that nvcc kept the arithmetic contract: lint_ptx.py FOLDER (of compile_gate.py), or lint_ptx.py --planted.

- No fma that the source did not write: a source from which every fma was taken out (NAME.unfused.ptx) gives none, and
  elsewhere only fma.rn.f32 is found, which is the one the source writes.
- Nothing approximate: no .approx, .full or .ftz. All arithmetic says that it is rounded to nearest (.rn): where an add
  or mul says nothing, the assembler behind PTX may make an fma of two.
- No floating-point atomics (atom, red): their order of additions would be the hardware's.

Status 1 for faults, 77 when the folder holds no PTX because there is no nvcc. --planted: checks the checks.
"""
import re
import sys
from pathlib import Path

INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.]*(?:::\w+[\w.]*)*)")
ARITHMETIC = ("add", "sub", "mul", "mad", "fma", "div", "sqrt", "rcp")
FLOATING = r"\.(?:f16|f16x2|bf16|bf16x2|f32|f64)\b"


def faults_of(text, unfused):
    """(what is wrong, the line) for each fault, and the counts of kernels and of fma."""
    faults, kernels, fmas = [], 0, 0
    for line in text.split("\n"):
        kernels += ".entry" in line
        found = INSTRUCTION.match(line)
        if not found or line.lstrip().startswith("//"):
            continue
        instruction = found[1]
        name = instruction.split(".")[0]
        fused = name == "fma" or (name == "mad" and re.search(FLOATING, instruction))
        fmas += bool(fused)
        if fused and unfused:
            faults.append(("an fma that the source did not write", line))
        elif fused and instruction != "fma.rn.f32":
            faults.append(("another fma than that of the source", line))
        if re.search(r"\.(approx|full|ftz)\b", instruction):
            faults.append(("approximate arithmetic", line))
        if name in ("atom", "red") and re.search(FLOATING, instruction):
            faults.append(("a floating-point atomic", line))
        if name in ARITHMETIC and re.search(FLOATING, instruction) and ".rn." not in instruction:
            faults.append(("not said to be rounded to nearest", line))
    return faults, kernels, fmas


def lint(folder):
    files = sorted(folder.glob("*.ptx"))
    if not files:
        print("skipped: there is no PTX, since nvcc was not found")
        return 77
    wrong, kernels, fmas = 0, 0, 0
    for file in files:
        faults, of_file, fused = faults_of(file.read_text(), ".unfused." in file.name)
        if of_file == 0:
            faults.append(("no kernel", file.name))
        kernels += of_file
        fmas += fused
        wrong += len(faults)
        for what, line in faults:
            print(f"{file.name}: {what}: {line.strip()}")
    if fmas == 0:
        print("no fma at all: products have them, so these files are not what they should be")
        wrong += 1
    print(f"{len(files)} files, {kernels} kernels, {fmas} fma of the source, {wrong} faults")
    return 1 if wrong else 0


PLANTED = [
    ("fma.rn.f32 \t%f1, %f2, %f3, %f4;", True, "an fma that the source did not write"),
    ("@%p1 fma.rn.f32 \t%f1, %f2, %f3, %f4;", True, "an fma that the source did not write"),
    ("mad.rn.f32 \t%f1, %f2, %f3, %f4;", True, "an fma that the source did not write"),
    ("fma.rn.f64 \t%fd1, %fd2, %fd3, %fd4;", False, "another fma than that of the source"),
    ("fma.rn.ftz.f32 \t%f1, %f2, %f3, %f4;", False, "another fma than that of the source"),
    ("ex2.approx.f32 \t%f1, %f2;", False, "approximate arithmetic"),
    ("div.full.f32 \t%f1, %f2, %f3;", False, "approximate arithmetic"),
    ("add.ftz.f32 \t%f1, %f2, %f3;", False, "approximate arithmetic"),
    ("atom.global.add.f32 \t%f1, [%rd1], %f2;", False, "a floating-point atomic"),
    ("red.global.add.noftz.bf16 \t[%rd1], %rs1;", False, "a floating-point atomic"),
    ("@!%p2 red.shared.add.f64 \t[%rd1], %fd1;", False, "a floating-point atomic"),
    ("sqrt.rz.f32 \t%f1, %f2;", False, "not said to be rounded to nearest"),
    ("add.rz.f32 \t%f1, %f2, %f3;", False, "not said to be rounded to nearest"),
    ("mul.f32 \t%f1, %f2, %f3;", False, "not said to be rounded to nearest"),
    ("@%p3 sub.f64 \t%fd1, %fd2, %fd3;", False, "not said to be rounded to nearest"),
]
ALLOWED = ["fma.rn.f32 \t%f1, %f2, %f3, %f4;", "add.rn.f64 \t%fd1, %fd2, %fd3;", "mul.wide.s32 \t%rd1, %r1, 4;",
           "mad.lo.s32 \t%r1, %r2, %r3, %r4;", "div.rn.f32 \t%f1, %f2, %f3;", "atom.global.add.u64 \t%rd1, [%rd2], %rd3;", "cvt.rzi.s32.f32 \t%r1, %f1;", "// fma.rn.f64",
           "st.global.f32 \t[%rd1], %f1;", "red.shared.or.b32 \t[%r1], 1;"]


def check_the_checks():
    missed = [line for line, unfused, what in PLANTED if what not in [fault for fault, _ in faults_of(line, unfused)[0]]]
    accused = [line for line in ALLOWED if faults_of(line, False)[0]]
    for line in missed:
        print("not found:", line)
    for line in accused:
        print("found, and no fault:", line)
    print(f"{len(PLANTED) - len(missed)} of {len(PLANTED)} planted faults found, {len(accused)} false alarms")
    return 1 if missed or accused else 0


sys.exit(check_the_checks() if sys.argv[1:] == ["--planted"] else lint(Path(sys.argv[1])))
