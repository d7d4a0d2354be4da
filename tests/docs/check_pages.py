#!/usr/bin/env python3
"""Runs the commands of the README and the chapters, and compares what they print with what the page shows.

    check_pages.py --bin build/bin PAGE...            status 1 where a page shows something else, or links to nothing
    check_pages.py --bin build/bin --update PAGE...   rewrites the output in the page instead

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
instructions, its transport) are not compared, nor is the width of a gap between words. A page that shows "..." for them
keeps it in an update; a page that shows numbers gets new ones for the lines that had to change.
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

# What is not compared: (pattern, the same line without it).
UNSTABLE = [
    # A step: its milliseconds and tokens per second, and the time left.
    (re.compile(r"^( +\d+ +\S+ +\S+ +(?:ok|clipped|not finite) +\S+) +\S+ +\S+(?: +\S.* left)?$"), r"\1        ...        ..."),
    # A row of compare: seconds per step and tokens per second.
    (re.compile(r"^((?:baseline|stage\d_\w+)(?: +\S+){6}) +\S+ +\S+((?: +\S+){2})$"), r"\1  ...  ...\2"),
    (re.compile(r"^(  device .*cpu,) \S+ kernels"), r"\1 ... kernels"),
    (re.compile(r"^(  collectives +canonical over) .*$"), r"\1 ..."),
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
    for pattern, replacement in UNSTABLE:
        line = pattern.sub(replacement, line)
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
    """What the page shows from now on: lines that are still true as they stand."""
    result = []
    for at, line in enumerate(printed):
        before = shown[at] if at < len(shown) else "..."
        if stable([before]) == stable([line]):
            result.append(before)
        else:
            result.append(masked(line) if "..." in before or masked(before) == before else line)
    return result


def looks_like_root(folder, bin_folder):
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
        if before == now:
            continue
        if arguments.update:
            lines[block.begin:block.end] = updated(shown, printed)
            print(f"{name}:{block.line}: rewritten: {block.command}")
        else:
            difference = "\n".join(difflib.unified_diff(before, now, "shown", "printed", lineterm="", n=1))
            faults.append(f"{name}:{block.line}: {block.command}: does not print what is shown; {Path(__file__).name} "
                          f"--update rewrites it\n{difference}")
    if arguments.update:
        page.write_text("\n".join(lines))
    return len(found), faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="the folder of the programs")
    parser.add_argument("--update", action="store_true", help="rewrite the output in the pages")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a command (default 300)")
    parser.add_argument("pages", type=Path, nargs="+")
    arguments = parser.parse_args()
    count, faults = 0, []
    with tempfile.TemporaryDirectory() as temporary:
        looks_like_root(Path(temporary), arguments.bin.resolve())
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
