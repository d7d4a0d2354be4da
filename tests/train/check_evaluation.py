#!/usr/bin/env python3
"""Whole programs with --eval-every: what they say of the held-out data does not depend on ranks or stage, and training
does not notice. check_evaluation.py BIN RUN CORPUS CHECK, where CHECK is the name of one of the checks below."""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

binaries, run, corpus = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]).read_bytes()
folder = pathlib.Path()
STAGES = ("stage0_ddp", "stage1_optimizer", "stage2_gradients", "stage3_params")
CONTEXT = 16
STILL = ["--steps", 1, "--lr", "1e-30"]  # the weights stay those of the start


def start(program, ranks, options, micro_batch=1):
    line = [str(binaries / program), "--layers", "2", "--heads", "1", "--width", "8", "--context", str(CONTEXT),
            "--micro-batch", str(micro_batch), *map(str, options)]
    return subprocess.run(line if program == "baseline" else [run, "-n", str(ranks), *line], capture_output=True,
                          text=True, timeout=60)


def train(program, ranks, options, micro_batch=1):
    """The summary and the lines of metrics.jsonl of a run that ends well."""
    out = folder / "out"
    done = start(program, ranks, [*options, "--out", out], micro_batch)
    assert done.returncode == 0, f"{program} on {ranks} with {options}: {done.returncode}\n{done.stdout}{done.stderr}"
    return (json.loads((out / "summary.json").read_text()),
            [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()])


def held_out(metrics):
    return {line["step"]: line["held_out_loss"] for line in metrics if "held_out_loss" in line}


def same(what, got, expected):
    assert got == expected, f"{what}: {got} instead of {expected}"


def data(name, contents):
    (folder / name).write_bytes(contents)
    return folder / name


def independent_of_ranks_and_stage():
    text = data("text.txt", corpus[:12_000])
    for ranks in range(1, 6):
        options = ["--data", text, "--steps", 4, "--eval-every", 2, "--lr", 0.01]
        expected = held_out(train("baseline", 1, [*options, "--as-world", ranks])[1])
        same("evaluated steps", list(expected), [2, 4])
        assert expected[4] < expected[2], f"the held-out loss does not fall: {expected}"
        for stage in STAGES if ranks in (3, 4) else STAGES[::3]:
            same(f"{stage} on {ranks}", held_out(train(stage, ranks, options)[1]), expected)


def independent_of_batches():
    # The same weights: any number of ranks, sequences in a pass, micro-steps. 74 sequences, so more than are evaluated.
    still = ["--data", data("text.txt", corpus[:12_000]), *STILL, "--eval-every", 1]
    expected = held_out(train("baseline", 1, still)[1])
    for ranks, micro_batch, more in ((1, 64, []), (2, 3, []), (3, 1, []), (3, 7, ["--global-batch", 42]), (4, 2, []),
                                     (5, 1, ["--global-batch", 20]), (5, 4, ["--dropout", 0.5])):
        same(f"{ranks} ranks, micro-batch {micro_batch} {more}",
             held_out(train("stage3_params", ranks, [*still, *more], micro_batch)[1]), expected)
    # The same steps: one global batch over 1, 2 and 4 ranks, by 4, 2 and 1 micro-steps.
    options = ["--data", folder / "text.txt", "--steps", 4, "--eval-every", 3, "--global-batch", 4]
    runs = [train("stage1_optimizer", ranks, options) for ranks in (1, 2, 4)]
    for summary, metrics in runs[1:]:
        same("losses", summary["losses"], runs[0][0]["losses"])
        same("held-out losses", held_out(metrics), held_out(runs[0][1]))


def counts_every_sequence_once():
    def alone(i):  # the loss of sequence i, by a file that holds out nothing else
        tokens = corpus[20_000 + i * CONTEXT:][:CONTEXT + 1]
        text = data(f"alone{i}.txt", corpus[:9 * (CONTEXT + 1)] + tokens)
        return held_out(train("baseline", 1, ["--data", text, *STILL, "--eval-every", 1])[1])[1]

    mine = [alone(i) for i in range(6)]
    assert len(set(mine)) == 6, mine
    for count in (1, 4, 5, 6):
        tokens = corpus[20_000:][:count * CONTEXT + 1]
        text = data("few.txt", corpus[:9 * len(tokens)] + tokens)
        for stage, micro_batch in (("stage0_ddp", 1), ("stage3_params", 1), ("stage3_params", 2)):
            got = held_out(train(stage, 5, ["--data", text, *STILL, "--eval-every", 1], micro_batch)[1])[1]
            expected = math.fsum(mine[:count]) / count
            assert abs(got - expected) < 1e-13, f"{stage}: {count} sequences on 5 ranks: {got}, not {expected}"


def training_does_not_notice():
    text = data("text.txt", corpus[:8_000])

    def training(program, ranks, every, options):
        summary, metrics = train(program, ranks, ["--data", text, "--steps", 6, "--digest-every", 1, "--lr", 0.01,
                                                  "--eval-every", every, *options])
        assert len(held_out(metrics)) == {2: 3, 5: 2, 1000: 1}[every], held_out(metrics)
        for rank in summary["memory"]["ranks"]:
            del rank["process_peak"]
            for name, bytes_held in rank["tiers"]["device"]["categories"].items():
                same(f"{program} {options}: peak of {name}", bytes_held["peak"], bytes_held["formula"])
            gathered = rank["tiers"]["device"]["categories"].get("gathered", {"current": 0})
            same(f"{program} {options}: gathered after the run", gathered["current"], 0)
        kept = ("losses", "grad_norms", "digest", "memory", "communication", "parameters", "padded_parameters")
        return {key: summary[key] for key in kept} | {"digests": [line["digest"] for line in metrics]}

    dropped = ["--dropout", 0.2]
    for program, ranks, options in (
            ("baseline", 1, dropped), ("stage0_ddp", 3, dropped), ("stage1_optimizer", 2, []),
            ("stage2_gradients", 3, [*dropped, "--checkpoint-activations", "--precision", "bf16"]),
            *(("stage3_params", 3, [*dropped, "--prefetch", depth]) for depth in (0, 1, 100)),
            ("stage3_params", 3, [*dropped, "--reshard-after-forward", "off"]),
            ("stage3_params", 4, ["--shard-group", 2, "--prefetch", 2, "--precision", "bf16"])):
        rare = training(program, ranks, 1000, options)
        for every in (2, 5):
            often = training(program, ranks, every, options)
            for key, value in rare.items():
                same(f"{program} on {ranks} with {options}, evaluated every {every} steps: {key}", often[key], value)


def says_what_is_held_out_and_refuses_too_little():
    help_text = " ".join(start("stage3_params", 1, ["--help"]).stdout.split())
    for words in ("last tenth of the data", "at most 64 sequences", "held out", "0: none"):
        assert words in help_text, f"'{words}' in --help: {help_text}"
    plan = start("stage0_ddp", 2, ["--data", data("text.txt", corpus[:12_000]), *STILL, "--eval-every", 3]).stdout
    for words in ("674 sequences;", "every 3 steps: 74 sequences of the data's last tenth are held out, 64 of them"):
        assert words in plan, f"'{words}' in the plan: {plan}"
    refused = [("baseline", 1, tokens) for tokens in (17, 30, 89, 150, 159)]
    for program, ranks, tokens in [*refused, ("stage3_params", 1, 160), ("stage3_params", 3, 160)]:
        done = start(program, ranks, ["--data", data("short.txt", corpus[:tokens]), "--eval-every", 7,
                                      "--out", folder / "never"])
        said = [line for line in done.stderr.splitlines() if not line.startswith("+ ")]
        same(f"status on {ranks}", done.returncode, 2)
        same("sentence", said, [f"error: --eval-every 7 holds out the last tenth of {folder / 'short.txt'}, and a tenth "
                                f"of its {tokens} tokens is too little for --context {CONTEXT}; at least "
                                f"{10 * CONTEXT + 1} tokens would do"])
    assert not (folder / "never").exists(), "a refused run left something behind"
    train("stage3_params", 3, ["--data", data("enough.txt", corpus[:10 * CONTEXT + 1]), *STILL, "--eval-every", 7])


CHECKS = (independent_of_ranks_and_stage, independent_of_batches, counts_every_sequence_once, training_does_not_notice,
          says_what_is_held_out_and_refuses_too_little)
for check in CHECKS:
    if check.__name__ == sys.argv[4]:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            check()
            sys.exit(0)
sys.exit(f"{sys.argv[4]} is not one of {', '.join(check.__name__ for check in CHECKS)}")
