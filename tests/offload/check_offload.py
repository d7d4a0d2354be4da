#!/usr/bin/env python3
"""Whole offload programs: models many times their device, unusable input, and storage that fails while a run goes on.
check_offload.py BIN RUN FAULTY CHECK, where CHECK is the name of one of the checks below; FAULTY is faulty_program.
Status 77: this machine does not permit what the check needs."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

binaries, run, faulty = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
folder = pathlib.Path()  # for what runs leave behind
disk = pathlib.Path()  # for swap files
SHAPE = ["--layers", "2", "--heads", "1", "--context", "16", "--micro-batch", "1"]
SMALL = [*SHAPE, "--width", "16"]
ENDLESS = [*SMALL, "--steps", "100000000"]
# Far more parameters than a unit or the activations have elements.
DEEP = ["--layers", "120", "--heads", "1", "--width", "64", "--context", "32", "--vocab", "256", "--micro-batch", "1",
        "--checkpoint-activations", "--precision", "bf16", "--steps", "2"]
SECONDS = 10  # within which everything here ends


def nvme(*more):
    return ["--offload-optimizer", "nvme", "--offload-params", "nvme", "--nvme-path", str(disk), *more]


def command(ranks, program, options):
    """The command line of a program of ours, or of a path; ranks None: without MPI's launcher."""
    line = [program if "/" in program else str(binaries / program), *map(str, options)]
    return [run, "-n", str(ranks), *line] if ranks else line


def open_file(beginning):
    """(process, path) of an open file whose name begins so; a swap file has no name under which it could be opened."""
    for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link).startswith(beginning):
                return int(link.parts[2]), link
        except OSError:  # it has just gone, or is somebody else's
            pass
    return None


class Job:
    """A run in the background, in a process group of its own."""

    def __init__(self, line):
        self.line = line
        self.out = open(folder / "stdout", "w+", encoding="utf-8")
        self.err = open(folder / "stderr", "w+", encoding="utf-8")
        self.process = subprocess.Popen(line, stdout=self.out, stderr=self.err, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.out.close()
        self.err.close()
        end = time.monotonic() + SECONDS
        while open_file(str(disk)):  # the launcher may end before the ranks do
            assert time.monotonic() < end, f"{self.line}: a rank is left behind"
            time.sleep(0.02)

    def text(self):
        return (folder / "stdout").read_text(), (folder / "stderr").read_text()

    def until(self, happens, what):
        """Waits until `happens()` has a value, and returns it."""
        end = time.monotonic() + SECONDS
        while not (value := happens()):
            assert self.process.poll() is None, f"{self.line} ended before {what}: {self.text()}"
            assert time.monotonic() < end, f"{self.line}: no {what} in {SECONDS} s: {self.text()}"
            time.sleep(0.02)
        return value

    def until_it_steps(self):
        self.until(lambda: re.search(r"^ +1 ", self.text()[0], re.MULTILINE), "step 1")

    def swap_file(self, rank):
        """(process, path) of the open swap file of a rank."""
        return self.until(lambda: open_file(f"{disk}/zero-swap-rank{rank}-"), f"swap file of rank {rank}")

    def ended(self, status, words):
        """Ended in time with that status and one sentence that has a match of `words`, nothing left on the disk."""
        try:
            got = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.line} has not ended in {SECONDS} s: {self.text()}") from None
        out, err = self.text()
        lines = [line for line in err.splitlines() if not line.startswith("+ ")]
        assert got == status, f"status {got} instead of {status}: {self.line}\n{out}{err}"
        if words is not None:
            assert len(lines) == 1 and lines[0].startswith("error: ") and re.search(words, lines[0]), \
                f"said instead of one sentence with '{words}': {self.line}\n{err}"
        empty(disk)
        return out


def empty(directory):
    left = os.listdir(directory) if directory.is_dir() else []
    assert not left, f"left behind in {directory}: {left}"


def ends(status, words, ranks, program, options):
    with Job(command(ranks, program, options)) as job:
        return job.ended(status, words)


def train(ranks, program, options):
    """The summary of a run that ends well."""
    ends(0, None, ranks, program, [*options, "--out", folder / "out"])
    return json.loads((folder / "out" / "summary.json").read_text())


def trains_many_times_its_memory():
    cap = 3 << 20
    capped = [*DEEP, "--device-memory", "3MiB"]
    expected = train(1, "stage3_params", DEEP)
    assert 16 * expected["parameters"] >= 8 * cap, f"{expected['parameters']} parameters are too few"
    for options in (["--offload-params", "host"], nvme("--host-memory", "3MiB")):
        summary = train(1, "offload", [*capped, *options])
        assert (summary["digest"], summary["losses"]) == (expected["digest"], expected["losses"]), summary
        for name, tier in summary["memory"]["ranks"][0]["tiers"].items():
            capped_tier = name == "device" or (name == "host" and "--host-memory" in options)
            assert tier["cap"] == (cap if capped_tier else None), tier
            assert not capped_tier or tier["peak"] <= cap, tier
    for program in ("stage2_gradients", "stage3_params"):
        ends(3, r"asked for .* of 3.0 MiB held on the device .*; ask plan what fits", 1, program, capped)
    ends(3, r"asked for .* of 3.0 MiB held on the host", 1, "offload",
         [*capped, "--offload-params", "host", "--host-memory", "3MiB"])


def refuses_a_cap_below_one_unit():
    wide = [*SHAPE, "--width", "384"]  # a block of 6.8 MiB
    for ranks in (1, 3):
        for options in (["--offload-params", "host"], nvme()):
            ends(3, r"asked for .* \(gathered\) .* of 8.0 MiB held on the device", ranks, "offload",
                 [*wide, *options, "--device-memory", "8MiB"])
        ends(3, r"asked for .* \(offload_buffers\) .* held on the host", ranks, "offload",
             [*wide, *nvme("--host-memory", "1MiB")])
        ends(3, r"asked for .* \(offload_buffers\) with 0 bytes of 1.0 KiB held on the host", ranks, "offload",
             [*wide, *nvme("--host-memory", "1KiB")])


def refuses_unusable_options():
    path = ["--nvme-path", disk]
    (folder / "file").write_text("")
    for i, (words, options) in enumerate((
            ("--offload-params host needs slices of parameters.*--stage 3 would do",
             ["--stage", "2", "--offload-params", "host"]),
            ("--offload-optimizer none leaves.*host or nvme would do", ["--offload-optimizer", "none"]),
            ("nvme needs a directory.*--nvme-path DIR", ["--offload-optimizer", "nvme"]),
            ("--nvme-path .* has no meaning without", path),
            ("--delayed-update needs the optimizer in host memory; --offload-optimizer host would do",
             nvme("--delayed-update")),
            (f"--nvme-path {folder}/missing does not exist; create it, or a directory that can be written to",
             ["--offload-optimizer", "nvme", "--nvme-path", folder / "missing"]),
            (f"--nvme-path {folder}/file is not a directory",
             ["--offload-optimizer", "nvme", "--nvme-path", folder / "file"]),
            ("--offload-params nvme needs slices", ["--stage", "2", "--offload-params", "nvme", *path]),
            ("--offload-optimizer none leaves", ["--offload-optimizer", "none", "--offload-params", "host"]),
            ("nvme needs a directory.*--nvme-path DIR", ["--offload-params", "nvme"]),
            ("--nvme-path .* has no meaning without", ["--offload-params", "host", *path]),
            ("--nvme-path ''", ["--offload-optimizer", "nvme", "--nvme-path", ""]),
            ("--stage 1 is not one of 2, 3", ["--stage", "1"]),
            ("--offload-optimizer disk is not one of", ["--offload-optimizer", "disk"]),
            ("--offload-params device is not one of", ["--offload-params", "device"]),
            ("--delay-after 3 has no meaning without --delayed-update", ["--delay-after", "3"]),
            ("--tile 17 is more than the 16 outputs", ["--tile", "17"]),
            ("--tile 2 with --checkpoint-activations", ["--tile", "2", "--checkpoint-activations"]),
            ("--shard-group is not an option of offload; stage3_params offers it", ["--shard-group", "1"]),
            ("--as-world is not an option of offload; baseline offers it", ["--as-world", "2"]),
            ("--accumulation local-first is not offered by offload", ["--accumulation", "local-first"]))):
        for ranks in (None, 3) if i < 7 else (None,):
            ends(2, words, ranks, "offload", [*SMALL, *options])


def refuses_a_directory_without_permission():
    if os.geteuid() == 0:
        skip("root may write to every directory")
    disk.chmod(0o555)
    for ranks in (1, 3):
        ends(2, r"--nvme-path .* cannot be written to \(Permission denied\)", ranks, "offload", [*SMALL, *nvme()])
    disk.chmod(0o755)


def skip(why):
    print(f"skipped, not permitted here: {why}")
    sys.exit(77)


def on_a_file_system(mount, script, line):
    """The command line that runs `script`, in which "$@" is `line`, where `disk` is a file system of its own."""
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    mounted = f'mount {mount} none "{disk}" && '
    if subprocess.run([*alone, "sh", "-c", mounted + "true"], capture_output=True, check=False).returncode != 0:
        skip("to mount a file system")
    return [*alone, "sh", "-c", mounted + script, "sh", *line]


ALONE = '{ "$@"; status=$?; test -z "$(ls -A "%s")" || echo "error: left behind"; exit $status; }'


def ends_on(mount, status, words, ranks, options):
    with Job(on_a_file_system(mount, ALONE % disk, command(ranks, "offload", options))) as job:
        return job.ended(status, words)


def needs_room_and_a_directory_it_may_write_to():
    size = r"[0-9.]+ [KM]iB"
    for ranks in (1, 3):
        ends_on("-t tmpfs -o ro", 2, r"--nvme-path .* cannot be written to \(Read-only file system\)", ranks,
                [*SMALL, *nvme()])
        # Of 380 KiB on one rank; on three, room for the first one's file only.
        ends_on("-t tmpfs -o size=128k", 3, rf"no room for a swap file: {size} needed, {size} free", ranks,
                [*SHAPE, "--width", "32", *nvme()])
    # All the room that a run needs is taken at its start: who fills the rest disturbs nothing.
    fill = 'until grep -q "swap files by" "$0"; do sleep 0.02; done; ! cat /dev/zero >"%s/other" 2>"$0.full"'
    script = '{ "$@" & job=$!; set -- "%s"; ' + fill.replace('"$0', '"%s') + '; rm "%s/other"; wait $job; }'
    out = folder / "stdout"
    line = command(3, "offload", [*SMALL, "--steps", "300", *nvme()])
    with Job(on_a_file_system("-t tmpfs -o size=4m", script % ("", out, disk, out, disk), line)) as job:
        job.ended(0, None)


def works_without_direct_io():
    for ranks in (1, 3):
        out = ends_on("-t ramfs", 0, None, ranks, [*SMALL, *nvme("--steps", "3")])
        assert "page cache (no O_DIRECT here" in out, out
        expected = train(ranks, "stage3_params", [*SMALL, "--steps", "3"])["digest"]
        for kind, digest in expected.items():
            assert re.search(rf"^digest {kind} +{digest}$", out, re.MULTILINE), f"{kind}: not {digest} in\n{out}"


def keeps_a_second_run_out_of_its_directory():
    for ranks in (1, 3):
        with Job(command(ranks, "offload", [*ENDLESS, *nvme()])) as first:
            first.until_it_steps()
            second = subprocess.run(command(ranks, "offload", [*SMALL, *nvme()]), capture_output=True, text=True,
                                    timeout=SECONDS, check=False)
            assert second.returncode == 2, second
            said = second.stderr.splitlines()[-1]
            assert said.endswith(f"--nvme-path {disk} is in use by another run; another directory would do"), said
            assert first.process.poll() is None, first.text()
        train(ranks, "offload", [*SMALL, *nvme("--steps", "2")])  # the directory is free again


def tamper(how, words):
    """Does `how(file, i)` for i = 0, 1, ... to the swap file of each rank in turn, until the run ends."""
    for ranks in (1, 3):
        for rank in {0, ranks - 1}:
            with Job(command(ranks, "offload", [*ENDLESS, *nvme()])) as job:
                job.until_it_steps()
                file = os.open(job.swap_file(rank)[1], os.O_RDWR)
                try:
                    end = time.monotonic() + SECONDS
                    i = 0
                    while job.process.poll() is None and time.monotonic() < end:
                        how(file, i)
                        time.sleep(0.1)
                        i += 1
                finally:
                    os.close(file)
                job.ended(3, rf"rank {rank}: {disk}/zero-swap-rank{rank}-\w+, offset \d+: .*({words})")


def names_a_truncated_file():
    # A write to the end of the file makes it as long as it was; what is lost is missed then.
    tamper(lambda file, _: os.ftruncate(file, 8192), "truncated|checksum")


def names_an_enlarged_file():
    tamper(lambda file, _: os.ftruncate(file, os.fstat(file).st_size + 1), "enlarged")


def names_a_flipped_bit():
    def flip(file, i):  # another bit each time: what was flipped may have been written over before it was read
        offset = os.fstat(file).st_size // 2
        os.pwrite(file, bytes([os.pread(file, 1, offset)[0] ^ 1 << i % 8]), offset)

    tamper(flip, "checksum")


def ends_when_a_rank_is_killed():
    for ranks, rank in ((1, 0), (3, 0), (3, 1)):
        with Job(command(ranks, "offload", [*ENDLESS, *nvme()])) as job:
            job.until_it_steps()
            os.kill(job.swap_file(rank)[0], signal.SIGKILL)
            job.ended(3, "signal 9")


def ends_when_the_disk_of_one_rank_fails():
    for ranks, rank, fault, at, words in ((1, 0, "fails write", 500, "No space left on device"),
                                          (3, 0, "fails read", 5, "Input/output error"),
                                          (3, 1, "fails read", 500, "Input/output error"),
                                          (3, 0, "fails write", 501, "No space left on device"),
                                          (3, 1, "fails write", 3, "No space left on device"),
                                          (3, 2, "is_short read", 501, "read .* of"),
                                          (3, 1, "is_short write", 502, "wrote .* of"),
                                          (3, 2, "flips_a_bit read", 503, "checksum")):
        ends(3, rf"rank {rank}: {disk}/zero-swap-rank{rank}-\w+, offset \d+: .*{words}", ranks, faulty,
             [*fault.split(), at, rank, disk, *ENDLESS])


def main():
    global folder, disk
    with tempfile.TemporaryDirectory(prefix="zero_test_") as scratch:
        folder = pathlib.Path(scratch)
        disk = folder / "disk"
        disk.mkdir()
        globals()[sys.argv[4]]()


if __name__ == "__main__":
    main()
