"""What a process holds above what the ledger counts, for gpt2 on two ranks:

  memory/gpt2/STAGE_process_over_ledger   the process's peak over the ledger's peak plus a constant

The constant is what the libraries and MPI take: the peak of a process with a model of one small layer, minus its ledger.
"""

import argparse
import subprocess
import sys

from programs import SHAPES, Broken, note, print_ratio, run_program

RANKS = 2


def peaks(build, program, options):
    """(process, ledger) in bytes, of the rank whose process holds more."""
    ranks = run_program(build, program, RANKS, options)["memory"]["ranks"]
    return max((rank["process_peak"], rank["tiers"]["device"]["peak"]) for rank in ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--quick", action="store_true", help="small in place of gpt2")
    options = parser.parse_args()
    name = "small" if options.quick else "gpt2"
    try:
        for stage, program in [("stage0", "stage0_ddp"), ("stage3", "stage3_params")]:
            process, ledger = peaks(options.build, program, ["--model", "tiny", "--layers", "1", "--steps", "2"])
            constant = process - ledger
            process, ledger = peaks(options.build, program, SHAPES[name] + ["--steps", "2"])
            note(
                f"{name}, {stage}, MiB a rank: process {process / 2**20:.1f}, ledger {ledger / 2**20:.1f}, "
                f"constant {constant / 2**20:.1f}"
            )
            print_ratio(f"memory/{name}/{stage}_process_over_ledger", process / (ledger + constant), 1.03)
    except (Broken, subprocess.TimeoutExpired) as error:
        note(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
