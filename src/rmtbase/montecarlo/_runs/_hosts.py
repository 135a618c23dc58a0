"""A plan on several hosts that share a folder and meet through jax.distributed.

They meet once, to be numbered and told what is left to draw; from then on the folder is all that they share. Each
draws its part of what is left, and then whatever nobody has finished yet: a chunk that two have drawn is the same file
twice, so that a host which is lost costs time and nothing else. The first host writes the table.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import xarray as xr
from jax._src.distributed import State

from rmtbase.errors import OutputError, ParameterError, WorkerError
from rmtbase.montecarlo._plans._chunks import Chunk, Chunks
from rmtbase.montecarlo._plans._compute import Arrays, compute_chunk
from rmtbase.montecarlo._plans._plan import Plan
from rmtbase.montecarlo._runs._crew import Alone, Bar
from rmtbase.montecarlo._runs._run import Note, complete, finished_table, no_bar, silent, store_folder
from rmtbase.montecarlo._stores._store import Store, open_store
from rmtbase.parameters import require_positive_integer
from rmtbase.tables import check_writable

_WORD = "rmtbase"  # the key under which the first host says what is left
_DAY_MS = 86_400_000

T = TypeVar("T")


def run_on_hosts(
    plan: Plan,
    output: Path | str,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    keep_chunks: bool = False,
    bar: Bar | None = None,
    note: Note | None = None,
    timeout: int = 300,
) -> xr.Dataset | None:
    """:func:`run_plan` on several hosts at once: called on each of them, with an ``output`` in a folder that all share.

    The table is that of a run alone, to the bit where the hosts are of one kind. A host that is lost costs the chunk it
    was drawing. If the first is lost the others still draw all that is left, and a later run writes the table.

    Args:
        plan: what to simulate, the same on each host.
        output: the netCDF file of the table.
        coordinator: HOST:PORT of the first host, any free port; None where jax.distributed finds it (SLURM, MPI, TPU).
        processes: number of hosts; None likewise.
        process: which one this is, from 0; None likewise.
        keep_chunks: as :func:`run_plan`.
        bar: as :func:`run_plan`.
        note: as :func:`run_plan`.
        timeout: seconds in which all of them must have come.

    Returns:
        The table on the first host, None on the others.

    Raises:
        ParameterError: a number of processes that is not positive, a process that is none of them.
        WorkerError: the hosts do not meet, or the first one cannot begin.
        StoreError: as :func:`run_plan`; or the folder is not shared.
        OutputError: as :func:`run_plan`.
    """
    output, tell = Path(output), note or silent
    tell(f"waiting for the other hosts, {timeout} s at most")
    meeting = _meet(coordinator, processes, process, timeout)
    tell(f"host {meeting.process_id} of {meeting.num_processes}")
    if meeting.process_id == 0:
        return _lead(plan, output, meeting, keep_chunks, bar or no_bar, tell)
    _follow(plan, output, meeting, bar or no_bar, tell)
    return None


@dataclass(frozen=True)
class HostCrew(Alone):
    """One of several hosts.

    Attributes:
        store: which all of them share.
        number: of this host.
        count: of hosts.
        output: the table; once it is there, nothing is left to do.
        meeting: at which the first host tells the others what is left; None on the others.
    """

    store: Store
    number: int
    count: int
    output: Path
    meeting: State | None = None

    def draw(self, chunks: Chunks, solvers: Sequence[str], bar: Bar) -> Iterator[tuple[Chunk, Arrays]]:
        """Its own part of the chunks, then those of the others that are not there yet."""
        if self.meeting is not None:
            _dismiss(self.meeting, left=chunks.runs)
        progress = bar("drawing", chunks.total_draws)
        for chunk in _in_order(chunks, self.number, self.count):
            if self.store.has(chunk) or finished_table(self.output, self.plan, silent) is not None:
                progress(chunk.count)
            else:
                yield chunk, compute_chunk(self.plan, chunk, solvers[chunk.case], progress=progress)


def _in_order(chunks: Sequence[T], number: int, count: int) -> Iterator[T]:
    """A host's own part first; then the parts of those after it, each from its end, where it is finished last."""
    parts = [range((number + step) % count, len(chunks), count) for step in range(count)]
    for place in chain(parts[0], *map(reversed, parts[1:])):
        yield chunks[place]


def _meet(coordinator: str | None, processes: int | None, process: int | None, timeout: int) -> State:
    """All hosts at once, in a state of its own: JAX's devices stay those of each host alone, and so do its draws."""
    if processes is not None:
        processes = require_positive_integer("processes", processes)
    if process is not None and not 0 <= process < (processes or process + 1):
        raise ParameterError("process", process, f"an integer from 0 to {(processes or 1) - 1}")
    if coordinator is not None and process != 0:
        _require_reachable(coordinator, timeout)
    meeting = State()
    try:
        meeting.initialize(coordinator, processes, process, initialization_timeout=timeout)
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        where = "the other hosts" if coordinator is None else f"coordinator {coordinator}"
        raise WorkerError(where, f"the hosts have not met: {error}") from error
    return meeting


def _require_reachable(coordinator: str, timeout: int) -> None:
    """An error where nobody answers in time, for JAX then aborts the process."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise ParameterError("coordinator", coordinator, "HOST:PORT of the first host")
    deadline = time.monotonic() + timeout
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
                return
        except (OSError, OverflowError) as error:
            if time.monotonic() > deadline:
                raise WorkerError(f"coordinator {coordinator}", f"nobody there within {timeout} s ({error})") from error
        time.sleep(0.2)


def _dismiss(meeting: State, **word: Any) -> None:
    """Tell the other hosts what they wait for, and part."""
    if meeting.client is not None:
        meeting.client.key_value_set(_WORD, json.dumps(word))
        meeting.shutdown()


def _lead(plan: Plan, output: Path, meeting: State, keep_chunks: bool, bar: Bar, tell: Note) -> xr.Dataset:
    try:
        table = finished_table(output, plan, tell)
        if table is None:
            check_writable(output)
            with open_store(store_folder(output), plan) as store:
                crew = HostCrew(plan, store, 0, meeting.num_processes, output, meeting)
                table = complete(store, output, nullcontext(crew), keep_chunks, bar, tell)
    except BaseException as error:
        with suppress(RuntimeError):
            _dismiss(meeting, error=str(error) or type(error).__name__)
        raise
    _dismiss(meeting, left=[])
    return table


def _follow(plan: Plan, output: Path, meeting: State, bar: Bar, tell: Note) -> None:
    try:
        word = json.loads(meeting.client.blocking_key_value_get(_WORD, _DAY_MS))  # type: ignore[union-attr]
        count = meeting.num_processes
        meeting.shutdown()
    except RuntimeError as error:
        raise WorkerError("host 0", f"it was lost before it could say what is left to draw ({error})") from error
    if "error" in word:
        raise WorkerError("host 0", f"it could not begin: {word['error']}")
    left = plan.chunks.only(word["left"])
    with open_store(store_folder(output), plan, lock=False) as store:
        crew = HostCrew(plan, store, meeting.process_id, count, output)
        solvers = store.settle(crew.machine) if left.size else []
        try:
            for chunk, arrays in crew.draw(left, solvers, bar):
                store.write(chunk, arrays)
                if store.take_back(chunk):
                    break
        except OutputError:
            if finished_table(output, plan, silent) is None:  # else the store has been removed meanwhile
                raise
    tell("nothing is left to draw: host 0 writes the table")
