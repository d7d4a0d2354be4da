#!/usr/bin/env python3
"""check_compare_program.py COMPARE PLAN: what compare says about programs that only pretend to train.

They stand beside a copy of compare, as the real ones do, and leave the summary.json that a case gives them. compare starts
them under mpirun, as it starts the real ones.
"""

import copy
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

COMPARE, PLAN = (os.path.abspath(path) for path in sys.argv[1:3])
RANKS = 2
STAGES = ("baseline", "stage0_ddp", "stage1_optimizer", "stage2_gradients", "stage3_params")
OFFLOAD = {  # by row: what says so on the command line of offload, and in its summary
    "offload-2-host": {"stage": 2, "offload-optimizer": "host", "offload-params": "none"},
    "offload-3-host-host": {"stage": 3, "offload-optimizer": "host", "offload-params": "host"},
    "offload-2-nvme": {"stage": 2, "offload-optimizer": "nvme", "offload-params": "none"},
    "offload-3-host-nvme": {"stage": 3, "offload-optimizer": "host", "offload-params": "nvme"},
    "offload-3-nvme-nvme": {"stage": 3, "offload-optimizer": "nvme", "offload-params": "nvme"},
}
PROGRAMS = (*STAGES, "offload-2-host", "offload-3-host-host")  # rows of compare by default
OPTIONS = {"model": "tiny", "layers": 2, "heads": 1, "width": 11, "context": 20, "vocab": 61, "micro-batch": 1, "steps": 2}
OPTIONS |= {"precision": "fp32", "products": "canonical", "collectives": "canonical", "accumulation": "ranks-first", "wrap": 1}

# Rank 0 leaves the summary; every rank runs BEFORE, which can be any behaviour.
PRETENDER = """#!/bin/sh
here=$(dirname "$0")
out=
previous=
for argument in "$@"; do
  [ "$previous" = --out ] && out=$argument
  previous=$argument
done
row=$(basename "$out")
for argument in "$@"; do echo "$argument"; done > "$here/$row.arguments"
summary=$here/$row.json
[ -f "$summary" ] || summary=$here/$(basename "$0").json
BEFORE
if [ "${OMPI_COMM_WORLD_RANK:-0}" = 0 ]; then
  mkdir -p "$out"
  cp "$summary" "$out/summary.json"
fi
"""


def formulas(micro_steps=1):
    """By program, from plan."""
    shapes = [f"--{name}={OPTIONS[name]}" for name in ("layers", "heads", "width", "context", "vocab", "micro-batch")]
    command = [PLAN, f"--world={RANKS}", f"--global-batch={RANKS * micro_steps}", "--stage=all,offload", "--json", *shapes]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return {stage["program"]: stage for stage in json.loads(output)["stages"]}


def honest(program, formula, micro_steps=1):
    """The summary of a program that holds and sends what its formula says."""
    world = 1 if program == "baseline" else RANKS
    options = dict(OPTIONS) | {"global-batch": RANKS * micro_steps}
    options |= OFFLOAD.get(program, {})
    if program == "stage3_params" or program in OFFLOAD:
        options |= {"prefetch": 1, "reshard-after-forward": "on"}
    tiers = {}
    for tier, memory in (("device", "memory"), ("host", "host_memory"), ("nvme", "nvme_memory")):
        held = {name: {"formula": size, "current": size, "peak": size} for name, size in formula.get(memory, {}).items()}
        if held:
            tiers[tier] = {"cap": None, "peak": 1, "categories": held}
    memory = [{"rank": rank, "process_peak": 10**8, "tiers": copy.deepcopy(tiers)} for rank in range(world)]
    moved = {name: {"formula": size, "moved": size} for name, size in formula.get("offload", {}).items()}
    moved = [{"rank": rank, **copy.deepcopy(moved)} for rank in range(world if moved else 0)]
    sent = [{"rank": rank} | {purpose: {"collective": s["collective"], "formula": s["formula"], "sent": s["formula"], "calls": s["calls"]} for purpose, s in formula["communication"].items()} for rank in range(world)]
    return {
        "schema": 1, "executable": "offload" if program in OFFLOAD else program, "world": world, "options": options, "parameters": 4103, "padded_parameters": formula["padded_parameters"],
        "losses": [4.25, 4.125], "grad_norms": [1.5, 0.1], "digest": {name: "ab" * 16 for name in ("parameters", "master", "momentum", "variance")},
        "memory": {"ranks": memory}, "communication": {"ranks": sent}, "offload": {"ranks": moved},
        "seconds": {"total": [0.5, 0.25], "compute": [0.5, 0.25]}, "tokens_per_second": 160.0,
    }  # fmt: skip


def categories(summary, rank, tier="device"):
    return summary["memory"]["ranks"][rank]["tiers"][tier]["categories"]


class Compare(unittest.TestCase):
    formula = formulas()

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy2(COMPARE, os.path.join(self.folder, "compare"))
        for program in (*STAGES, *OFFLOAD):
            self.make(program, honest(program, self.formula[program]))

    def make(self, program, summary, before="", folder="."):
        place = os.path.join(self.folder, folder)
        os.makedirs(place, exist_ok=True)
        path = os.path.join(place, "offload" if program in OFFLOAD else program)
        with open(path, "w", encoding="utf-8") as file:
            file.write(PRETENDER.replace("BEFORE", before))
        os.chmod(path, 0o755)
        with open(os.path.join(place, program + ".json"), "w", encoding="utf-8") as file:
            file.write(summary if isinstance(summary, str) else json.dumps(summary))
        return path

    def run_compare(self, *arguments, status=0):
        command = [os.path.join(self.folder, "compare"), "-n", str(RANKS), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.folder)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        if status >= 2 or (status == 1 and not result.stdout):
            errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
            self.assertEqual((len(errors), result.stdout), (1, ""), result.stderr)
            return errors[0]
        return result.stdout

    def pair(self, program, summary, *arguments, status=1):
        """compare's words on one dishonest program beside the baseline."""
        self.make(program, summary)
        return self.run_compare("--programs", f"baseline,{program}", *arguments, status=status).replace("\n  ", " ")

    def test_honest_programs_are_equal_and_the_table_fits_100_columns(self):
        text = self.run_compare("--json", "c.json", "--csv", "c.csv", "--markdown", "c.md", "--out", "kept")
        rows = [line for line in text.splitlines() if line.startswith(PROGRAMS) and line.split()[0] in PROGRAMS]
        self.assertEqual([row.split()[0] for row in rows], 2 * list(PROGRAMS))  # and where the bytes are
        self.assertTrue(all(row.endswith("yes") for row in rows[: len(PROGRAMS)]))
        head = next(line for line in text.splitlines() if line.split()[:3] == ["device", "host", "nvme"])
        self.assertEqual({len(row) for row in rows[len(PROGRAMS) :]}, {len(head)})
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        words = text.replace("\n  ", " ")
        self.assertIn("All 7 programs end with equal bits", words)
        self.assertRegex(words, r"activations stay .* in every stage")
        self.assertIn("stage 3 sends 1.50 times what stage 2 sends", words)
        self.assertIn("s/step and tokens/s of the median step", words)
        with open(os.path.join(self.folder, "c.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertTrue(result["right"])
        for program in result["programs"]:
            expected = self.formula[program["program"]]
            measured = lambda what: {name: held["measured"] for name, held in program[what].items()}
            held = dict(expected["memory"])
            for tier in ("host", "nvme"):
                held |= {f"{tier} {name}": size for name, size in expected.get(f"{tier}_memory", {}).items()}
            self.assertEqual(measured("memory"), held)
            self.assertEqual(measured("tiers"), {"device": expected["total"], "host": expected.get("host_total", 0), "nvme": expected.get("nvme_total", 0)})
            self.assertEqual(measured("offload"), expected.get("offload", {}))
            self.assertEqual(program["model_states"]["measured"], expected["model_states"])
            self.assertEqual(program["sent"], expected["sent"])
        with open(os.path.join(self.folder, "c.csv"), encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        self.assertEqual([row["program"] for row in table], list(PROGRAMS))
        self.assertEqual(int(table[4]["model_states"]), self.formula["stage3_params"]["model_states"])
        with open(os.path.join(self.folder, "c.md"), encoding="utf-8") as file:
            self.assertIn("| stage3_params |", file.read())
        self.assertTrue(os.path.exists(os.path.join(self.folder, "kept", "stage3_params", "summary.json")))

    def test_tokens_per_second_are_those_of_the_median_step(self):
        for seconds, median in (([9.0, 0.25, 0.5], 0.5), ([9.0, 0.25, 0.5, 0.5], 0.5), ([0.5, 0.25], 0.375)):
            summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
            summary["seconds"]["total"] = seconds
            text = self.pair("stage1_optimizer", summary, "--json", "c.json", status=0)
            tokens = RANKS * OPTIONS["micro-batch"] * OPTIONS["context"] / median
            self.assertRegex(text, rf"stage1_optimizer .* {median:.3f} +{tokens:.0f} ")
            with open(os.path.join(self.folder, "c.json"), encoding="utf-8") as file:
                program = json.load(file)["programs"][1]
            self.assertAlmostEqual(program["tokens_per_second"], tokens)

    def test_the_programs_have_short_names(self):
        text = self.run_compare("--programs", "3,baseline,1")
        rows = [line.split()[0] for line in text.splitlines() if line.startswith(PROGRAMS)]
        self.assertEqual(rows, ["baseline", "stage3_params", "stage1_optimizer"])

    def test_the_example_of_the_documentation_is_a_summary_whose_bytes_are_right(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/summary.md"), encoding="utf-8") as file:
            example = json.loads(file.read().split("```json\n")[1].split("```")[0])
        baseline = honest("baseline", self.formula["baseline"])
        for key in ("options", "losses", "grad_norms", "digest"):
            baseline[key] = copy.deepcopy(example[key])
        self.make("baseline", baseline)
        text = self.run_compare("--programs", "baseline", "--with", self.make("mine", example, folder="my"), status=1)
        self.assertRegex(text, r"mine .* yes\n")
        self.assertNotIn("\nmine: ", text)  # what is wrong is the baseline, whose bytes are of another model

    def test_findings_are_what_is_read_last(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        summary["digest"]["momentum"] = "cd" * 16
        text = self.pair("stage1_optimizer", summary, "--markdown", "c.md")
        self.assertIn("stage1_optimizer: not equal to baseline: the digest of momentum is another", text.splitlines()[-1])
        self.assertIn("- activations stay", text)
        with open(os.path.join(self.folder, "c.md"), encoding="utf-8") as file:
            self.assertIn("the digest of momentum is another", file.read().splitlines()[-1])

    def test_collectives_of_another_order_that_end_equal_say_so(self):
        for program in ("baseline", "stage1_optimizer"):
            summary = honest(program, self.formula[program])
            summary["options"]["collectives"] = "ring"
            self.make(program, summary)
        text = self.run_compare("--programs", "baseline,1", "--collectives", "ring")
        self.assertIn("equal here; with 3 or more ranks these collectives add in another order", text)

    def test_under_mpirun_rank_0_alone_refuses(self):
        for rank, errors in (("0", 1), ("1", 0)):
            environment = dict(os.environ) | {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank}
            command = [os.path.join(self.folder, "compare"), "-n", "2"]
            result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.folder, env=environment)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertEqual((result.stderr.count("\n"), result.stderr.count("starts mpirun itself")), (errors, errors))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "baseline.arguments")))

    def test_every_option_is_passed_on_to_the_programs_that_offer_it(self):
        self.run_compare("--data", "a b;$(touch no)", "--prefetch=0", "--reshard-after-forward", "off", "--shard-group", "1", "--steps", "2")
        seen = {}
        for program in PROGRAMS:
            with open(os.path.join(self.folder, program + ".arguments"), encoding="utf-8") as file:
                seen[program] = file.read().splitlines()[2:]  # but for --out
        shared = ["--data", "a b;$(touch no)", "--steps", "2"]
        self.assertEqual(seen["baseline"], ["--as-world", str(RANKS)] + shared)
        self.assertEqual(seen["stage0_ddp"], shared)
        self.assertEqual(seen["stage3_params"], ["--data", "a b;$(touch no)", "--prefetch=0", "--reshard-after-forward", "off", "--shard-group", "1", "--steps", "2"])
        self.assertFalse(os.path.exists(os.path.join(self.folder, "no")))

    def arguments(self, row):
        with open(os.path.join(self.folder, row + ".arguments"), encoding="utf-8") as file:
            return file.read().splitlines()[2:]  # but for --out

    def test_local_first_runs_the_programs_that_offer_it(self):
        text = self.run_compare("--accumulation", "local-first").replace("\n  ", " ")
        self.assertIn("stage1_optimizer", text)
        self.assertIn("- left out, since they have no --accumulation local-first and other bits without it: stage2_gradients, stage3_params,", text)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "stage2_gradients.arguments")))

    def test_offload_runs_on_files_where_there_is_a_directory_for_them(self):
        text = self.run_compare("--nvme-path", "some where", "--steps=2")
        rows = [line.split()[0] for line in text.splitlines() if line.startswith(("baseline", "stage", "offload")) and line.endswith("yes")]
        self.assertEqual(rows, [*PROGRAMS, "offload-2-nvme", "offload-3-nvme-nvme"])
        way = lambda row: [word for name, value in OFFLOAD[row].items() for word in (f"--{name}", str(value))]
        self.assertEqual(self.arguments("stage3_params"), ["--steps=2"])
        self.assertEqual(self.arguments("offload-2-host"), [*way("offload-2-host"), "--steps=2"])
        self.assertEqual(self.arguments("offload-3-nvme-nvme"), [*way("offload-3-nvme-nvme"), "--nvme-path", "some where", "--steps=2"])

    def test_a_way_to_run_offload_is_chosen_by_its_options_or_by_its_name(self):
        for chosen in (["--programs", "baseline,offload", "--stage", "3", "--offload-params=host"], ["--programs", "baseline,offload-3-host-host"]):
            text = self.run_compare(*chosen, "--prefetch", "1")
            self.assertRegex(text, r"offload-3-host-host .* yes\n")
            self.assertNotIn("offload-2-host", text)
            self.assertEqual(self.arguments("offload-3-host-host")[:6], ["--stage", "3", "--offload-optimizer", "host", "--offload-params", "host"])
        self.assertIn("offload-2-nvme needs a directory", self.run_compare("--programs", "offload-2-nvme", status=2))
        self.assertIn("offload has no --stage 2 with --offload-optimizer host and --offload-params host", self.run_compare("--offload-params", "host", "--stage", "2", status=2))

    def test_a_delayed_update_runs_the_programs_that_have_it(self):
        for program in ("baseline", "offload-2-host", "offload-3-host-host", "offload-3-host-nvme"):
            delayed = {stage["program"]: stage for stage in json.loads(subprocess.run([PLAN, f"--world={RANKS}", "--stage=all,offload", "--delayed-update", "--json", *[f"--{name}={OPTIONS[name]}" for name in ("layers", "heads", "width", "context", "vocab", "micro-batch")]], check=True, capture_output=True, text=True, timeout=60).stdout)["stages"]}
            summary = honest(program, delayed[program])
            summary["options"]["delayed-update"] = True
            self.make(program, summary)
        text = self.run_compare("--delayed-update", "--delay-after", "1", "--nvme-path", "d").replace("\n  ", " ")
        self.assertIn("All 4 programs end with equal bits", text)
        self.assertIn("- left out, since they have no --delayed-update and other bits without it: stage0_ddp, stage1_optimizer, stage2_gradients, stage3_params", text)
        self.assertEqual(self.arguments("offload-2-host")[6:], ["--delayed-update", "--delay-after", "1"])
        self.assertIn("stage1_optimizer has no --delayed-update, without which", self.run_compare("--programs", "baseline,1", "--delayed-update", status=2))
        self.assertIn("stage2_gradients has no --tile, without which", self.run_compare("--programs", "baseline,2", "--tile", "2", status=2))

    def test_bytes_below_the_device_are_held_to_the_formula(self):
        row = "offload-3-nvme-nvme"
        for tier, category in (("host", "offload_buffers"), ("nvme", "optimizer"), ("nvme", "parameters")):
            summary = honest(row, self.formula[row])
            categories(summary, 1, tier)[category]["peak"] += 1
            self.assertRegex(self.pair(row, summary, "--nvme-path", "d"), rf"{row}: {tier} {category}: formula \d+ B, measured \d+ B on rank 1")
        summary = honest(row, self.formula[row])
        categories(summary, 0, "nvme")["optimizer"]["current"] = 0
        self.assertRegex(self.pair(row, summary, "--nvme-path", "d"), rf"{row}: nvme optimizer: formula .* kB, after the last step 0 B on rank 0")
        summary = honest(row, self.formula[row])
        for rank in range(RANKS):  # on the device instead of in host memory
            tiers = summary["memory"]["ranks"][rank]["tiers"]
            tiers["device"]["categories"]["host offload_buffers"] = tiers.pop("host")["categories"]["offload_buffers"]
        self.make(row, summary)
        self.assertIn("has a name with a blank", self.run_compare("--programs", row, "--nvme-path", "d", status=2))
        summary = honest(row, self.formula[row])
        summary["memory"]["ranks"][0]["tiers"]["host"]["peak"] = 10**9
        self.assertRegex(self.pair(row, summary, "--nvme-path", "d"), rf"{row}: host: peak 1.0 GB, categories add up to .* on rank 0")

    def test_bytes_moved_between_tiers_are_held_to_the_formula(self):
        row = "offload-2-host"
        for change, words in (
            (lambda ranks: ranks[1]["down"].update(moved=1), r"moved down: formula .* kB, measured 1 B on rank 1"),
            (lambda ranks: ranks[0].pop("up"), r"moved up: formula .* kB, measured 0 B on rank 0"),
            (lambda ranks: ranks[0].update(read={"formula": 5, "moved": 5}), r"moved read: formula 0 B, measured 5 B on rank 0"),
            (lambda ranks: ranks.clear(), r"moved down: formula .* kB, measured 0 B\n"),
        ):
            summary = honest(row, self.formula[row])
            change(summary["offload"]["ranks"])
            self.assertRegex(self.pair(row, summary), words)
        summary = honest("stage2_gradients", self.formula["stage2_gradients"])
        del summary["offload"]
        self.pair("stage2_gradients", summary, status=0)

    def test_a_way_to_run_offload_that_is_not_the_one_asked_for_is_named(self):
        summary = honest("offload-2-host", self.formula["offload-2-host"])
        self.assertIn("offload-3-host-host: its summary's options are those of offload-2-host", self.pair("offload-3-host-host", summary))
        path = self.make("offload", summary, folder="mine")
        self.assertRegex(self.run_compare("--programs", "baseline", "--with", path), r"\noffload .* yes\n")

    def test_another_digest_is_named(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        summary["digest"]["momentum"] = "cd" * 16
        text = self.pair("stage1_optimizer", summary)
        self.assertIn("stage1_optimizer: not equal to baseline: the digest of momentum is another", text)
        self.assertRegex(text, r"stage1_optimizer .* no\n")

    def test_another_loss_is_named_by_its_step_whatever_its_size(self):
        summary = honest("stage0_ddp", self.formula["stage0_ddp"])
        summary["losses"][1] = 4.125000000000001
        self.assertIn("the loss of step 2 is 4.125000000000001 and not 4.125", self.pair("stage0_ddp", summary))
        summary["losses"][1] = "nan"
        self.assertIn("the loss of step 2 is nan and not 4.125", self.pair("stage0_ddp", summary))
        summary["losses"] = [4.25]
        self.assertIn("the number of steps with a loss is 1 and not 2", self.pair("stage0_ddp", summary))

    def test_another_norm_is_named(self):
        summary = honest("stage0_ddp", self.formula["stage0_ddp"])
        summary["grad_norms"][0] = 1.25
        self.assertIn("the gradient norm of step 1 is 1.25 and not 1.5", self.pair("stage0_ddp", summary))

    def test_native_and_ring_show_their_largest_difference_instead(self):
        for kind in ("native", "ring"):
            reference, summary = (honest(p, self.formula[p]) for p in ("baseline", "stage1_optimizer"))
            for each in (reference, summary):
                each["options"]["collectives"] = kind
            summary["losses"][1] += 2e-7
            summary["digest"]["parameters"] = "cd" * 16
            if kind == "native":
                for rank in range(RANKS):
                    for purpose in ("gradients", "parameters", "scalars"):
                        summary["communication"]["ranks"][rank][purpose]["sent"] = None
                    # MPI's own buffers: a slice of sums instead of blocks
                    held = categories(summary, rank)["buckets"]
                    held["peak"] = held["current"] = held["formula"] = 4 * 2**20 + 4 * 1856 // RANKS
            self.make("baseline", reference)
            text = self.pair("stage1_optimizer", summary, status=0)
            self.assertRegex(text, r"stage1_optimizer .* 2e-07\n")

    def test_an_unsharded_program_dressed_as_a_stage_is_found_out_in_words(self):
        for program, lies in (("stage1_optimizer", ["optimizer"]), ("stage2_gradients", ["gradients", "optimizer"]), ("stage3_params", ["parameters", "gradients", "optimizer"])):
            summary = honest(program, self.formula[program])
            for rank in range(RANKS):
                for category in lies:  # its own formula agrees with what it holds
                    whole = categories(summary, rank)[category]["peak"] * RANKS
                    categories(summary, rank)[category] = {"formula": whole, "current": whole, "peak": whole}
            text = self.pair(program, summary)
            for category in lies:
                right = self.formula[program]["memory"][category]
                self.assertIn(f"{program}: {category}: formula {right / 1e3:.1f} kB, measured {right * RANKS / 1e3:.1f} kB", text)

    def test_a_stage_without_sharding_groups_cannot_claim_them(self):
        for program in ("stage1_optimizer", "stage2_gradients"):
            summary = honest(program, self.formula[program])
            summary["options"]["shard-group"] = 1
            for rank in range(RANKS):
                held = categories(summary, rank)["optimizer"]
                held["formula"] = held["current"] = held["peak"] = held["peak"] * RANKS
            self.assertIn(f"{program}: optimizer: formula", self.pair(program, summary))

    def test_one_rank_that_holds_more_is_named(self):
        summary = honest("stage2_gradients", self.formula["stage2_gradients"])
        categories(summary, 1)["gradients"]["peak"] += 4
        self.assertRegex(self.pair("stage2_gradients", summary), r"gradients: formula \d+ B, measured \d+ B on rank 1")

    def test_states_that_are_gone_after_the_last_step_are_named(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        for rank in range(RANKS):
            categories(summary, rank)["optimizer"]["current"] = 0
        self.assertRegex(self.pair("stage1_optimizer", summary), r"optimizer: formula .* kB, after the last step 0 B")

    def test_a_category_or_purpose_that_the_formula_lacks_is_named(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        for rank in range(RANKS):
            categories(summary, rank)["hoard"] = {"formula": 5000, "current": 5000, "peak": 5000}
            summary["communication"]["ranks"][rank]["gossip"] = {"collective": "all_gather", "formula": 7, "sent": 7, "calls": 1}
        text = self.pair("stage1_optimizer", summary)
        self.assertIn("hoard: formula 0 B, measured 5.0 kB", text)
        self.assertIn("sent for gossip: formula 0 B, measured 7 B", text)

    def test_bytes_sent_that_are_not_the_formulas_are_named(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        for rank in range(RANKS):  # an all-reduce that throws most of it away
            summary["communication"]["ranks"][rank]["gradients"]["sent"] *= 2
        self.assertRegex(self.pair("stage1_optimizer", summary), r"sent for gradients: formula .* kB, measured .* kB")

    def test_bytes_left_open_without_native_collectives_are_named(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        for rank in range(RANKS):
            summary["communication"]["ranks"][rank]["gradients"]["sent"] = None
        summary["communication"]["ranks"][1]["parameters"]["sent"] += 1  # not hidden by what is left open
        text = self.pair("stage1_optimizer", summary)
        self.assertIn("stage1_optimizer: gradients: sent is not counted, and only native collectives leave that open", text)
        self.assertIn("stage1_optimizer: sent for parameters: formula", text)
        self.assertNotIn("native collectives do not show", text)

    def test_calls_that_are_not_the_formulas_are_named(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        right = self.formula["stage1_optimizer"]["communication"]["gradients"]["calls"]
        summary["communication"]["ranks"][1]["gradients"]["calls"] = right + 5
        for rank in range(RANKS):
            del summary["communication"]["ranks"][rank]["parameters"]["calls"]
        text = self.pair("stage1_optimizer", summary)
        self.assertIn(f"stage1_optimizer: calls for gradients: formula {right}, counted {right + 5} on rank 1", text)
        self.assertRegex(text, r"stage1_optimizer: calls for parameters: formula \d+, missing from the summary")

    def test_a_peak_above_the_sum_of_its_categories_is_named(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        device = summary["memory"]["ranks"][1]["tiers"]["device"]
        device["peak"] = sum(held["peak"] for held in device["categories"].values())
        self.pair("stage1_optimizer", summary, status=0)
        device["peak"] = 10**9
        self.assertRegex(self.pair("stage1_optimizer", summary), r"stage1_optimizer: device: peak 1.0 GB, categories add up to \d+\.\d [kM]B on rank 1")

    def test_another_number_of_parameters_is_named(self):
        for program in ("baseline", "stage3_params"):
            padded = self.formula[program]["padded_parameters"]
            for key, what, formula in (("parameters", "number of parameters", 4103), ("padded_parameters", "number of parameters with padding", padded)):
                summary = honest(program, self.formula[program])
                summary[key] += 1
                self.make(program, summary)
                text = self.run_compare("--programs", program, status=1).replace("\n  ", " ")
                self.assertIn(f"{program}: {what}: formula {formula}, the summary says {formula + 1}", text)
                del summary[key]
                self.make(program, summary)
                text = self.run_compare("--programs", program, status=1).replace("\n  ", " ")
                self.assertIn(f"{program}: {what}: formula {formula}, missing from the summary", text)

    def test_no_number_makes_the_table_wider_than_100_columns(self):
        path = self.make("a_program_of_a_name_that_is_rather_long_for_a_table", honest("stage1_optimizer", self.formula["stage1_optimizer"]), folder="mine")
        summary = honest("stage0_ddp", self.formula["stage0_ddp"])
        summary["losses"] = [-1e300, -1e300]
        summary["grad_norms"] = [1e300, 1e300]
        summary["seconds"]["total"] = [1e-9]
        for rank in range(RANKS):
            for held in categories(summary, rank).values():
                held["peak"] = 2**50
        self.make("stage0_ddp", summary)
        full = honest("offload-3-nvme-nvme", self.formula["offload-3-nvme-nvme"])
        for rank in range(RANKS):
            for tier in ("host", "nvme"):
                for held in categories(full, rank, tier).values():
                    held["peak"] = 2**50
            for moved in full["offload"]["ranks"][rank].values():
                if isinstance(moved, dict):
                    moved["moved"] = 2**50
        self.make("offload-3-nvme-nvme", full)
        slow = honest("baseline", self.formula["baseline"])
        slow["seconds"]["total"] = [1e6]
        self.make("baseline", slow)
        text = self.run_compare("--programs", "baseline,0,offload-3-nvme-nvme", "--nvme-path", "d", "--with", path, status=1)
        self.assertLessEqual(max(map(len, text.splitlines())), 100, text)

    def test_a_program_that_ran_something_else_is_named(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        summary["options"]["micro-batch"] = 2
        summary["options"]["global-batch"] = 2 * RANKS
        self.assertIn("it ran with --micro-batch 2 and baseline with 1", self.pair("stage1_optimizer", summary))
        summary = honest("stage0_ddp", self.formula["stage0_ddp"])
        self.assertIn("stage1_optimizer: its summary calls it stage0_ddp", self.pair("stage1_optimizer", summary))

    def test_a_students_program_is_judged_by_the_formula_of_the_stage_it_names(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        path = self.make("stage1_optimizer", summary, folder="mine")
        text = self.run_compare("--programs", "baseline,stage1_optimizer", "--with", path)
        self.assertRegex(text, r"stage1_optimizer-2 .* yes\n")
        for rank in range(RANKS):
            categories(summary, rank)["optimizer"] = {"formula": 1, "current": 1, "peak": 1}
        path = self.make("my_zero", summary, folder="mine")
        text = self.run_compare("--programs", "baseline", f"--with={path}", status=1)
        self.assertRegex(text.replace("\n  ", " "), r"my_zero: optimizer: formula \d+\.\d kB, measured 1 B")

    def test_a_program_of_no_known_stage_is_judged_by_its_own_formula(self):
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        summary["executable"] = "\x1b[31mmy_zero"
        categories(summary, 0)["optimizer"]["peak"] += 1
        path = self.make("my_zero", summary, folder="mine")
        text = self.run_compare("--programs", "baseline", "--with", path, status=1)
        self.assertIn("optimizer: formula", text)
        self.assertIn("- my_zero: no formula of ours for the name ?[31mmy_zero in its summary; judged by its own", text.replace("\n  ", " "))
        self.assertNotIn("\x1b", text)
        summary = honest("stage1_optimizer", self.formula["stage1_optimizer"]) | {"executable": "mine"}
        text = self.run_compare("--programs", "baseline", "--with", self.make("mine", summary, folder="mine"))
        self.assertIn("- mine: no formula of ours for this name; judged by its own", text)

    def largest_of(self, most, *arguments, status=0):
        """What --largest finds of programs that have memory for `most` layers: its JSON."""
        before = 'for argument in "$@"; do [ "$word" = --layers ] && layers=$argument; word=$argument; done\n'
        before += f"[ $layers -gt {most} ] && echo 'error: asked for 8 B (optimizer) with 5 B of 9 B held on the host; ask plan what fits' >&2 && exit 3"
        self.make("baseline", honest("baseline", self.formula["baseline"]), before=before)
        self.run_compare("--largest", "--programs", "baseline", "--json", "l.json", *arguments, status=status)
        with open(os.path.join(self.folder, "l.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_the_largest_model_is_found_from_the_formulas_in_two_runs(self):
        shapes = ["--width", "64", "--heads", "4", "--context", "64", "--micro-batch", "1"]
        command = [PLAN, f"--world={RANKS}", "--stage=baseline", "--device-memory=16MiB", "--json", *shapes]
        formula = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)["stages"][0]["largest_layers"]
        for most, runs in ((formula, 2), (formula + 1, 4), (formula - 1, 2)):
            result = self.largest_of(most, "--host-memory", "1MiB")
            program = result["programs"][0]
            self.assertEqual((program["layers"], program["runs"], program["ended_by"]), ({"formula": formula, "measured": most}, runs, "host"))
            self.assertTrue(result["right"])
        self.assertEqual(self.arguments("baseline"), ["--as-world", str(RANKS), "--host-memory", "1MiB", "--steps", "1", "--device-memory", "16MiB", "--backend", "cpu", *[shapes[i] for i in (2, 3, 0, 1, 4, 5, 6, 7)], "--layers", str(formula - 1)])

    def test_a_largest_model_that_is_not_the_formulas_is_found_and_named(self):
        for most in (0, 1, 40, 10_000):
            result = self.largest_of(most, status=1)
            self.assertEqual(result["programs"][0]["layers"]["measured"], most)
            self.assertLess(result["programs"][0]["runs"], 30)
            self.assertFalse(result["right"])

    def test_a_run_of_largest_that_fails_for_another_reason_ends_it(self):
        for status, words in ((2, "--heads 3 does not divide --width 64"), (3, "rank 1 was lost"), (3, "this machine has 1 GiB; the plan program says what fits")):
            self.make("baseline", {}, before=f"echo 'error: {words}' >&2; exit {status}")
            self.assertIn(words, self.run_compare("--largest", "--programs", "baseline", status=status))

    def test_a_summary_that_cannot_be_used_is_refused_with_one_sentence(self):
        good = honest("baseline", self.formula["baseline"])

        def changed(change, of=good):
            summary = copy.deepcopy(of)
            change(summary)
            return summary

        for summary, word in (
            ("", "is not JSON"),
            (json.dumps(good)[:-20], "is not JSON"),
            ("[" * 100000, "nests deeper than 32 levels"),
            (json.dumps(good).replace('"tiny"', '{"a":' * 10**6 + "1" + "}" * 10**6), "nests deeper than 32 levels"),
            ("[]", "is not an object"),
            (json.dumps(good).replace("4.25", "1e999"), "is not JSON"),
            (changed(lambda s: s.update(schema=2)), "schema"),
            (changed(lambda s: s.update(world=3)), "world"),
            (changed(lambda s: s.update(world=-1)), "world"),
            (changed(lambda s: s.update(losses=[])), "losses"),
            (changed(lambda s: s.update(losses="none")), "losses"),
            (changed(lambda s: s.update(losses=[1.0, None])), "losses[1]"),
            (changed(lambda s: s.update(options=[])), "options"),
            (changed(lambda s: s["options"].update({"layers": "many"})), "--layers"),
            (changed(lambda s: s["options"].update({"layers": 10**11})), "too large"),
            (changed(lambda s: s["options"].update({"global-batch": 3})), "--global-batch 3"),
            (changed(lambda s: s["digest"].pop("variance")), "variance"),
            (changed(lambda s: s["memory"]["ranks"].pop()), "memory.ranks"),
            (changed(lambda s: s["memory"]["ranks"][0].update(rank=1)), "rank"),
            (changed(lambda s: categories(s, 0)["optimizer"].update(peak=1e300)), "optimizer.peak"),
            (changed(lambda s: categories(s, 0)["optimizer"].update(peak=2**63)), "optimizer.peak"),
            (changed(lambda s: categories(s, 0).update({f"c{i}": {} for i in range(1000)})), "too many"),
            (changed(lambda s: s["communication"]["ranks"][0].update(gradients={"formula": 1})), "sent"),
            (changed(lambda s: s.update(offload={"ranks": [{"rank": 1}]})), "offload.ranks[0].rank"),
            (changed(lambda s: s.update(offload={"ranks": [{"rank": 0, "up": {"formula": 1}}]})), "up has no moved"),
            (changed(lambda s: s.update(offload=[])), "offload is not an object"),
            (changed(lambda s: s["seconds"].pop("total")), "total"),
            (changed(lambda s: s["seconds"].update(total=[])), "seconds.total is empty"),
            *((changed(lambda s, v=value: s["seconds"].update(total=[0.5, v])), "seconds.total[1] is") for value in (-0.5, 0, 1e-300, 1e300, "nan", "inf", None)),
            *((changed(lambda s, v=value: s.update(tokens_per_second=v)), "tokens_per_second is") for value in (-1, 0, 1e300, "nan", "inf")),
            (changed(lambda s: s.update(parameters=-1)), "parameters is not a whole number"),
            (changed(lambda s: s["communication"]["ranks"][0].update(gradients={"formula": 1, "sent": 1, "calls": 0.5})), "gradients.calls"),
        ):
            with self.subTest(word=word):
                self.make("baseline", summary)
                sentence = self.run_compare("--programs", "baseline", status=2)
                self.assertIn(word, sentence)
                self.assertLess(len(sentence), 700)
        self.make("baseline", good)
        twice = honest("stage1_optimizer", self.formula["stage1_optimizer"])
        twice["memory"]["ranks"][1]["rank"] = 0
        self.assertIn("memory.ranks[1].rank is 0", self.pair("stage1_optimizer", twice, status=2))

    def test_a_summary_that_is_missing_or_old_is_refused(self):
        self.run_compare("--programs", "baseline", "--out", "kept")
        self.make("baseline", honest("baseline", self.formula["baseline"]), before="exit 0")
        sentence = self.run_compare("--programs", "baseline", "--out", "kept", status=2)
        self.assertIn("baseline ended with status 0 but", sentence)
        self.assertIn("was not written; docs/summary.md says", sentence)

    def test_a_programs_own_failure_is_passed_on(self):
        for status in (1, 2, 3):
            self.make("stage2_gradients", {}, before=f"echo noise; echo 'error: --lr 0 is no rate; 1e-3 would do' >&2; exit {status}")
            sentence = self.run_compare("--programs", "baseline,stage2_gradients", status=status)
            self.assertIn(f"stage2_gradients ended with status {status}: --lr 0 is no rate; 1e-3 would do", sentence)
        self.make("baseline", {}, before="kill -SEGV $$")
        self.assertIn("baseline ended with status 139", self.run_compare("--programs", "baseline", status=3))

    def test_a_program_that_hangs_is_ended_with_all_it_started(self):
        marker = os.path.join(self.folder, "pids")
        self.make("stage1_optimizer", {}, before=f"trap '' TERM; sleep 300 & echo $! >> {marker}; echo $$ >> {marker}; wait; sleep 300")
        begin = time.monotonic()
        sentence = self.run_compare("--programs", "baseline,stage1_optimizer", "--limit", "2", status=3)
        self.assertIn("stage1_optimizer was still running after --limit 2 seconds", sentence)
        self.assertLess(time.monotonic() - begin, 30)
        with open(marker, encoding="utf-8") as file:
            for pid in file.read().split():
                self.assertFalse(os.path.exists(f"/proc/{pid}"), f"process {pid} was left behind")

    def test_an_interrupt_ends_the_running_program(self):
        marker = os.path.join(self.folder, "pid")
        self.make("baseline", {}, before=f"echo $$ > {marker}; sleep 300")
        process = subprocess.Popen([os.path.join(self.folder, "compare"), "-n", "2"], stderr=subprocess.PIPE, text=True, cwd=self.folder)
        for _ in range(300):
            if os.path.exists(marker) and os.path.getsize(marker) > 0:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 3)
        self.assertIn("interrupted while baseline ran", errors)
        with open(marker, encoding="utf-8") as file:
            self.assertFalse(os.path.exists(f"/proc/{file.read().strip()}"))

    def test_options_that_cannot_be_used_are_refused_before_anything_runs(self):
        for arguments, word in (
            (["-n", "0"], "-n"),
            (["-n", "many"], "-n"),
            (["--limit", "0"], "--limit"),
            (["--limit", "nan"], "--limit"),
            (["--programs", "stage9"], "stage9"),
            (["--programs", ""], "--programs"),
            (["--with", "nowhere"], "nowhere"),
            (["--with", "baseline.json"], "baseline.json is not a program"),
            (["--with", "/tmp"], "/tmp is a directory; --with takes"),
            (["--with", "/dev/null"], "/dev/null is not a file; --with takes"),
            (["--as-world", "4"], "--as-world"),
            (["--json", "no/such/folder/c.json"], "--json"),
            (["--csv", "/"], "--csv"),
            (["--out", "baseline"], "--out"),
            (["--json"], "--json needs a value"),
            (["--out", "--steps", "1"], "--out needs a value"),
            (["--progams", "1", "--jsno", "x"], "--progams is not an option of compare or of the programs; --programs is, and compare --help"),
            (["--stpes=1", "--progams", "1"], "--stpes=1 is not an option of compare or of the programs; --steps is"),
            (["--widht", "8"], "--widht is not an option of compare or of the programs; --width is"),
            (["--nonsense"], "--nonsense is not an option of compare or of the programs; compare --help lists them"),
            (["--stage", "4"], "offload has no --stage 4 with"),
            (["--programs", "offload", "--offload-optimizer", "none"], "offload has no --stage by default with --offload-optimizer none"),
            (["--offlaod-params", "host"], "--offload-params is, and compare --help"),
            (["--largest", "--layers", "3"], "--layers is what --largest chooses"),
            (["--largest", "--steps=3"], "--steps is what --largest chooses"),
            (["--largest", "--verify"], "--verify holds a baseline beside the run"),
            (["--largest", "--plot", "c.png"], "--plot has no meaning with --largest"),
            (["--largest", "--device-memory", "lots"], "--device-memory: "),
            (["--largest", "--model", "huge"], "--model 'huge' is not known"),
            (["--verify", "1"], "'1' stands where an option is expected"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(word, self.run_compare(*arguments, status=2))
                self.assertFalse(os.path.exists(os.path.join(self.folder, "baseline.arguments")))
        self.assertFalse([name for name in os.listdir(self.folder) if "partial" in name])

    def test_the_options_of_all_programs_are_known(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/program_options.h"), encoding="utf-8") as file:
            known = set(re.findall(r'"([a-z][a-z0-9-]*)"', file.read())) | {"version"}
        offered = set()
        for program in (*STAGES, "offload"):
            path = os.path.join(os.path.dirname(COMPARE), program)
            text = subprocess.run([path, "--help"], check=True, capture_output=True, text=True, timeout=60).stdout
            offered |= set(re.findall(r"^  (?:-\w, ?)?--([a-z][a-z0-9-]*)", text, re.MULTILINE))
        self.assertEqual(known - offered, set())
        self.assertEqual(offered - known, set())

    def test_a_program_that_was_not_built_is_named(self):
        os.remove(os.path.join(self.folder, "stage3_params"))
        self.assertIn("stage3_params does not exist", self.run_compare(status=2))

    def test_the_plot_is_drawn_or_one_sentence_says_why_not(self):
        shutil.copy2(os.path.join(os.path.dirname(COMPARE), "plot_compare.py"), self.folder)
        command = [os.path.join(self.folder, "compare"), "-n", str(RANKS), "--programs", "baseline,stage1_optimizer", "--plot", "c.png"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        if os.path.exists(os.path.join(self.folder, "c.png")):
            with open(os.path.join(self.folder, "c.png"), "rb") as file:
                self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        else:
            self.assertRegex(result.stderr, re.compile(r"^note: c\.png was not drawn: .*matplotlib", re.MULTILINE))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
