"""Dask workers give the table of one process alone, whichever of them are killed, and leave no process behind."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import psutil
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.errors import MissingDependencyError, WorkerError
from rmtbase.montecarlo import (
    LocalProcesses,
    Scheduler,
    _dask,
    compute_chunk,
    make_plan,
    read_plan,
    run_in_memory,
    run_plan,
)
from telling import Told


@pytest.fixture(scope="module")
def long_plan():
    return make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 400, 7, chunk=10, name="table")


@pytest.fixture(scope="module")
def long_table(long_plan):
    return run_in_memory(long_plan)


class Cluster:
    def __init__(self, folder):
        self.folder, self.processes = folder, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            host, port = free.getsockname()
        self.address = f"tcp://{host}:{port}"
        self._start("scheduler", "--host", host, "--port", port, "--no-dashboard")

    def add_worker(self):
        self._start("worker", self.address, "--nthreads", 1, "--no-dashboard", "--local-directory", self.folder)

    def _start(self, *arguments):
        command = [sys.executable, "-m", "dask", *map(str, arguments)]
        once = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        self.processes.append(subprocess.Popen(command, env=once, **silent))

    def close(self):
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.add_worker()
    yield cluster
    cluster.close()


def workers_under(process):
    family = psutil.Process(process.pid).children(recursive=True)
    return [child for child in family if "spawn_main" in " ".join(child.cmdline())]


def test_a_worker_of_a_scheduler_draws_the_table_of_one_process(plan, table, tmp_path, assert_same):
    from distributed import LocalCluster

    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # or it asks for a port that others may have
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp",
        scheduler_kwargs=quiet,
    ) as cluster:  # fmt: skip
        told = Told()
        drawn = run_plan(plan, tmp_path / "table.nc", executor=Scheduler(cluster.scheduler_address), progress=told)
    assert_same(drawn, table)
    assert told.notes[0] == "drawing on 1 Dask worker"


@pytest.mark.exhaustive
def test_workers_and_nannies_killed_in_the_middle_cost_nothing_but_time(
    cluster, long_plan, long_table, tmp_path, assert_same, capfd
):
    first = cluster.processes[-1]
    done = [0]

    def bar(label, total):
        def progress(count):
            done[0] += count
            if done[0] == 100:
                workers_under(first)[0].kill()  # its nanny starts another
            if done[0] == 200:
                cluster.add_worker()  # joins in the middle
                os.killpg(first.pid, signal.SIGKILL)

        return progress

    told = Told(bar)
    table = run_plan(long_plan, tmp_path / "table.nc", executor=Scheduler(cluster.address), progress=told)
    assert_same(table, long_table)
    assert done == [400]
    assert told.notes == ["drawing on 1 Dask worker"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.exhaustive
def test_last_worker_that_is_lost_is_an_error_that_keeps_the_chunks(
    cluster, tmp_path, long_plan, long_table, assert_same, monkeypatch
):
    monkeypatch.setattr(_dask, "_PATIENCE", 0.5)
    output, last = tmp_path / "table.nc", cluster.processes[-1]

    def bar(label, total):
        return lambda count: os.killpg(last.pid, signal.SIGKILL)

    with pytest.raises(WorkerError) as caught:
        run_plan(long_plan, output, executor=Scheduler(cluster.address), progress=Told(bar))
    assert str(caught.value).startswith(f"scheduler {cluster.address}: no worker has been left for 0 s; ")
    assert "kept in" in str(caught.value)
    assert_same(run_plan(long_plan, output), long_table)


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("late"), CancelledError("gone")])
def test_scheduler_that_is_lost_is_an_error_of_ours(error):
    refusal = pytest.raises(WorkerError, match=f"scheduler a: the connection was lost .*{error}")
    with refusal, _dask._lost("scheduler a"):
        raise error


def test_chunk_whose_numbers_were_lost_with_their_worker_is_drawn_again_and_not_for_ever(plan, monkeypatch):
    submitted = []

    class Future:
        def __init__(self, *_, **__):
            submitted.append(self)

        def result(self, timeout):
            raise TimeoutError(f"timed out after {timeout} s")

    monkeypatch.setattr(_dask.DaskWorkers, "_first_finished", lambda self, futures: futures)
    workers = _dask.DaskWorkers({}, SimpleNamespace(nthreads=lambda: {"a": 1}, submit=Future), "scheduler a")
    with pytest.raises(WorkerError, match="draws 10 to 19 of case 0: every worker that took it was lost"):
        list(workers.map(compute_chunk, plan.chunks[1:2], lambda chunk: ()))
    assert len(submitted) == 4


def alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.exhaustive
def test_client_and_local_workers_killed_leave_no_process_and_a_run_that_goes_on(
    start, tmp_path, long_table, assert_same, plan_text
):
    output = tmp_path / "table.nc"
    running = start(plan_text(400), output, "--workers", 2)
    running.until(lambda: running.drawn() >= 10)
    family = psutil.Process(running.process.pid).children(recursive=True)
    workers = workers_under(running.process)
    assert len(workers) == 2
    workers[0].kill()
    assert running.kill(lambda: running.drawn() >= 20)
    assert running.said().splitlines()[0] == "rmtbase: drawing on 2 Dask workers"  # how far it is may follow
    deadline = time.monotonic() + 30
    while any(map(alive, family)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, family))
    assert_same(run_plan(read_plan(output.with_suffix(".toml")), output), long_table)


ADDRESSES = ["127.0.0.1:1", "tcp://127.0.0.1:1", "nowhere.invalid:8786", "nonsense", "ftp://x:1", ""]


@pytest.mark.parametrize("address", mostly_exhaustive(ADDRESSES, always={"tcp://127.0.0.1:1"}))
def test_address_without_a_scheduler_is_named(address, plan, tmp_path, monkeypatch, watch):
    monkeypatch.setattr(_dask, "_TIMEOUT", 0.3)
    before = watch(tmp_path)
    with pytest.raises(WorkerError, match=f"scheduler {address}: no scheduler with a worker there"):
        run_plan(plan, tmp_path / "table.nc", executor=Scheduler(address))
    before.assert_untouched()


def answering(**answers):
    return SimpleNamespace(run=lambda function, on_error: answers)


def test_workers_of_other_kinds_or_without_rmtbase_are_refused_whenever_they_join(plan):
    with pytest.raises(WorkerError) as caught:
        _dask._common_machine(answering(a={"jax": "1", "device": "cpu"}, b={"jax": "2", "device": "cpu"}))
    assert str(caught.value) == "worker b: its draws would differ to the bit from those at a: jax: 2 there, 1 here"
    with pytest.raises(WorkerError, match=r"worker a: it cannot draw \(ModuleNotFoundError: no rmtbase\); install"):
        _dask._common_machine(answering(a=ModuleNotFoundError("no rmtbase")))
    with pytest.raises(WorkerError, match="a worker that joined later: its draws would differ"):
        _dask._same_machine({"jax": "9.9.9"}, compute_chunk, plan, plan.chunks[0], "svd")


@pytest.mark.parametrize("package", ["distributed", "cryptography"])
def test_what_is_not_installed_is_named_with_the_extra(package, plan, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "rmtbase.montecarlo._dask")
    with pytest.raises(MissingDependencyError, match=rf"package '{package}'.*pip install \"rmtbase\[dask\]\""):
        run_plan(plan, tmp_path / "table.nc", executor=LocalProcesses(2))
    assert list(tmp_path.iterdir()) == []


def listening(process):
    family = [process, *process.children(recursive=True)]
    sockets = [connection for one in family for connection in one.net_connections("tcp")]
    return [one.laddr for one in sockets if one.status == psutil.CONN_LISTEN]


def stranger():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def heard(address, context=None):
    try:
        with socket.create_connection(address, timeout=0.5) as plain:
            if context is None:
                return plain.recv(1024)
            with context.wrap_socket(plain) as secret:
                return secret.recv(1024)
    except OSError:  # refused, or no word
        return b""


@pytest.mark.exhaustive
def test_strangers_are_shut_out(start, tmp_path, plan_text):
    run = start(plan_text(40_000), tmp_path / "table.nc", "--workers", 1)
    run.until(lambda: run.drawn() > 5)
    addresses = listening(psutil.Process(run.process.pid))
    assert {address.ip for address in addresses} == {"127.0.0.1"}
    assert len(addresses) >= 3  # the scheduler, the nanny and the worker
    with ThreadPoolExecutor() as callers:  # together: each waits for a word until its time is up
        words = [callers.submit(heard, address, *context) for address in addresses for context in ((), (stranger(),))]
    assert [word.result() for word in words] == [b""] * 2 * len(addresses)
