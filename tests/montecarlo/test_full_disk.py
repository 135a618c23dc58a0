"""Disks that are really full or read-only: what is finished is kept, and the run goes on afterwards."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NAMESPACES = (["unshare", "-rm"], ["unshare", "-m"], ["sudo", "-n", "unshare", "-m"])
"""Ways to a place where a disk can be mounted and nobody else sees it."""

SCRIPT = """
import os, subprocess, sys
from pathlib import Path
from rmtbase.errors import OutputError
from rmtbase.montecarlo import make_plan, run_in_memory, run_plan
from rmtbase.tables import open_table

disk = Path(sys.argv[1])
mount = lambda *options: subprocess.run(["mount", *options, str(disk)], check=True)
mount("-t", "tmpfs", "-o", "size=64k", "tmpfs")
filler = disk / "filler"
plan = make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 400, 7, chunk=20)
output = disk / "table.nc"

class Filling:
    def __init__(self, fill=False):
        self.fill = fill

    def note(self, line):
        print(line)

    detail = note

    def bar(self, label, total):
        return fill if self.fill else lambda count: None

def fill(count):  # another fills the disk when the first chunk is drawn: nobody can know beforehand
    if not filler.exists():
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        filler.write_bytes(bytes(free - 48_000))

def stopped(fill=False):
    try:
        run_plan(plan, output, progress=Filling(fill))
    except OutputError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("no error")
    assert not output.exists()
    print(len(list(disk.glob("table.nc.chunks/*.chunk"))), sorted(os.listdir(disk)))

stopped()
mount("-o", "remount,size=1m"); stopped(fill=True)
mount("-o", "remount,ro"); stopped()
mount("-o", "remount,rw"); filler.unlink(); mount("-o", "remount,size=136k"); stopped()
mount("-o", "remount,size=1m")
found, expected = run_plan(plan, output, progress=Filling()), run_in_memory(plan)
assert found.identical(expected) and open_table(output).equals(expected)
print(sorted(os.listdir(disk)))
"""


def namespace() -> list[str]:
    for way in NAMESPACES:
        if shutil.which(way[0]) and subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
            return way
    pytest.fail("no way to mount a small disk here: neither user namespaces nor root")


@pytest.mark.exhaustive
def test_full_and_read_only_disks_stop_a_run_and_lose_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*namespace(), sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    chunks = tmp_path / "table.nc.chunks"
    refused, nothing, full, kept, read_only, still, *rest = ended.stdout.splitlines()
    resumed, no_table, all_kept, nothing_left, done = rest
    assert refused.startswith(f"OutputError: cannot write {tmp_path}/table.nc: the run takes ")
    assert "64.0 KiB are free on that disk; make room, write to another disk" in refused
    assert nothing == "0 []"
    assert full.startswith(f"OutputError: cannot write {chunks}/case-0000-draws-")
    assert "No space left on device" in full
    assert kept == still
    finished = int(kept.removesuffix(" ['filler', 'table.nc.chunks']"))
    assert full.endswith(f"; {20 * finished} draws in {finished} chunks are kept in {chunks}, run again to go on")
    assert read_only == f"OutputError: cannot write {tmp_path}/table.nc: Read-only file system (folder {tmp_path})"
    assert resumed == f"resuming: {400 - 20 * finished} draws in {20 - finished} chunks left of 400 draws in 20 chunks"
    assert no_table == (
        f"OutputError: cannot write {tmp_path}/table.nc: No space left on device; "
        f"400 draws in 20 chunks are kept in {chunks}, run again to go on"
    )
    assert all_kept == "20 ['table.nc.chunks']"
    assert nothing_left == "all 20 chunks are there: nothing is left to draw"
    assert done == "['table.nc']"
