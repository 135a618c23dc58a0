"""Hosts that meet in the folder that they share draw the table that one of them draws alone."""

import json
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rmtbase.errors import ParameterError, WorkerError
from rmtbase.montecarlo import compute_chunk, open_store, read_plan, run_in_memory, run_on_hosts, run_plan
from rmtbase.tables import open_table

PLAN = """
ensemble = "gaussian_matrix"
draws = 400
seed = 7
chunk = 10
[[case]]
n_rows = 6
n_columns = 4
"""

ADDRESS = "127.0.0.1:1"
WAITING = "rmtbase: waiting for the other hosts, 300 s at most\n"


@pytest.fixture
def hosts(start, tmp_path):
    """Two processes that share a folder; each writes what it says to a file of its own."""

    def start_host(number):
        options = ("--coordinator", ADDRESS, "--processes", 2, "--process", number)
        return start(PLAN, tmp_path / "table.nc", *options, log=tmp_path / f"host-{number}.log")

    return start_host(0), start_host(1)


def test_two_hosts_draw_the_table_of_one(hosts, tmp_path, assert_same):
    first, second = hosts
    assert (first.end(), second.end()) == (0, 0), first.said() + second.said()
    plan = read_plan(tmp_path / "table.toml")
    assert_same(open_table(tmp_path / "table.nc"), run_in_memory(plan))
    assert first.said() == f"{WAITING}rmtbase: host 0 of 2\nrmtbase: wrote {tmp_path / 'table.nc'}\n"
    assert (
        second.said() == f"{WAITING}rmtbase: host 1 of 2\nrmtbase: nothing is left to draw: host 0 writes the table\n"
    )
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["host-0.log", "host-1.log", "table.nc", "table.toml"]


def test_first_host_that_is_killed_leaves_no_folder_of_the_meeting(hosts, tmp_path):
    first, second = hosts
    assert first.kill(lambda: first.drawn() > 0)
    assert second.end() == 0
    assert not (tmp_path / "table.nc.hosts").exists()


class LostError(Exception):
    """A host is gone."""


class Host(threading.Thread):
    """One of several hosts of this process: what it says, and how it ends.

    ``lost`` names what a host does last: a note that it tells, or ``"drawing"``. What it would tell of its draws goes
    to ``advance``.
    """

    def __init__(self, plan, output, number, count, lost=None, advance=None, timeout=60):
        super().__init__(daemon=True)
        self.arguments = (plan, output, ADDRESS, count, number)
        self.lost, self.advance, self.timeout = lost, advance or (lambda count: None), timeout
        self.said, self.table, self.error = [], None, None
        self.start()

    def run(self):
        try:
            self.table = run_on_hosts(*self.arguments, progress=self, timeout=self.timeout)
        except Exception as error:
            self.error = error

    def bar(self, label, total):
        self.note(label)
        return self.advance

    def note(self, line):
        self.said.append(line)
        if line == self.lost:
            raise LostError

    def end(self):
        self.join(timeout=120)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.table


@pytest.fixture
def output(tmp_path):
    return tmp_path / "table.nc"


def test_hosts_that_are_lost_cost_time_and_nothing_else(plan, output, table, assert_same):
    """The first of four, none of whom draws a single chunk."""
    others = [Host(plan, output, number, 4, lost="drawing") for number in (1, 2, 3)]
    assert_same(Host(plan, output, 0, 4).end(), table)
    assert_same(open_table(output), table)
    for other in others:
        with suppress(LostError):  # or it has come when all was over
            other.end()
    assert [file.name for file in output.parent.iterdir()] == ["table.nc"]


def test_other_hosts_finish_the_chunks_where_the_first_is_lost(plan, output, table, assert_same):
    other = Host(plan, output, 1, 2)
    with pytest.raises(LostError):
        Host(plan, output, 0, 2, lost="drawing").end()
    assert other.end() is None
    assert other.said[-1] == "nothing is left to draw: host 0 writes the table"
    with open_store(f"{output}.chunks", plan) as store:
        assert list(store.missing()) == []
    assert_same(run_plan(plan, output), table)


def test_hosts_that_come_when_the_table_is_there_draw_nothing(plan, output, table, watch):
    run_plan(plan, output)
    before = watch(output.parent)
    other = Host(plan, output, 1, 2)
    assert Host(plan, output, 0, 2).end().equals(table)
    other.end()
    before.assert_untouched()


def test_store_that_is_removed_while_a_host_draws_is_no_error_if_the_table_is_there(plan, output, table):
    first = None

    def until_the_first_has_ended(count):
        first.end()

    other = Host(plan, output, 1, 2, advance=until_the_first_has_ended)
    first = Host(plan, output, 0, 2)
    other.end()
    assert open_table(output).equals(table)
    assert [file.name for file in output.parent.iterdir()] == ["table.nc"]  # a chunk that came too late is gone


@pytest.fixture
def store(plan, output):
    """The store of the small plan, with its settings and locked."""
    with open_store(f"{output}.chunks", plan) as store:
        store.record_settings({}, lambda: ["svd"])
        yield store


def test_chunk_written_while_the_store_is_being_removed_goes_with_it(plan, store, monkeypatch):
    """Between the removal of the chunks and that of the manifest, after which the writer looks."""
    unlink = Path.unlink

    def late(path, missing_ok=False):
        if path.name == "store.json":
            store.write(plan.chunks[2], compute_chunk(plan, plan.chunks[2]))
            assert not store.discard_if_removed(plan.chunks[2])
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", late)
    store.remove()
    assert [file.name for file in store.folder.iterdir()] == ["lock"]


def test_folder_goes_with_the_last_to_leave(plan, store):
    """The lock is gone, and the chunk that came too late is all that is left."""
    store.write(plan.chunks[0], compute_chunk(plan, plan.chunks[0]))
    (store.folder / "store.json").unlink()
    (store.folder / "lock").unlink()
    assert store.discard_if_removed(plan.chunks[0])
    assert not store.folder.exists()


def test_first_host_that_cannot_begin_is_said_on_the_others(plan, output):
    folder = output.with_name("table.nc.chunks")
    folder.mkdir()
    (folder / "of somebody else").touch()
    other = Host(plan, output, 1, 2)
    with pytest.raises(Exception, match=r"no store\.json, but of somebody else"):
        Host(plan, output, 0, 2).end()
    with pytest.raises(WorkerError, match=r"host 0: it could not begin: .*of somebody else"):
        other.end()


def test_first_host_that_is_lost_before_it_has_begun_is_said_on_the_others(plan, output):
    meeting = output.with_name("table.nc.hosts")
    other = Host(plan, output, 1, 2, timeout=3)
    while not (meeting / "host-1.json").exists():
        time.sleep(0.01)
    met = [json.loads((meeting / "host-1.json").read_text())["token"]]
    (meeting / "host-0.json").write_text(json.dumps({"token": "a", "processes": 2, "met": met}))  # and is killed
    with pytest.raises(WorkerError, match="host 0: it was lost before it could say what is left to draw"):
        other.end()
    assert not meeting.exists()


def test_what_a_host_that_was_killed_has_left_is_no_host(plan, output, table, assert_same):
    meeting = output.with_name("table.nc.hosts")
    meeting.mkdir()
    for number, first in ((0, None), (1, "0123456789abcdef")):
        record = {"token": "0123456789abcdef", "processes": 2, "first": first, "met": [], "word": {"left": []}}
        (meeting / f"host-{number}.json").write_text(json.dumps(record))
    with pytest.raises(WorkerError, match=rf"coordinator {ADDRESS}: the hosts have not met \(no sign of host 1 in"):
        run_on_hosts(plan, output, ADDRESS, 2, 0, timeout=1)
    other = Host(plan, output, 1, 2)
    assert_same(Host(plan, output, 0, 2).end(), table)
    other.end()
    assert [file.name for file in output.parent.iterdir()] == ["table.nc"]


def test_hosts_without_a_common_folder_do_not_meet(plan, tmp_path):
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    other = Host(plan, tmp_path / "other" / "table.nc", 1, 2, timeout=1)
    with pytest.raises(WorkerError, match=r"no sign of host 1 in .*one, which all hosts must share"):
        run_on_hosts(plan, tmp_path / "one" / "table.nc", ADDRESS, 2, 0, timeout=1)
    with pytest.raises(WorkerError, match=r"nobody there within 1 s .*other, which all hosts must share"):
        other.end()
    assert not any(list(folder.iterdir()) for folder in tmp_path.iterdir())


def test_folder_that_a_host_takes_with_it_is_made_again(plan, output, monkeypatch):
    mkdir, taken = Path.mkdir, []

    def made_and_taken(folder, *arguments, **options):
        mkdir(folder, *arguments, **options)
        if folder.name.endswith(".hosts") and len(taken) < 2:
            taken.append(folder)
            folder.rmdir()

    monkeypatch.setattr(Path, "mkdir", made_and_taken)
    with pytest.raises(WorkerError, match="nobody there within"):
        run_on_hosts(plan, output, ADDRESS, 2, 1, timeout=0.5)
    assert len(taken) == 2


def test_hosts_of_one_number_or_of_different_counts_are_refused(plan, output):
    twins = [Host(plan, output, 1, 3, timeout=2) for _ in range(2)]
    said = []
    for twin in twins:
        with pytest.raises(WorkerError) as caught:
            twin.end()
        said.append(str(caught.value))
    assert "host 1: another host has the same number" in said
    other = Host(plan, output, 1, 3)
    with suppress(LostError):
        Host(plan, output, 0, 2, lost="host 0 of 2").end()
    with pytest.raises(WorkerError, match="host 1: it was told of 3 hosts, the first one of 2"):
        other.end()


@pytest.mark.parametrize(
    ("size", "rank"),
    [("SLURM_NTASKS", "SLURM_PROCID"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "PMI_RANK")],
)
def test_hosts_are_numbered_by_what_has_started_them(size, rank, plan, output, table, monkeypatch, assert_same):
    monkeypatch.setenv(size, "1")
    monkeypatch.setenv(rank, "0")
    assert_same(run_on_hosts(plan, output), table)


@pytest.mark.parametrize(
    ("coordinator", "processes", "process", "words"),
    [
        ("nonsense", 2, 1, "coordinator = 'nonsense': expected HOST:PORT"),
        ("127.0.0.1:", 2, 1, "coordinator = '127.0.0.1:': expected HOST:PORT"),
        (ADDRESS, 0, 0, "processes = 0: expected a positive integer"),
        (ADDRESS, 2, 2, "process = 2: expected an integer from 0 to 1"),
        (ADDRESS, 2, -1, "process = -1: expected an integer from 0 to 1"),
    ],
)
def test_bad_address_or_number_is_named(coordinator, processes, process, words, plan, output):
    with pytest.raises(ParameterError, match=words):
        run_on_hosts(plan, output, coordinator, processes, process, timeout=1)


def test_first_host_that_does_not_come_is_named(plan, tmp_path):
    with pytest.raises(WorkerError, match=r"coordinator 127\.0\.0\.1:1: nobody there within 1 s"):
        run_on_hosts(plan, tmp_path / "table.nc", ADDRESS, 2, 1, timeout=1)
    assert list(tmp_path.iterdir()) == []


def test_hosts_that_nobody_has_numbered_are_an_error(plan, output):
    with pytest.raises(WorkerError, match="the hosts have not met"):
        run_on_hosts(plan, output)


def test_command_line_wants_a_coordinator_and_no_workers_beside_it(run, plan_file, tmp_path):
    for options in (("--processes", 2), ("--coordinator", "127.0.0.1:1", "--workers", 2)):
        ended = run("baseline", "--plan", plan_file, "-o", tmp_path / "table.nc", *options)
        assert ended.status == 2
        assert "expected HOST:PORT or 'auto', and neither --workers nor --scheduler" in ended.err
