"""Hosts that meet through jax.distributed and share a folder draw the table that one of them draws alone."""

import json
import socket
from contextlib import nullcontext
from pathlib import Path

import pytest

from rmtbase.errors import ParameterError, StoreError, WorkerError
from rmtbase.montecarlo import compute_chunk, open_store, read_plan, run_in_memory, run_on_hosts, run_plan
from rmtbase.montecarlo._runs._crew import Alone
from rmtbase.montecarlo._runs._hosts import HostCrew, _follow, _in_order
from rmtbase.montecarlo._runs._run import complete, no_bar, silent
from rmtbase.tables import open_table

PLAN = """
ensemble = "gaussian_matrix"
draws = 1200
seed = 7
chunk = 10
[[case]]
n_rows = 6
n_columns = 4
"""


WAITING = "rmtbase: waiting for the other hosts, 300 s at most\n"


def free_address():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture
def hosts(start, tmp_path):
    """Two processes that share a folder; each writes what it says to a file of its own."""
    address = free_address()

    def start_host(number):
        options = ("--coordinator", address, "--processes", 2, "--process", number)
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
    assert not first.chunks.exists()


@pytest.fixture
def store(plan, tmp_path):
    """The store of the small plan, settled and locked."""
    with open_store(tmp_path / "table.nc.chunks", plan) as store:
        crew = Alone(plan)
        store.settle(crew.machine, crew.choose_solvers)
        yield store


class Meeting:
    """What a host that is not the first sees of a meeting."""

    num_processes = 2
    process_id = 1

    def __init__(self, **word):
        self.client, self._word = self, word

    def blocking_key_value_get(self, key, timeout):
        return json.dumps(self._word)

    def shutdown(self):
        self.client = None


@pytest.mark.parametrize(("chunks", "count"), [(12, 1), (12, 5), (3, 5), (100, 8)])
def test_every_host_goes_through_all_that_is_left_its_own_part_first(chunks, count):
    orders = [list(_in_order(range(chunks), number, count)) for number in range(count)]
    assert all(sorted(order) == list(range(chunks)) for order in orders)
    firsts = [order[: len(range(number, chunks, count))] for number, order in enumerate(orders)]
    assert sorted(chunk for first in firsts for chunk in first) == list(range(chunks))


def test_hosts_that_are_lost_cost_time_and_nothing_else(plan, store, tmp_path, table, assert_same):
    # The first of four, none of whom but one has drawn a single chunk.
    solver = store.settings()["solvers"][0]
    store.write(plan.chunks[1], compute_chunk(plan, plan.chunks[1], solver))
    crew = HostCrew(plan, store, 0, 4, tmp_path / "table.nc")
    complete(store, tmp_path / "table.nc", nullcontext(crew), False, no_bar, silent)
    assert_same(open_table(tmp_path / "table.nc"), table)


def test_other_hosts_finish_the_chunks_where_the_first_is_lost(plan, store, tmp_path):
    said = []
    _follow(plan, tmp_path / "table.nc", Meeting(left=[[0, 12]]), no_bar, said.append)
    assert list(store.missing(print)) == []
    assert said == ["nothing is left to draw: host 0 writes the table"]


def test_host_that_comes_too_late_draws_nothing(plan, tmp_path, watch):
    run_plan(plan, tmp_path / "table.nc")
    before = watch(tmp_path)
    _follow(plan, tmp_path / "table.nc", Meeting(left=[]), no_bar, silent)
    before.assert_untouched()


def test_store_that_is_removed_while_a_host_draws_is_no_error_if_the_table_is_there(plan, store, tmp_path, table):
    def bar(label, total):
        return lambda count: complete(store, tmp_path / "table.nc", nullcontext(crew), False, no_bar, silent)

    crew = HostCrew(plan, store, 0, 1, tmp_path / "table.nc")
    _follow(plan, tmp_path / "table.nc", Meeting(left=[[3, 4]]), bar, silent)
    assert open_table(tmp_path / "table.nc").equals(table)
    assert [file.name for file in store.folder.iterdir()] == ["lock"]  # the chunk that came too late is taken back


def test_chunk_written_while_the_store_is_being_removed_goes_with_it(plan, store, monkeypatch):
    """Between the removal of the chunks and that of the manifest, after which the writer looks."""
    unlink = Path.unlink

    def late(path, missing_ok=False):
        if path.name == "store.json":
            store.write(plan.chunks[2], compute_chunk(plan, plan.chunks[2]))
            assert not store.take_back(plan.chunks[2])
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", late)
    store.remove()
    assert [file.name for file in store.folder.iterdir()] == ["lock"]


def test_folder_goes_with_the_last_to_leave(plan, store):
    """The lock is gone, and the chunk that came too late is all that is left."""
    store.write(plan.chunks[0], compute_chunk(plan, plan.chunks[0]))
    (store.folder / "store.json").unlink()
    (store.folder / "lock").unlink()
    assert store.take_back(plan.chunks[0])
    assert not store.folder.exists()


def test_first_host_that_cannot_begin_is_said_on_the_others(plan, tmp_path):
    with pytest.raises(WorkerError, match="host 0: it could not begin: no store"):
        _follow(plan, tmp_path / "table.nc", Meeting(error="no store"), no_bar, silent)


def test_folder_that_is_not_shared_is_said(plan, tmp_path):
    with pytest.raises(StoreError, match="a folder that all hosts share"):
        _follow(plan, tmp_path / "table.nc", Meeting(left=[[0, 1]]), no_bar, silent)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("coordinator", "processes", "process", "words"),
    [
        ("nonsense", 2, 1, "coordinator = 'nonsense': expected HOST:PORT"),
        ("127.0.0.1:", 2, 1, "coordinator = '127.0.0.1:': expected HOST:PORT"),
        ("127.0.0.1:1", 0, 0, "processes = 0: expected a positive integer"),
        ("127.0.0.1:1", 2, 2, "process = 2: expected an integer from 0 to 1"),
        ("127.0.0.1:1", 2, -1, "process = -1: expected an integer from 0 to 1"),
    ],
)
def test_bad_address_or_number_is_named(coordinator, processes, process, words, plan, tmp_path):
    with pytest.raises(ParameterError, match=words):
        run_on_hosts(plan, tmp_path / "table.nc", coordinator, processes, process, timeout=1)


def test_coordinator_that_does_not_answer_is_named(plan, tmp_path):
    with pytest.raises(WorkerError, match=r"coordinator 127\.0\.0\.1:1: nobody there within 1 s"):
        run_on_hosts(plan, tmp_path / "table.nc", "127.0.0.1:1", 2, 1, timeout=1)


def test_hosts_that_nobody_has_numbered_are_an_error(plan, tmp_path):
    with pytest.raises(WorkerError, match="the hosts have not met"):
        run_on_hosts(plan, tmp_path / "table.nc")


def test_command_line_wants_a_coordinator_and_no_workers_beside_it(run, plan_file, tmp_path):
    for options in (("--processes", 2), ("--coordinator", "127.0.0.1:1", "--workers", 2)):
        ended = run("baseline", "--plan", plan_file, "-o", tmp_path / "table.nc", *options)
        assert ended.status == 2
        assert "expected HOST:PORT or 'auto', and neither --workers nor --scheduler" in ended.err
