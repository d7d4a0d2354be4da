#!/usr/bin/env python3
"""Whole programs whose loss or gradients are not finite: they stop or skip as they were told, on all ranks alike, and
say so. check_not_finite.py BIN RUN POISONED CHECK, where CHECK is the name of one of the checks below; POISONED is
poisoned_program."""

import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

binaries, run, poisoned = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
folder = pathlib.Path()
STAGES = ("stage0_ddp", "stage1_optimizer", "stage2_gradients", "stage3_params")
SMALL = ["--layers", "1", "--heads", "1", "--width", "8", "--context", "16", "--micro-batch", "1"]
SECONDS = 20


class Ending:
    def __init__(self, program, ranks, options):
        out = folder / "out"
        line = [*map(str, program), *SMALL, *map(str, options), "--out", str(out)]
        done = subprocess.run([run, "-n", str(ranks), *line] if ranks else line, capture_output=True, text=True,
                              timeout=SECONDS)
        self.status, self.text = done.returncode, done.stdout
        self.errors = [line for line in done.stderr.splitlines() if not line.startswith("+ ")]
        assert (out / "summary.json").exists(), f"{line} on {ranks}: {done.returncode}, {done.stderr}"
        self.summary = json.loads((out / "summary.json").read_text())
        self.metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]

    def line(self, step):
        return re.search(rf"^ +{step} .*$", self.text, re.MULTILINE)[0]


def same(what, got, expected):
    assert got == expected, f"{what}: {got} instead of {expected}"


def stops_where_it_diverges():
    for precision, last in (("fp32", 2), ("bf16", 2)):
        options = ["--steps", 50, "--lr", "1e10", "--precision", precision]
        expected = Ending([binaries / "baseline"], 0, [*options, "--as-world", 3])
        same("sentence", expected.errors, [
            f"error: step {last}: the loss is nan; first in the gradient of embedding.token.weight; the step was not "
            "taken; a lower --lr may help"])
        for stage in STAGES:
            got = Ending([binaries / stage], 3, options)
            what = f"{stage} in {precision}"
            same(what, (got.status, got.errors), (1, expected.errors))
            same(what, [str(loss) for loss in got.summary["losses"]], [str(x) for x in expected.summary["losses"]])
            same(what, got.summary["digest"], expected.summary["digest"])
            same(what, got.summary["steps_not_taken"], 1)
            same(what, (got.metrics[-1]["verdict"], got.metrics[-1]["loss"]), ("not finite", "nan"))


def skips_on_all_ranks_alike():
    for stage, ranks, precision in (*itertools.product("03", (1, 3), ("fp32", "bf16")), ("1", 2, "bf16"),
                                    ("2", 4, "fp32"), ("3", 4, "bf16")):
        options = ["--steps", 7, "--precision", precision, "--on-nonfinite", "skip", "--digest-every", 1]
        if (stage, ranks) == ("0", 3):
            options += ["--eval-every", 3]  # between a step that is not taken and one that is
        got = Ending([poisoned, stage, "1,3,4"], ranks, options)
        what = f"stage {stage} on {ranks} in {precision}"
        same(what, (got.status, got.errors), (0, []))  # that ranks' copies differ would be an error
        same(what, [line["verdict"] == "not finite" for line in got.metrics],
             [True, False, True, True, False, False, False])
        same(what, [line.get("steps_not_taken") for line in got.metrics], [1, None, 2, 3, None, None, None])
        same(what, [loss == "nan" for loss in got.summary["losses"]], [t in (1, 3, 4) for t in range(1, 8)])
        same(what, got.summary["steps_not_taken"], 3)
        digests = [line["digest"] for line in got.metrics]
        assert digests[1] == digests[2] == digests[3], f"{what}: a step that was not taken changed a state: {digests}"
        for kind in ("parameters", "momentum", "variance"):
            same(f"{what}: different {kind} after the steps taken", len({digest[kind] for digest in digests}), 5)
        for step, count in ((1, "1 step"), (3, "2 steps"), (4, "3 steps")):
            line = got.line(step)
            for words in (" nan ", "not finite", "first in the gradient of embedding.token.weight", f"{count} not taken"):
                assert words in line, f"{what}: '{words}' in the line of step {step}: {line}"
            assert got.metrics[step - 1]["not_finite"] == "the gradient of embedding.token.weight", got.metrics[step - 1]
        assert "skipped: 3 of 7 steps not taken, since loss or gradient norm was not finite\n" in got.text, got.text
        assert "sent = formula" in got.text and "held = formula" in got.text or ranks == 1, f"{what}: {got.text}"


def does_not_skip_for_ever():
    for program, ranks, more in (("baseline", 0, []), ("stage0_ddp", 3, []), ("stage3_params", 2, []),
                                 ("stage3_params", 3, ["--precision", "bf16"])):
        got = Ending([binaries / program], ranks, ["--steps", 1000, "--lr", "1e10", "--on-nonfinite", "skip", *more])
        same(program, (got.status, got.errors), (
            1, ["error: step 11: the loss is nan; first in the gradient of embedding.token.weight; 10 steps in a row were "
                "not taken; a lower --lr may help"]))
        same(program, (len(got.metrics), got.summary["steps_not_taken"]), (11, 10))
        assert "skipped: 10 of 11 steps not taken" in got.text, got.text
    # Nine in a row do not end a run, nor do ten that are not.
    many = ",".join(str(t) for t in range(2, 11))
    same("nine in a row", Ending([poisoned, "3", many], 2, ["--steps", 12, "--on-nonfinite", "skip"]).status, 0)
    many = ",".join(str(t) for t in range(1, 40) if t % 8 != 0)
    same("35 with others between", Ending([poisoned, "1", many], 2, ["--steps", 40, "--on-nonfinite", "skip"]).status, 0)
    # A run that ends on such a step has nothing good to say of its state.
    got = Ending([poisoned, "2", "4,5"], 2, ["--steps", 5, "--on-nonfinite", "skip"])
    same("the last step", (got.status, len(got.errors)), (1, 1))
    assert "step 5" in got.errors[0] and "2 steps in a row" in got.errors[0], got.errors


def large_rates_end_one_way_or_the_other():
    for rate in ("1", "1e3", "1e6", "1e10"):
        for precision in ("fp32", "bf16"):
            for more in (["--weight-decay", 1000], ["--clip", 0]):
                options = ["--steps", 50, "--lr", rate, "--precision", precision, "--on-nonfinite", "skip", *more]
                got = Ending([binaries / "baseline"], 0, [*options, "--verify"])
                assert got.status in (0, 1), f"{options}: {got.status}, {got.errors}"
                same(f"{options}: sentences", len(got.errors), got.status)
                same(f"{options}: a last step that is not finite", got.metrics[-1]["verdict"] == "not finite",
                     got.status == 1)
                for line in got.metrics:
                    broken = any(isinstance(line[value], str) for value in ("loss", "grad_norm"))
                    same(f"{options}: verdict of {line}", line["verdict"] == "not finite", broken)


CHECKS = (stops_where_it_diverges, skips_on_all_ranks_alike, does_not_skip_for_ever,
          large_rates_end_one_way_or_the_other)
for check in CHECKS:
    if check.__name__ == sys.argv[4]:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            check()
            sys.exit(0)
sys.exit(f"{sys.argv[4]} is not one of {', '.join(check.__name__ for check in CHECKS)}")
