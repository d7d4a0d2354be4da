#!/usr/bin/env python3
"""Whole programs with --backend cuda: check_backend.py GPU_BIN BIN RUN CHECK [GPUS].

GPU_BIN is the folder of the programs whose CUDA backend is tested, BIN that of the programs that compute on the CPU, and
CHECK one of the checks below. The GPUs are pretended, as many as a run asks for; or with GPUS, so many are really there.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

on_gpu, binaries, run = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
there = int(sys.argv[5]) if len(sys.argv) > 5 else None  # GPUs that are not pretended
folder = pathlib.Path()  # for what runs leave behind
SMALL = ["--layers", "2", "--heads", "2", "--width", "32", "--context", "16", "--micro-batch", "2", "--steps", "3"]
STAGES = ["stage0_ddp", "stage1_optimizer", "stage2_gradients", "stage3_params"]
CPU = ["--backend", "cpu", "--products", "canonical"]
CUDA = ["--backend", "cuda"]
EQUAL = "verify: the same bytes as the unsharded baseline"


def start(program, options, ranks=1, gpus=None, **environment):
    """Runs a program to its end: status, standard output, standard error."""
    line = [str(program), *map(str, options)]
    if ranks > 1 or "stage" in program.name:
        line = [run, "-n", str(ranks), *line]
    variables = {**os.environ, **environment, "CUDA_ON_HOST_DEVICES": str(ranks if gpus is None else gpus)}
    if gpus == 0:
        variables["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(line, capture_output=True, text=True, env=variables, timeout=100, check=False)
    return done.returncode, done.stdout, done.stderr


def summary(program, options, **how):
    """summary.json of a run that has to end well, and what it printed."""
    out = folder / "out"
    status, text, errors = start(program, [*options, "--out", out], **how)
    assert status == 0, (program, options, how, status, text[-2000:], errors)
    return json.loads((out / "summary.json").read_text()), text


def refused(program, options, status, *words, **how):
    """A run that has to end with one sentence that has these words."""
    got, text, errors = start(program, options, **how)
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert got == status, (options, got, text[-500:], errors)
    assert len(lines) == 1, errors
    for word in words:
        assert word in lines[0], (word, lines[0])


def route(ranks, gpus):
    """How the plan names the way between ranks."""
    return "NCCL" if gpus >= ranks else f"pinned host memory ({-(-ranks // gpus)} ranks share a GPU)"


def the_cpus_digests():
    """Canonical products: every stage, one GPU for each rank or one for all, has the CPU's digests, losses and norms."""
    for ranks in (1, 2, 3):
        gpus = there or (1 if ranks == 3 else ranks)
        for program in STAGES:
            options = [*SMALL, "--precision", "bf16" if ranks == 2 else "fp32"]
            expected, _ = summary(binaries / program, [*options, *CPU], ranks=ranks)
            got, text = summary(on_gpu / program, [*options, *CUDA, "--products", "canonical", "--verify"], ranks=ranks,
                                gpus=gpus)
            for key in ("digest", "losses", "grad_norms"):
                assert got[key] == expected[key], (program, ranks, key, got[key], expected[key])
            assert got["options"]["backend"] == "cuda", got["options"]
            assert EQUAL in text, text
            assert ranks == 1 or route(ranks, gpus) in text, text


def evaluates_and_offloads_as_the_cpu():
    """Held-out losses, and offload with all that it moves."""
    held_out = []
    for program, backend in ((binaries, CPU), (on_gpu, [*CUDA, "--products", "canonical"])):
        summary(program / "stage3_params", [*SMALL, *backend, "--eval-every", "2"], ranks=2)
        lines = (folder / "out" / "metrics.jsonl").read_text().splitlines()
        held_out.append([json.loads(line).get("held_out_loss") for line in lines])
    assert held_out[0] == held_out[1] and held_out[0][1] is not None, held_out
    for ranks, place in ((1, "host"), (2, "host"), (2, "nvme")):
        options = [*SMALL, "--stage", "3", "--offload-optimizer", place, "--offload-params", place]
        if place == "nvme":
            options += ["--nvme-path", folder]
        expected, _ = summary(binaries / "offload", [*options, *CPU], ranks=ranks)
        got, text = summary(on_gpu / "offload", [*options, *CUDA, "--products", "canonical", "--verify"], ranks=ranks)
        assert EQUAL in text, text
        assert got["digest"] == expected["digest"], (ranks, place)
        assert got["offload"] == expected["offload"], (got["offload"], expected["offload"])


def verifies_library_products():
    """Library products: one rank, or two that share a GPU, have the bytes of the GPU's own baseline in every program."""
    for ranks in (1, 2):
        for program in [*STAGES, "offload"]:
            options = [*SMALL, *CUDA, "--products", "library", "--precision", "bf16" if ranks == 2 else "fp32", "--verify"]
            if program == "offload":
                options += ["--stage", "3", "--offload-optimizer", "host", "--offload-params", "host"]
            got, text = summary(on_gpu / program, options, ranks=ranks, gpus=1)
            assert got["options"]["products"] == "library" and EQUAL in text, (program, ranks, text)


def chooses_and_says_so():
    """`auto` takes the GPU where there is one; library products are the default there."""
    got, text = summary(on_gpu / "stage1_optimizer", SMALL, ranks=2)
    assert got["options"]["backend"] == "cuda" and got["options"]["products"] == "library", got["options"]
    assert "device        auto: cuda: " in text and "cuBLAS" in text, text
    got, text = summary(on_gpu / "stage1_optimizer", SMALL, ranks=2, gpus=0)
    assert got["options"]["backend"] == "cpu" and got["options"]["products"] == "canonical", got["options"]
    assert "device        auto: cpu, " in text, text


def one_rank_without_a_gpu_is_named():
    """Ranks whose machines differ end together, before any of them waits for another."""
    wrapper = folder / "rank_1_without"
    wrapper.write_text('#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export CUDA_ON_HOST_DEVICES=0\nexec "$@"\n')
    wrapper.chmod(0o755)
    for options in (CUDA, ["--backend", "auto"]):
        refused(wrapper, [on_gpu / "stage1_optimizer", *SMALL, *options], 2, "rank 1: --backend", "cpu", ranks=2)
    # Room for what ranks exchange, and not for the products that are tried next.
    wrapper.write_text(wrapper.read_text().replace("DEVICES=0", "MEMORY=2400000"))
    options = [on_gpu / "stage1_optimizer", *SMALL, *CUDA, "--products", "canonical"]
    refused(wrapper, options, 3, "rank 1: asked for", "which the machine does not have", ranks=2)


def refuses_in_one_sentence():
    """A backend that is not there, too few GPUs for NCCL, memory that has run out."""
    here = on_gpu / "stage2_gradients"
    cuda = [*SMALL, *CUDA]
    refused(binaries / "stage2_gradients", cuda, 2, "--backend cuda: ", "--backend cpu", ranks=2, gpus=0)
    refused(here, cuda, 2, "--backend cuda: cudaGetDeviceCount finds no GPU", "--backend cpu", ranks=2, gpus=0)
    refused(here, [*cuda, "--transport", "nccl"], 2, "--transport nccl", "ranks 0 and 1 share", ranks=2, gpus=1)
    refused(here, [*cuda, "--collectives", "native"], 2, "--collectives native", "canonical", ranks=2, gpus=1)
    refused(here, [*SMALL, "--backend", "cpu", "--transport", "nccl"], 2, "--transport nccl", "on the CPU", ranks=2)
    refused(here, [*cuda, "--device-memory", "5MiB"], 3, "5.0 MiB", "ask plan what fits", ranks=2)
    # More than a pretended GPU has, or any other.
    much = SMALL if there is None else ["--model", "gpt2-xl", "--micro-batch", "128", "--steps", "1"]
    refused(here, [*much, *CUDA], 3, "which the machine does not have", "ask plan what fits",
            CUDA_ON_HOST_MEMORY="34000000")


def says_why_there_is_no_gpu():
    """Programs that have the CUDA backend, where there is no GPU: a refusal in one sentence, or the CPU, and it is said."""
    for program in ["baseline", *STAGES, "offload"]:
        how = {"ranks": 1 if program == "baseline" else 2, "gpus": 0}
        refused(binaries / program, [*SMALL, *CUDA], 2, "--backend cuda: cudaGetDeviceCount finds no ", "--backend cpu", **how)
        got, text = summary(binaries / program, SMALL, **how)
        assert got["options"]["backend"] == "cpu" and got["options"]["products"] == "canonical", got["options"]
        assert "device        auto: cpu, " in text, text


def compares_all_stages():
    """compare on GPUs: every row equal, every byte as the formulas say."""
    out = folder / "compare"
    status, text, errors = start(on_gpu / "compare", ["-n", "2", *SMALL, *CUDA, "--out", out], gpus=2)
    assert status == 0, (text, errors)
    assert "All 7 programs end with equal bits" in text, text


with tempfile.TemporaryDirectory() as directory:
    folder = pathlib.Path(directory)
    globals()[sys.argv[4]]()
