"""Dask workers: local processes with one core each, or those of a scheduler."""

from __future__ import annotations

import logging
import os
import signal
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from uuid import uuid4

from rmtbase.errors import MissingDependencyError, RmtbaseError, WorkerError
from rmtbase.executors import LocalProcesses, Scheduler
from rmtbase.interrupts import undisturbed
from rmtbase.linalg import single_threaded_blas
from rmtbase.montecarlo._machine import differences, machine_settings
from rmtbase.progress import Progress
from rmtbase.words import counted

try:
    import cryptography  # noqa: F401  # Security.temporary makes its keys with it
    import dask.config
    from distributed import Client, Future, KilledWorker, LocalCluster, Security, Worker, WorkerPlugin, get_worker, wait
    from distributed.utils import sync
except ImportError as error:
    missing = "cryptography" if (error.name or "").startswith("cryptography") else "distributed"
    raise MissingDependencyError(missing, "drawing on Dask workers", "dask") from error

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 2  # tasks under way per worker thread: one running and one waiting, so that no thread waits for the writer
_ATTEMPTS = 4  # attempts at one task, each after as many lost workers as the scheduler allows
_TIMEOUT = 30.0  # seconds to find a scheduler, and for its first worker to appear
_PATIENCE = 60.0  # seconds to wait without any worker, and for the result of one task to arrive
_NOISY = ("distributed", "tornado", "asyncio")  # loggers


@contextmanager
def start_workers(executor: LocalProcesses | Scheduler, progress: Progress, work: str) -> Iterator[DaskWorkers]:
    """Start or connect to Dask workers for the duration of a ``with`` block."""
    # Anybody who reaches a scheduler can run any code on it: local workers use TLS with keys that only these processes
    # hold.
    local = isinstance(executor, LocalProcesses)
    where = "the local workers" if local else f"scheduler {executor.address}"
    stack = ExitStack()
    try:
        stack.enter_context(_quiet())
        with _lost(where):
            client = _local(stack, executor.count) if local else _remote(stack, executor)
            machine = _common_machine(client)
            count = len(client.nthreads())
        progress.note(f"{work} on {counted(count, 'Dask worker')}")
        yield DaskWorkers(machine, client, where)
    finally:
        with undisturbed():
            stack.close()


@dataclass(frozen=True)
class DaskWorkers:
    machine: dict[str, Any]  # versions and platform, the same on all of them
    client: Any  # client connected to their scheduler
    where: str  # the workers in words, for messages

    def call(self, function: Callable[[], Result]) -> Result:
        for _ in range(_ATTEMPTS):
            with _lost(self.where), suppress(KilledWorker, TimeoutError):
                future = self.client.submit(function, pure=False)
                self._first_finished([future])
                return future.result(timeout=_PATIENCE)
        raise WorkerError(self.where, "every worker that was to choose the solvers was lost")

    def map(
        self, function: Callable[..., Result], tasks: Iterable[Task], arguments: Callable[[Task], tuple]
    ) -> Iterator[tuple[Task, Result]]:
        coming, repeated = iter(tasks), deque[Task]()
        under_way: dict[Future, Task] = {}
        losses: Counter[Task] = Counter()
        while True:
            with _lost(self.where):
                room = max(0, _AHEAD * max(1, sum(self.client.nthreads().values())) - len(under_way))
                repeats = [repeated.popleft() for _ in range(min(room, len(repeated)))]
                for task in [*repeats, *islice(coming, room - len(repeats))]:
                    call = self.client.submit(_same_machine, self.machine, function, *arguments(task), pure=False)
                    under_way[call] = task
                if not under_way:
                    return
                finished = self._first_finished(list(under_way))
            for future in finished:
                task = under_way.pop(future)
                with _lost(self.where):
                    try:
                        # Without a timeout it would wait forever if the worker that holds it and all others are lost.
                        result = future.result(timeout=_PATIENCE)
                    except (KilledWorker, TimeoutError) as error:
                        losses[task] += 1
                        if losses[task] >= _ATTEMPTS:
                            reason = "every worker that took it was lost; is there enough memory?"
                            raise WorkerError(str(task), reason) from error
                        repeated.append(task)
                        continue
                    except (RmtbaseError, OSError, CancelledError):
                        raise
                    except Exception as error:
                        raise WorkerError(str(task), f"a worker failed ({_words(error)})") from error
                yield task, result

    @contextmanager
    def first_come(self) -> Iterator[FirstCome]:
        """Let tasks that run on the workers during the block find out which of them asked first for a thing."""
        run = f"rmtbase-{uuid4().hex}"
        try:
            yield FirstCome(run)
        finally:
            with suppress(OSError, TimeoutError, CancelledError):  # the scheduler is lost
                self.client.set_metadata(run, None)

    def _first_finished(self, futures: list[Future]) -> list[Future]:
        seen = time.monotonic()
        while True:
            try:
                with self.client.as_current():
                    return list(wait(futures, timeout=1.0, return_when="FIRST_COMPLETED").done)  # type: ignore[union-attr]
            except TimeoutError:
                if self.client.nthreads():
                    seen = time.monotonic()
                elif time.monotonic() - seen > _PATIENCE:
                    raise WorkerError(self.where, f"no worker has been left for {_PATIENCE:.0f} s") from None


@dataclass(frozen=True)
class FirstCome:
    """Test of which task asked first for a thing: the scheduler keeps, under the run's name, who asked, in order."""

    run: str

    def __call__(self, thing: str, task: str) -> bool:
        worker = get_worker()
        sync(worker.loop, worker.scheduler.set_metadata, keys=[self.run, thing, task], value=True)
        asked: Any = sync(worker.loop, worker.scheduler.get_metadata, keys=[self.run, thing])
        return next(iter(asked)) == task


class OneCore(WorkerPlugin):
    """Plugin that keeps a local worker to one core, and leaves Ctrl-C to the calling process."""

    name = "rmtbase-one-core"

    def setup(self, worker: Worker) -> None:
        # Before its first task, so that threads made later inherit the settings.
        self.limit = single_threaded_blas()
        self.limit.__enter__()  # for the life of the process
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[int(worker.name) % len(cores)]})


def _local(stack: ExitStack, workers: int) -> Any:
    settings: dict[str, Any] = {
        "n_workers": workers,
        "threads_per_worker": 1,
        "processes": True,
        "memory_limit": 0,
        "host": "127.0.0.1",
        "protocol": "tls://",
        "silence_logs": logging.CRITICAL,
        "scheduler_kwargs": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        "env": {"JAX_PLATFORMS": "cpu"},  # several processes on one GPU would fight for its memory
    }
    with undisturbed(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Creating scratch directories", UserWarning)
        # Workers that have to be killed leave files in their folders.
        folder = stack.enter_context(TemporaryDirectory(prefix="rmtbase-dask-", ignore_cleanup_errors=True))
        stack.enter_context(dask.config.set({"temporary-directory": folder}))
        cluster = stack.enter_context(_again(lambda: LocalCluster(security=Security.temporary(), **settings)))
        client = stack.enter_context(_again(lambda: Client(cluster, timeout=_TIMEOUT, set_as_default=False)))
    # The workers import their modules here, which takes long on a busy machine; an interrupt can now stop them.
    _again(lambda: client.register_plugin(OneCore()))
    return client


def _again(attempt: Callable[[], Any]) -> Any:
    """Retry a call that Dask cannot complete while a worker is being killed."""
    last: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            return attempt()
        except (RuntimeError, OSError, TimeoutError) as error:
            last = error
    reason = f"they did not start in {_ATTEMPTS} attempts ({_words(last)}); run again, or without workers"
    raise WorkerError("the local workers", reason) from last


def _remote(stack: ExitStack, scheduler: Scheduler) -> Any:
    try:
        client = stack.enter_context(Client(scheduler.address, timeout=_TIMEOUT, set_as_default=False))
        client.wait_for_workers(1, timeout=_TIMEOUT)
    except (OSError, ValueError, TimeoutError) as error:
        reason = f"no scheduler with a worker there within {_TIMEOUT:.0f} s ({error})"
        raise WorkerError(f"scheduler {scheduler.address}", reason) from error
    return client


def _common_machine(client: Any) -> dict[str, Any]:
    answers = client.run(machine_settings, on_error="return")
    # The answer of a worker that was just lost is an OSError; another worker takes its place.
    answers = {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}
    if not answers:
        client.wait_for_workers(1, timeout=_TIMEOUT)
        return _common_machine(client)
    first, machine = next(iter(answers.items()))
    for worker, answer in answers.items():
        if isinstance(answer, Exception):
            raise WorkerError(f"worker {worker}", f"it cannot draw ({_words(answer)}); install this rmtbase there")
        _require_same(f"worker {worker}", answer, machine, f"at {first}")
    return machine


def _require_same(worker: str, machine: Mapping[str, Any], first: Mapping[str, Any], whose: str) -> None:
    if differing := differences(machine, first):
        raise WorkerError(worker, f"its draws would differ to the bit from those {whose}: {differing}")


def _same_machine(machine: Mapping[str, Any], function: Callable[..., Result], *arguments: Any) -> Result:
    _require_same("a worker that joined later", machine_settings(), machine, "of the others")
    return function(*arguments)


@contextmanager
def _lost(where: str) -> Iterator[None]:
    try:
        yield
    except RmtbaseError:
        raise
    except (OSError, TimeoutError, CancelledError) as error:
        raise WorkerError(where, f"the connection was lost ({_words(error)})") from error


def _words(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith(_NOISY)]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
