"""The chunks of a plan on Dask workers: here, one process a core, or wherever a scheduler has them."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from rmtbase.errors import MissingDependencyError, RmtbaseError, WorkerError
from rmtbase.linalg import single_threaded_blas
from rmtbase.montecarlo._plans._compute import Arrays, compute_chunk
from rmtbase.montecarlo._plans._plan import Chunk, Plan
from rmtbase.montecarlo._plans._settings import choose_solvers, differences, machine_settings
from rmtbase.montecarlo._runs._crew import Bar

try:
    from distributed import Client, Future, KilledWorker, LocalCluster, Worker, WorkerPlugin, wait
except ImportError as error:
    raise MissingDependencyError("distributed", "drawing on Dask workers", "dask") from error

_AHEAD = 2  # chunks per worker's thread under way: one being drawn, one waiting, so that none waits for the writer
_ATTEMPTS = 4  # at one chunk, each after as many lost workers as the scheduler allows
_TIMEOUT = 30.0  # seconds to find a scheduler, and for its first worker to appear
_PATIENCE = 60.0  # seconds without any worker, and for the numbers of one chunk to arrive


@contextmanager
def dask_crew(plan: Plan, workers: int, scheduler: str | None, note: Callable[[str], None]) -> Iterator[DaskCrew]:
    """Dask workers, for the length of a ``with`` block.

    Only chunks travel; the process that asked writes them, so that the workers need no common file system. A worker
    that is killed costs the chunks it was drawing, which others draw again; one that joins later takes its share.

    Args:
        plan: what will be drawn.
        workers: that many local processes, each on one core of the CPU.
        scheduler: the address of a scheduler, whose workers draw instead.
        note: called with one line on the workers.

    Raises:
        WorkerError: no scheduler there, or none with a worker; workers without rmtbase, or of different kinds.
    """
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        where = "the local workers" if scheduler is None else f"scheduler {scheduler}"
        with _lost(where):
            client = _local(stack, workers) if scheduler is None else _remote(stack, scheduler)
            machine = _common_machine(client)
            count = len(client.nthreads())
        note(f"drawing on {count} Dask worker{'s' if count != 1 else ''}")
        yield DaskCrew(plan, machine, client, where)


@dataclass(frozen=True)
class DaskCrew:
    """The workers of one client; made by :func:`dask_crew`.

    Attributes:
        plan: what they draw.
        machine: versions and platform of each of them.
        client: connected to their scheduler.
        where: which workers they are, in words.
    """

    plan: Plan
    machine: dict[str, Any]
    client: Any
    where: str

    def choose_solvers(self) -> list[str]:
        """Chosen on one of them.

        Raises:
            WorkerError: as :meth:`draw`.
        """
        for _ in range(_ATTEMPTS):
            with _lost(self.where), suppress(KilledWorker, TimeoutError):
                future = self.client.submit(choose_solvers, self.plan, cores=1, pure=False)
                self._first_finished([future])
                return future.result(timeout=_PATIENCE)
        raise WorkerError(self.where, "every worker that was to choose the solvers was lost")

    def draw(self, chunks: Sequence[Chunk], solvers: Sequence[str], bar: Bar) -> Iterator[tuple[Chunk, Arrays]]:
        """The chunks as they are finished, so few under way at a time that results never pile up.

        Raises:
            WorkerError: the scheduler or every worker is lost, or workers fail at a chunk again and again.
        """
        progress = bar("drawing", sum(chunk.count for chunk in chunks))
        waiting = deque(chunks)
        under_way: dict[Future, Chunk] = {}
        losses: Counter[Chunk] = Counter()
        while waiting or under_way:
            with _lost(self.where):
                room = _AHEAD * max(1, sum(self.client.nthreads().values())) - len(under_way)
                for chunk in [waiting.popleft() for _ in range(min(room, len(waiting)))]:
                    future = self.client.submit(_draw, self.plan, chunk, solvers[chunk.case], self.machine, pure=False)
                    under_way[future] = chunk
                finished = self._first_finished(list(under_way))
            for future in finished:
                chunk = under_way.pop(future)
                with _lost(self.where):
                    arrays = _result(future, chunk, losses)
                if arrays is None:
                    waiting.appendleft(chunk)
                else:
                    progress(chunk.count)
                    yield chunk, arrays

    def _first_finished(self, futures: list[Future]) -> list[Future]:
        """Those that are finished, once one is. An error if there has been no worker for long."""
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


class OneCore(WorkerPlugin):
    """Keeps a local worker to one core, and leaves it to the process that asked to be stopped by Ctrl-C."""

    name = "rmtbase-one-core"

    def setup(self, worker: Worker) -> None:
        """Called once in each worker's process, before its first chunk; threads made later inherit it."""
        single_threaded_blas()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[int(worker.name) % len(cores)]})


def _local(stack: ExitStack, workers: int) -> Any:
    cluster = stack.enter_context(_again(lambda: _cluster(workers), RuntimeError))
    client = stack.enter_context(Client(cluster, timeout=_TIMEOUT, set_as_default=False))
    _again(lambda: client.register_plugin(OneCore()), OSError)
    return client


def _cluster(workers: int) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        memory_limit=0,
        silence_logs=logging.CRITICAL,
        env={"JAX_PLATFORMS": "cpu"},  # several processes on one GPU would fight for its memory
    )


def _again(attempt: Callable[[], Any], lost: type[Exception]) -> Any:
    """What Dask cannot do while a worker is killed, tried again with the worker that takes its place."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(lost):
            return attempt()
    try:
        return attempt()
    except lost as error:
        raise WorkerError("the local workers", f"they cannot be started ({_words(error)})") from error


def _remote(stack: ExitStack, address: str) -> Any:
    try:
        client = stack.enter_context(Client(address, timeout=_TIMEOUT, set_as_default=False))
        client.wait_for_workers(1, timeout=_TIMEOUT)
    except (OSError, ValueError, TimeoutError) as error:
        raise WorkerError(
            f"scheduler {address}", f"no scheduler with a worker there within {_TIMEOUT:.0f} s ({error})"
        ) from error
    return client


def _common_machine(client: Any) -> dict[str, Any]:
    """The versions and platform of every worker, which must be the same: others would give other bits."""
    answers = client.run(machine_settings, on_error="return")
    # What a worker that was lost just now has answered is an OSError; another takes its place.
    found = {worker: there for worker, there in answers.items() if not isinstance(there, OSError)}
    if not found:
        client.wait_for_workers(1, timeout=_TIMEOUT)
        return _common_machine(client)
    first, machine = next(iter(found.items()))
    for worker, there in found.items():
        if isinstance(there, Exception):
            raise WorkerError(f"worker {worker}", f"it cannot draw ({_words(there)}); install this rmtbase there")
        _require_same(f"worker {worker}", there, machine, f"at {first}")
    return machine


def _require_same(worker: str, there: Mapping[str, Any], here: Mapping[str, Any], whose: str) -> None:
    if differing := differences(there, here):
        raise WorkerError(worker, f"its draws would differ to the bit from those {whose}: {differing}")


def _draw(plan: Plan, chunk: Chunk, solver: str, machine: Mapping[str, Any]) -> Arrays:
    """Runs on a worker, which may have joined after the others were asked what they are."""
    _require_same("a worker that joined later", machine_settings(), machine, "of the others")
    return compute_chunk(plan, chunk, solver, cores=1)


def _result(future: Future, chunk: Chunk, losses: Counter[Chunk]) -> Arrays | None:
    """The arrays of a finished chunk; None where a worker was lost with them, and it is to be tried again."""
    piece = f"draws {chunk.start} to {chunk.start + chunk.count - 1} of case {chunk.case}"
    try:
        return future.result(timeout=_PATIENCE)  # without end where who held it is lost and nobody is left
    except (KilledWorker, TimeoutError) as error:
        losses[chunk] += 1
        if losses[chunk] < _ATTEMPTS:
            return None
        raise WorkerError(piece, "every worker that drew them was lost; is there memory for one chunk?") from error
    except (RmtbaseError, OSError, CancelledError):
        raise
    except Exception as error:
        raise WorkerError(piece, f"a worker failed ({_words(error)})") from error


@contextmanager
def _lost(where: str) -> Iterator[None]:
    """Turn what Dask says when its scheduler is gone into an error of this library."""
    try:
        yield
    except RmtbaseError:
        raise
    except (OSError, TimeoutError, CancelledError) as error:
        raise WorkerError(where, f"the connection was lost ({_words(error)})") from error


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's own account of lost workers off the terminal: what matters of it, rmtbase says."""
    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith(_NOISY)]
    before = [(logger, logger.level) for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in before:
            logger.setLevel(level)


_NOISY = ("distributed", "tornado", "asyncio")
