"""A plan on several hosts that share a folder.

They meet there once, to be told what is left to draw; from then on the store is all that they share. Each draws its
part of what is left, and then whatever nobody has finished yet: a chunk that two have drawn is the same file twice, so
that a host which is lost costs time and nothing else. The first host writes the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import jax
import xarray as xr

from rmtbase.errors import OutputError, ParameterError, RmtbaseError, WorkerError
from rmtbase.montecarlo._chunks import Chunk, Chunks
from rmtbase.montecarlo._compute import Arrays, compute_chunk
from rmtbase.montecarlo._meeting import Meeting
from rmtbase.montecarlo._plan import Plan
from rmtbase.montecarlo._run import LocalExecutor, finished_table, run_through_store, store_folder
from rmtbase.montecarlo._store import Store, open_store
from rmtbase.parameters import require_positive_integer
from rmtbase.progress import SILENT, Progress

_NUMBERED_BY = (
    ("SLURM_NTASKS", "SLURM_PROCID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
)
"""Under SLURM, Open MPI and MPICH: how many processes there are, and which one this is."""


def run_on_hosts(
    plan: Plan,
    output: Path | str,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    keep_chunks: bool = False,
    progress: Progress = SILENT,
    timeout: int = 300,
) -> xr.Dataset | None:
    """:func:`run_plan` on several hosts at once: called on each of them, with an ``output`` in a folder that all share.

    The table is that of a run alone, to the bit where the hosts are of one kind. A host that is lost costs the chunk it
    was drawing. If the first is lost the others still draw all that is left, and a later run writes the table.

    Args:
        plan: what to simulate, the same on each host.
        output: the netCDF file of the table.
        coordinator: HOST:PORT of the first host, by which the others call it; None under SLURM, MPI or on a TPU pod.
        processes: number of hosts; None where one of these says it.
        process: which one this is, from 0; None likewise.
        keep_chunks: as :func:`run_plan`.
        progress: as :func:`run_plan`.
        timeout: seconds in which all of them must have come; as long without a sign of the first, it is lost.

    Returns:
        The table on the first host, None on the others.

    Raises:
        ParameterError: a number of processes that is not positive, a process that is none of them.
        WorkerError: the hosts do not meet, as where their folder is not shared, or the first one cannot begin.
        StoreError: as :func:`run_plan`.
        OutputError: as :func:`run_plan`.
    """
    output = Path(output)
    progress.note(f"waiting for the other hosts, {timeout} s at most")
    meeting = _meet(output, coordinator, processes, process, timeout)
    try:
        if meeting.process == 0:
            return _lead(plan, output, meeting, keep_chunks, progress)
        progress.note(f"host {meeting.process} of {meeting.processes}")
        word = meeting.hear(timeout)
    finally:
        meeting.leave()
    if "error" in word:
        raise WorkerError("host 0", f"it could not begin: {word['error']}")
    _follow(plan, output, plan.chunks.only(word["left"]), meeting, progress)
    return None


@dataclass(frozen=True)
class HostExecutor(LocalExecutor):
    """One of several hosts.

    Attributes:
        store: which all of them share.
        output: the table; once it is there, nothing is left to do.
        meeting: at which the first host tells the others what is left.
    """

    store: Store
    output: Path
    meeting: Meeting

    def draw(self, chunks: Chunks, solvers: Sequence[str], progress: Progress) -> Iterator[tuple[Chunk, Arrays]]:
        """Its own part of the chunks, then those of the others that are not there yet."""
        number, count = self.meeting.process, self.meeting.processes
        if number == 0:
            self.meeting.say(left=chunks.runs)
        advance = progress.bar("drawing", chunks.total_draws)
        for chunk in chunks.in_turn(number, count):
            if self.store.has(chunk) or finished_table(self.output, self.plan)[0] is not None:
                advance(chunk.count)
            else:
                yield chunk, compute_chunk(self.plan, chunk, solvers[chunk.case], advance=advance)


def _meet(output: Path, coordinator: str | None, processes: int | None, process: int | None, timeout: int) -> Meeting:
    if processes is not None:
        processes = require_positive_integer("processes", processes)
    if process is not None and not 0 <= process < (processes or process + 1):
        raise ParameterError("process", process, f"an integer from 0 to {(processes or 1) - 1}")
    if coordinator is not None and not re.fullmatch(r".+:\d+", coordinator, re.ASCII):
        raise ParameterError("coordinator", coordinator, "HOST:PORT of the first host")
    where = "the other hosts" if coordinator is None else f"coordinator {coordinator}"
    count, number = _numbered(os.environ)
    count, number = processes or count, number if process is None else process
    if count is None or number is None or number >= count:
        unknown = "nobody says which of how many this one is; give their number (processes) and its own (process)"
        raise WorkerError(where, f"the hosts have not met: {unknown}")
    meeting = Meeting(output.with_name(f"{output.name}.hosts"), number, count)
    try:
        meeting.gather(timeout)
    except TimeoutError as error:
        meeting.leave()
        absent = f"nobody there within {timeout} s" if number else "the hosts have not met"
        raise WorkerError(where, f"{absent} ({error})") from error
    except BaseException:
        meeting.leave()
        raise
    return meeting


def _numbered(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """How many processes there are and which one this is, by whatever has started them; None where nothing says it."""
    for size, rank in _NUMBERED_BY:
        if environment.get(size, "").isdecimal() and environment.get(rank, "").isdecimal():
            return int(environment[size]), int(environment[rank])
    if jax.process_count() > 1:  # a TPU pod
        return jax.process_count(), jax.process_index()
    return None, None


def _lead(plan: Plan, output: Path, meeting: Meeting, keep_chunks: bool, progress: Progress) -> xr.Dataset:
    try:
        progress.note(f"host 0 of {meeting.processes}")

        def executor(store: Store) -> AbstractContextManager[HostExecutor]:
            return nullcontext(HostExecutor(plan, store, output, meeting))

        table = run_through_store(plan, output, executor, keep_chunks, progress)
    except BaseException as error:
        with suppress(RmtbaseError):
            meeting.say(error=str(error) or type(error).__name__)
        raise
    meeting.say(left=[])
    return table


def _follow(plan: Plan, output: Path, left: Chunks, meeting: Meeting, progress: Progress) -> None:
    with open_store(store_folder(output), plan, lock=False) as store:
        executor = HostExecutor(plan, store, output, meeting)
        solvers = store.record_settings(executor.machine) if left.size else []
        try:
            for chunk, arrays in executor.draw(left, solvers, progress):
                store.write(chunk, arrays)
                if store.discard_if_removed(chunk):
                    break
        except OutputError:
            if finished_table(output, plan)[0] is None:  # else the store has been removed meanwhile
                raise
    progress.note("nothing is left to draw: host 0 writes the table")
