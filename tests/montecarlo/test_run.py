"""A run that is killed, or finds what it should not, ends in the table of an undisturbed run or in a clear error."""

import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from rmtbase.errors import OutputError, ParameterError, StoreError
from rmtbase.linalg import arithmetic
from rmtbase.montecarlo import (
    LocalProcesses,
    Store,
    compute_chunk,
    element_baseline,
    make_plan,
    open_store,
    read_plan,
    run_in_memory,
    run_plan,
)
from rmtbase.results import open_table
from rmtbase.tables import is_temporary, write_table
from telling import Told


@pytest.fixture
def output(tmp_path):
    return tmp_path / "table.nc"


@pytest.fixture
def chunks(output):
    return output.with_name("table.nc.chunks")


class StopError(Exception):
    pass


def stopping(error, chunk):
    def bar(label, total):
        counts = []

        def progress(count):
            counts.append(count)
            if len(counts) == chunk:
                raise error

        return progress

    return bar


@pytest.fixture
def stopped(plan, output, chunks):
    with pytest.raises(StopError):
        run_plan(plan, output, progress=Told(stopping(StopError, 6)))
    assert len(list(chunks.glob("*.chunk"))) == 5
    return chunks


def test_run_writes_the_table_leaves_nothing_else_and_is_not_drawn_again(plan, output, table, assert_same, watch):
    told = Told()
    assert_same(run_plan(plan, output, progress=told), table)
    assert_same(open_table(output), table)
    assert [file.name for file in output.parent.iterdir()] == ["table.nc"]
    assert told.notes == []
    with pytest.raises(OutputError, match="it is a folder"):
        run_plan(plan, output.parent)
    run_plan(plan, output)
    before, told = watch(output.parent), Told()
    assert_same(run_plan(plan, output, progress=told), table)
    assert told.notes == [f"{output} is the table of this plan already: nothing is left to draw"]
    before.assert_untouched()


def test_resumed_run_draws_only_what_is_left_once_its_folder_can_be_written(
    plan, output, stopped, read_only, watch, table, assert_same
):
    before = watch(output.parent)
    with read_only(stopped), pytest.raises(OutputError, match=r"Permission denied.*; 50 draws in 5 chunks are kept"):
        run_plan(plan, output)
    before.assert_untouched()
    drawn, totals = [], []

    def bar(label, total):
        totals.append(total)
        return drawn.append

    told = Told(bar)
    assert_same(run_plan(plan, output, progress=told), table)
    assert sum(drawn) == 70
    assert totals == [70]
    assert told.notes == ["resuming: 70 draws in 7 chunks left of 120 draws in 12 chunks"]


@pytest.mark.parametrize("damage", ["truncated", "another file", "another table"])
def test_output_that_is_not_this_table_is_replaced_when_the_new_one_is_whole(damage, plan, output, table, assert_same):
    other = run_plan(make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 120, 8, chunk=120), output)
    if damage == "truncated":
        write_table(table, output)
        os.truncate(output, output.stat().st_size // 2)
    elif damage == "another file":
        output.write_text("my notes")
    else:
        assert other.attrs["plan_hash"] != plan.hash
    told = Told()
    assert_same(run_plan(plan, output, progress=told), table)
    assert "to be replaced when the new" in told.notes[0]
    assert str(output) in told.notes[0]
    assert_same(open_table(output), table)


def test_damaged_chunks_are_drawn_again(plan, output, stopped, table, assert_same):
    os.truncate(stopped / "case-0000-draws-0000000020-0000000030.chunk", 100)
    told = Told()
    assert_same(run_plan(plan, output, progress=told), table)
    assert told.notes[0].startswith("not a sound chunk, drawn again: ")
    assert told.notes[1] == "resuming: 80 draws in 8 chunks left of 120 draws in 12 chunks"
    assert not stopped.exists()


def test_another_installation_is_refused_only_where_it_would_draw(plan, output, stopped, table, monkeypatch):
    there = os.environ["XLA_FLAGS"] or "none"
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    differing = f"xla_flags: {there} there, --xla_cpu_enable_fast_math=true here"
    with pytest.raises(StoreError, match=f"another installation .*{differing}"):
        run_plan(plan, output)
    monkeypatch.undo()
    with open_store(stopped, plan) as store:
        for chunk in store.missing():
            store.write(chunk, compute_chunk(plan, chunk, store.settings()["solvers"][0]))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert run_plan(plan, output).attrs == table.attrs


def resume(plan, output):
    with pytest.raises(StoreError) as caught:
        run_plan(plan, output)
    return str(caught.value)


def test_settings_of_jax_that_change_bits_do_not_mix(plan, output, stopped, table, monkeypatch, watch):
    jax.config.update("jax_exec_time_optimization_effort", 0.5)
    try:
        assert "jax_exec_time_optimization_effort: 0.0 there, 0.5 here" in resume(plan, output)
    finally:
        jax.config.update("jax_exec_time_optimization_effort", 0.0)
    before, there = watch(output.parent), os.environ["XLA_FLAGS"]
    with jax.disable_jit():
        assert "jax_disable_jit: False there, True here" in resume(plan, output)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere --xla_cpu_enable_fast_math=true")
    assert f"xla_flags: {there or 'none'} there, --xla_cpu_enable_fast_math=true here" in resume(plan, output)
    before.assert_untouched()
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count=1 {there} --xla_dump_to=/nowhere")
    with jax.numpy_dtype_promotion("strict"), jax.enable_x64(True), jax.default_matmul_precision("bfloat16"):
        assert run_plan(plan, output).identical(table)  # what is set for the draws themselves changes nothing


@pytest.mark.exhaustive
def test_run_killed_and_resumed_under_another_kernel_of_blas_is_refused(start, tmp_path, monkeypatch, plan_text):
    mine, other = ("Haswell", "Nehalem") if platform.machine() == "x86_64" else ("ARMV8", "NEOVERSEN1")
    monkeypatch.setenv("OPENBLAS_CORETYPE", mine)
    first = start(plan_text(4000), tmp_path / "table.nc")
    assert first.kill(lambda: first.drawn() >= 5)
    kept = first.drawn()
    monkeypatch.setenv("OPENBLAS_CORETYPE", other)
    second = start(plan_text(4000), tmp_path / "table.nc")
    assert second.end() == 2
    (line,) = second.said().splitlines()[-1:]
    assert line.startswith(f"rmtbase: error: {first.chunks}: found chunks of another installation (")
    assert f"{mine} there, openblas" in line
    assert f"{other} here" in line
    assert second.drawn() == kept


def test_provenance_of_every_table_names_the_processor_and_its_blas(plan, table):
    record = json.loads(table.attrs["provenance"])
    for name, value in arithmetic().items():
        assert record["platform"][name] == record["numerics"][name] == value
    assert record["numerics"]["jax_disable_jit"] == "False"
    elements = json.loads(element_baseline((8, 2), 2).attrs["provenance"])
    assert elements["numerics"]["blas_numpy" if "blas_numpy" in arithmetic() else "blas"]


def test_chunk_damaged_after_it_was_written_is_never_merged(plan, output, chunks, monkeypatch, table, assert_same):
    write = Store.write

    def write_badly(store, chunk, arrays):
        write(store, chunk, arrays)
        if chunk.start == 30:
            os.truncate(store.path(chunk), 900)

    monkeypatch.setattr(Store, "write", write_badly)
    with pytest.raises(StoreError, match=r"damage done after it was written: .*0030-\d+\.chunk"):
        run_plan(plan, output)
    assert not output.exists()
    monkeypatch.undo()
    assert_same(run_plan(plan, output), table)


def test_disk_full_while_the_table_is_written_keeps_the_chunks(
    plan, output, chunks, table, assert_same, file_size_limit
):
    with file_size_limit(20_000), pytest.raises(OutputError) as caught:
        run_plan(plan, output)
    assert str(caught.value).startswith(f"cannot write {output}: ")
    assert f"; 120 draws in 12 chunks are kept in {chunks}, run again to go on" in str(caught.value)
    assert [file.name for file in output.parent.iterdir()] == [chunks.name]
    told = Told()
    assert_same(run_plan(plan, output, progress=told), table)
    assert told.notes == ["all 12 chunks are there: nothing is left to draw"]


def test_chunks_are_kept_where_that_is_asked_or_where_they_cannot_be_removed(
    plan, output, chunks, table, assert_same, read_only
):
    run_plan(plan, output, keep_chunks=True)
    run_plan(plan, output, keep_chunks=True)
    told = Told()
    with read_only(chunks):
        assert_same(run_plan(plan, output, progress=told), table)
    assert "its chunks cannot be removed: Permission denied" in told.notes[-1]
    assert len(list(chunks.glob("*.chunk"))) == 12
    run_plan(plan, output)
    assert not chunks.exists()


def test_folder_of_chunks_may_be_a_link_to_another_disk(plan, output, chunks, tmp_path, table, assert_same):
    (tmp_path / "elsewhere").mkdir()
    chunks.symlink_to(tmp_path / "elsewhere")
    assert_same(run_plan(plan, output), table)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_second_run_is_refused_while_the_first_is_at_work(plan, output, chunks, table, assert_same):
    refusals = []

    def bar(label, total):
        def progress(count):
            if not refusals:
                with pytest.raises(StoreError) as caught:
                    run_plan(plan, output)
                refusals.append(str(caught.value))

        return progress

    assert_same(run_plan(plan, output, progress=Told(bar)), table)
    assert refusals == [f"{chunks}: found another run at work on it; expected one at a time; wait for it, or stop it"]


def test_wrong_numbers_of_processes_are_refused_and_an_interrupted_run_says_how_to_go_on(plan, output, chunks):
    for count in (0, -1, 2.5, "2", True):
        with pytest.raises(ParameterError, match=r"(workers|count) = .*(a positive|an) integer"):
            run_plan(plan, output, executor=LocalProcesses(count))
    with pytest.raises(KeyboardInterrupt) as interrupted:
        run_plan(plan, output, progress=Told(stopping(KeyboardInterrupt, 3)))
    assert interrupted.value.__notes__ == [f"20 draws in 2 chunks are kept in {chunks}, run again to go on"]


CHUNKS = 81
KILLED_BEFORE_THE_TABLE_IS_THERE = """
import os, signal
from pathlib import Path

rename = Path.replace

def killed(path, target):
    if Path(target).name == "table.nc":
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, target)

Path.replace = killed
"""
"""The table is written beside its place and never renamed: from outside that moment is too short to be caught."""


@pytest.mark.exhaustive
def test_more_draws_go_on_from_the_chunks_of_fewer_after_kills_at_every_stage(start, tmp_path, assert_same, plan_text):
    output, chunks = tmp_path / "table.nc", tmp_path / "table.nc.chunks"
    (tmp_path / "fewer.toml").write_text(plan_text(405))
    run_plan(read_plan(tmp_path / "fewer.toml"), output, keep_chunks=True)
    kept = {file.name: file.read_bytes() for file in chunks.glob("*.chunk")}
    assert len(kept) == 41
    fewer = output.read_bytes()

    def drawn():
        return len(list(chunks.glob("*.chunk")))

    def killed(moment, beforehand=""):
        run = start(plan_text(803), output, beforehand=beforehand)
        assert run.kill(moment)
        assert all((chunks / name).read_bytes() == kept[name] for name in kept)
        assert "not a sound chunk" not in run.said()
        assert output.read_bytes() == fewer
        return run

    # At the beginning, in the midst, and as the table is written.
    killed(lambda: drawn() > 41)
    some = random.Random(5).randrange(45, 60)
    drawing = killed(lambda: drawn() > some)
    there = drawn() - 1  # without the short last chunk of fewer draws
    assert some <= there < CHUNKS
    assert re.search("resuming: [0-9]+ draws in [0-9]+ chunks left of 803 draws in 81 chunks", drawing.said())
    writing = killed(lambda: False, KILLED_BEFORE_THE_TABLE_IS_THERE)
    assert any(is_temporary(file.name) for file in tmp_path.iterdir())
    assert f"resuming: {803 - 10 * there} draws in {CHUNKS - there} chunks left" in writing.said()
    assert drawn() == CHUNKS + 1

    removing = start(plan_text(803), output)
    removing.kill(lambda: drawn() <= CHUNKS)
    assert f"all {CHUNKS} chunks are there: nothing is left to draw" in removing.said()

    plan, last = read_plan(output.with_suffix(".toml")), Told()
    assert_same(run_plan(plan, output, progress=last), run_in_memory(plan))
    assert "is the table of this plan already" in last.notes[-1]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fewer.toml", "table.log", "table.nc", "table.toml"]


@pytest.fixture
def kept(tmp_path, plan_text):
    (tmp_path / "fewer.toml").write_text(plan_text(45))
    output = tmp_path / "table.nc"
    run_plan(read_plan(tmp_path / "fewer.toml"), output, keep_chunks=True)
    return output


@pytest.mark.parametrize(
    ("change", "drawn"),
    [(("405", "123"), 83), (("405", "30"), 0), (("chunk = 10", "chunk = 20"), 405), (("405", "7"), 7)],
    ids=["more", "fewer", "chunk", "less than a chunk"],
)
def test_a_plan_that_differs_only_in_its_numbers_of_draws_goes_on(
    change, drawn, kept, tmp_path, assert_same, plan_text
):
    (tmp_path / "other.toml").write_text(plan_text(405).replace(*change))
    plan, told = read_plan(tmp_path / "other.toml"), Told()
    assert_same(run_plan(plan, kept, progress=told), run_in_memory(plan))
    assert told.steps.get("drawing", 0) == drawn


def test_chunks_of_a_longer_run_stay_and_that_run_goes_on(kept, tmp_path, plan_text):
    folder = tmp_path / "table.nc.chunks"
    (tmp_path / "other.toml").write_text(plan_text(30))
    run_plan(read_plan(tmp_path / "other.toml"), kept)
    assert [file.name for file in sorted(folder.glob("*.chunk"))] == [
        "case-0000-draws-0000000030-0000000040.chunk",
        "case-0000-draws-0000000040-0000000045.chunk",
    ]
    told = Told()
    run_plan(read_plan(tmp_path / "fewer.toml"), kept, progress=told)
    assert told.steps["drawing"] == 30
    assert not folder.exists()


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
