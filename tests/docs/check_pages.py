#!/usr/bin/env python3
"""Runs the commands of the README and the chapters, and compares what they print with what the page shows.

    check_pages.py --bin build/bin PAGE...            status 1 where a page shows something else, or links to nothing
    check_pages.py --bin build/bin --update PAGE...   rewrites the output in the page where it is not true any more

A command is checked when the comment <!-- check --> stands before it; the next fenced block is what it prints:

    <!-- check -->
    ```sh
    build/bin/plan --world 2
    ```
    ```text
    ...
    ```

Where the command is not to be shown, or another one is, the comment holds it: <!-- check: build/bin/plan --world 2 -->, and
the next fenced block is its output. Commands run in an empty folder that looks like the repository's root.

Compared are standard output and the exit status, which must be 0. Times, rates and what a machine has (its vector
instructions, its transport, its way to files) are not compared, nor is the width of a gap between words. An update
writes "..." for them, and with --times, on a machine that does nothing else, what was printed.
"""
import argparse
import difflib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"<!-- check(?:: (.+))? -->$")
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def dots(text):
    """In place of a column: as wide, so that columns stay columns."""
    return " ...".rjust(len(text))


# What is not compared: (pattern, the line without it).
UNSTABLE = [
    # A step: its milliseconds and tokens per second, and the time left.
    (re.compile(r"^( +\d+ +\S+ +\S+ +(?:ok|clipped|not finite) +\S+)( +\S+)( +\S+)(?: +\S.* left)?$"),
     lambda m: m[1] + dots(m[2]) + dots(m[3])),
    # A row of compare: seconds per step and tokens per second.
    (re.compile(r"^((?:baseline|stage\d_\w+|offload-\S+)(?: +\S+){6})( +\S+)( +\S+)((?: +\S+){2})$"),
     lambda m: m[1] + dots(m[2]) + dots(m[3]) + m[4]),
    (re.compile(r"^(  device .*cpu,) \S+( kernels.*)$"), lambda m: m[1] + " ..." + m[2]),
    (re.compile(r"^(  collectives +canonical over) .*$"), lambda m: m[1] + " ..."),
    (re.compile(r"^(swap files by) .*$"), lambda m: m[1] + " ..."),
]


class Block:
    """A command and the lines [begin, end) of the page that show its output."""

    def __init__(self, line, command, begin, end):
        self.line, self.command, self.begin, self.end = line, command, begin, end


def fence(lines, at):
    """The next fenced block from line `at`: the indices of its content, begin and end."""
    while at < len(lines) and not lines[at].startswith("```"):
        at += 1
    begin = end = at + 1
    while end < len(lines) and lines[end] != "```":
        end += 1
    if end >= len(lines):
        raise ValueError("no fenced block follows")
    return begin, end


def blocks(lines):
    found = []
    for at, line in enumerate(lines):
        mark = MARK.match(line)
        if not mark:
            if "<!-- check" in line:
                raise ValueError(f"line {at + 1}: not a mark that this script knows: {line}")
            continue
        command, after = mark[1], at
        if command is None:
            begin, after = fence(lines, at)
            command = "\n".join(lines[begin:after])
            after += 1
        begin, end = fence(lines, after)
        found.append(Block(at + 1, command, begin, end))
    return found


def masked(line):
    for pattern, without in UNSTABLE:
        line = pattern.sub(without, line)
    return line


def stable(lines):
    return [" ".join(masked(line).split()) for line in lines]


def output_of(command, folder, limit):
    """Standard output, without empty lines at its end, of a command that must end with status 0."""
    process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", command], cwd=folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, error = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise RuntimeError(f"not done after {limit} s") from None
    if process.returncode != 0:
        raise RuntimeError(f"status {process.returncode}\n{out}{error}")
    return out.rstrip("\n").split("\n")


def updated(shown, printed):
    """What the page shows from now on: lines that are still true stay as they are."""
    old = {" ".join(masked(line).split()): line for line in shown}
    return [old.get(key, masked(line)) for key, line in zip(stable(printed), printed)]


def fill_like_root(folder, bin_folder):
    """Fills the folder with links to what is in the repository, so that commands leave nothing in it."""
    for entry in ROOT.iterdir():
        if entry.name not in ("out", "build", ".git"):
            (folder / entry.name).symlink_to(entry)
    (folder / "build").mkdir()
    (folder / "build" / "bin").symlink_to(bin_folder)


def check(page, folder, arguments):
    """The number of commands that were run, and the faults found."""
    name = os.path.relpath(page, ROOT)
    lines = page.read_text().split("\n")
    faults = []
    for target in LINK.findall("\n".join(lines)):
        if "://" not in target and not (page.parent / target).exists():
            faults.append(f"{name} links to {target}, which is not there")
    found = blocks(lines)
    for block in reversed(found):  # from the end, so that an update does not move the others
        try:
            printed = output_of(block.command, folder, arguments.limit)
        except RuntimeError as error:
            faults.append(f"{name}:{block.line}: {block.command}: {error}")
            continue
        shown = lines[block.begin:block.end]
        before, now = stable(shown), stable(printed)
        if before == now and not arguments.times:
            continue
        if arguments.update or arguments.times:
            lines[block.begin:block.end] = printed if arguments.times else updated(shown, printed)
            print(f"{name}:{block.line}: rewritten: {block.command}")
        else:
            difference = "\n".join(difflib.unified_diff(before, now, "shown", "printed", lineterm="", n=1))
            faults.append(f"{name}:{block.line}: {block.command}: does not print what is shown; {Path(__file__).name} "
                          f"--update rewrites it\n{difference}")
    if arguments.update or arguments.times:
        page.write_text("\n".join(lines))
    return len(found), faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="the folder of the programs")
    parser.add_argument("--update", action="store_true", help="rewrite the output in the pages")
    parser.add_argument("--times", action="store_true", help="rewrite it with the times and rates of this machine")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a command (default 300)")
    parser.add_argument("pages", type=Path, nargs="+")
    arguments = parser.parse_args()
    count, faults = 0, []
    with tempfile.TemporaryDirectory() as temporary:
        fill_like_root(Path(temporary), arguments.bin.resolve())
        for page in arguments.pages:
            try:
                more, wrong = check(page.resolve(), Path(temporary), arguments)
            except ValueError as error:
                more, wrong = 0, [f"{page}: {error}"]
            if more == 0 and not wrong:
                wrong = [f"{page}: nothing in it is marked with <!-- check -->"]
            count += more
            faults += wrong
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{count} commands run, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
