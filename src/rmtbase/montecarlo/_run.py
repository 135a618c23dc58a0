"""Running a plan: in memory, or through a store that any kill leaves whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import xarray as xr

from rmtbase.errors import (
    MissingFileError,
    OutputError,
    ParameterError,
    RmtbaseError,
    StoreError,
    said_what_is_kept,
)
from rmtbase.montecarlo._chunks import Chunk, Chunks
from rmtbase.montecarlo._compute import Arrays, choose_solvers, compute_chunk
from rmtbase.montecarlo._machine import machine_settings
from rmtbase.montecarlo._memory import require_workers
from rmtbase.montecarlo._plan import Plan
from rmtbase.montecarlo._preflight import cost, require_possible, require_possible_in_memory
from rmtbase.montecarlo._store import Store, open_part, open_store, require_store
from rmtbase.montecarlo._summary import DrawSource
from rmtbase.montecarlo._table import make_table
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import shown
from rmtbase.tables import open_table, require_writable, sweep, write_table

if TYPE_CHECKING:
    from rmtbase.montecarlo._dask import DaskWorkers


class Executor(Protocol):
    """Drawer of the chunks of a plan: this process, or Dask workers."""

    @property
    def machine(self) -> dict[str, Any]:
        """Versions and platform of what draws, everywhere the same."""
        ...

    def choose_solvers(self) -> list[str]:
        """The solver of each case, where none is recorded yet."""
        ...

    def draw(self, chunks: Chunks, solvers: Sequence[str], progress: Progress) -> Iterator[tuple[Chunk, Arrays]]:
        """The chunks in whatever order they are finished, for the caller to write."""
        ...


@dataclass(frozen=True)
class LocalExecutor:
    """This process, with all the cores and devices that it may use."""

    plan: Plan

    @property
    def machine(self) -> dict[str, Any]:
        """Of this process."""
        return machine_settings()

    def choose_solvers(self) -> list[str]:
        """Chosen here."""
        return choose_solvers(self.plan)

    def draw(self, chunks: Chunks, solvers: Sequence[str], progress: Progress) -> Iterator[tuple[Chunk, Arrays]]:
        """One chunk after the other."""
        advance = progress.bar("drawing", chunks.total_draws)
        for chunk in chunks:
            yield chunk, compute_chunk(self.plan, chunk, solvers[chunk.case], advance=advance)


def run_in_memory(plan: Plan, progress: Progress = SILENT, self_normalize: bool = False) -> xr.Dataset:
    """The table of a plan, without a file. What is stopped is lost; for long runs :func:`run_plan`.

    Args:
        plan: what to simulate.
        progress: told of the draws finished.
        self_normalize: whether a table of spectra is for a null, and has each draw's own estimate of its scale.

    Raises:
        ParameterError, AllocationError: the draws, or one of them, take more memory than is there.
        ForkedProcessError: this process was forked from one that had used JAX.
    """
    source, solvers = draw_in_memory(plan, progress)
    return make_table(source, {**machine_settings(), "solvers": solvers}, self_normalize)


def draw_in_memory(plan: Plan, progress: Progress) -> tuple[DrawSource, list[str]]:
    """All draws of a plan, and the solver of each case."""
    require_possible_in_memory(plan)
    solvers, advance = choose_solvers(plan), progress.bar("drawing the null", plan.total_draws)
    drawn = {chunk: compute_chunk(plan, chunk, solvers[chunk.case], advance=advance) for chunk in plan.chunks}
    return DrawSource(plan, lambda chunk, variable, rows: drawn[chunk][variable][rows]), solvers


def run_plan(
    plan: Plan,
    output: Path | str,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    keep_chunks: bool = False,
    progress: Progress = SILENT,
) -> xr.Dataset:
    """Simulate a plan and write its table. Run again after a kill, it goes on where it stood; the table is the same.

    Finished chunks are kept in the folder ``<output>.chunks`` until the table is written. Only what was being drawn
    when the run was killed is drawn again. A plan that is equal but for more draws goes on from them too, and its table
    is that of a run that began with so many. What it takes in memory, on disk and in files is asked first, and a run
    that cannot end is refused before anything is drawn.

    Memory grows with the draws only where the plan keeps the sample: then by 16 bytes for each statistic and draw (and
    each σ of a W_QK table, with the estimates of its two) while the table is made. Beside that there is one chunk,
    three times while it is written, and what the draws under way need.

    Args:
        plan: what to simulate.
        output: the netCDF file of the table. Where it is this plan's table already, nothing is drawn.
        workers: that many local processes through Dask, each on one core of the CPU, a few for each core at most; they
            speak TLS with keys of this run alone. Call from under ``if __name__ == "__main__":``, as all that starts
            processes.
        scheduler: address of a Dask scheduler instead, whose workers have this rmtbase installed.
        keep_chunks: keep the chunks when the table is written.
        progress: told of the draws finished, and of what is resumed, put aside or complete.

    Raises:
        OutputError: the table or a chunk cannot be written. Finished chunks are kept.
        StoreError: the folder holds another plan's chunks, those of another installation, or another run is at work.
        ParameterError: both ``workers`` and ``scheduler``, workers that are no positive integer or far more than cores;
            draws, chunks or workers that take more memory than is there.
        AllocationError: one draw takes more memory than is there.
        ForkedProcessError: this process was forked from one that had used JAX.
        MissingDependencyError: Dask is asked for and not installed.
        WorkerError: the Dask workers are lost, fail at a chunk again and again, or are not all of one kind.
    """
    output = Path(output)
    entering, here = _executor(plan, workers, scheduler, progress)
    table, other = finished_table(output, plan)
    if other:
        progress.note(other)
    if table is None:
        require_writable(output)
        with open_store(store_folder(output), plan) as store:
            return _complete(store, output, entering, keep_chunks, progress, here)
    progress.note(f"{shown(output)} is the table of this plan already: nothing is left to draw")
    if not keep_chunks:
        _tidy(output, plan, progress)
    return table


def draw_chunks(
    plan: Plan,
    output: Path | str,
    first: int,
    stop: int,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress = SILENT,
) -> None:
    """Draw some chunks of a plan into the store of its output, as one job of an array does; no table is written.

    Jobs of the same plan and output work side by side on machines that share the output's folder. When they are done,
    :func:`run_plan` draws whatever is still missing and writes the table, which is that of one process to the bit. It
    is refused while a job is at work. A job that is killed and started again goes on where it stood.

    Args:
        plan: what to simulate.
        output: the netCDF file of the table, the same in every job.
        first: number of the first chunk, from 0.
        stop: number behind the last; more than there are mean the last one.
        workers: as :func:`run_plan`.
        scheduler: as :func:`run_plan`.
        progress: told of the draws finished, and of what is resumed, put aside or complete.

    Raises:
        ParameterError: numbers that are no range of the plan's chunks; as :func:`run_plan`.
        StoreError: as :func:`run_plan`; another job draws the same range.
        OutputError, AllocationError, ForkedProcessError, MissingDependencyError, WorkerError: as :func:`run_plan`.
    """
    output, size = Path(output), plan.chunks.size
    if not 0 <= first < min(stop, size):
        raise ParameterError("chunks", f"{first}:{stop}", f"FIRST:STOP, a range of the plan's chunks 0:{size}")
    stop = min(stop, size)
    entering, here = _executor(plan, workers, scheduler, progress)
    if finished_table(output, plan)[0] is not None:
        progress.note(f"{shown(output)} is the table of this plan already: nothing is left to draw")
        return
    require_writable(output)
    with open_part(store_folder(output), plan, first, stop) as store, said_what_is_kept(lambda: _kept(store)):
        expected = plan.chunks.without(store.present()).between(first, stop)
        require_possible(plan, expected, output, store.folder, here)
        with entering as executor:
            with store.exclusively():
                solvers = store.record_settings(executor.machine, executor.choose_solvers)
            left = store.missing(progress, (first, stop))
            _note_resumption(left, plan.chunks.between(first, stop), progress)
            _draw(store, left, executor, solvers, progress)
        left = plan.chunks.without(store.present())
    there = f"chunks {first:,} to {stop - 1:,} are in {shown(store.folder)}"
    others = f"{_amount(left)} of others left" if left.size else "a run without a range writes the table"
    progress.note(f"{there}; {others}")


def plan_status(plan: Plan, output: Path | str) -> list[str]:
    """What a run of the plan would find and take, in lines of text. Nothing is changed or drawn; a run may be at work.

    Raises:
        StoreError: the folder of the chunks is another plan's, or no store.
    """
    output = Path(output)
    folder = store_folder(output)
    lines = [f"plan {shown(plan.name)} ({plan.hash[:12]}): {_amount(plan.chunks)}"]
    table, other = finished_table(output, plan)
    if table is not None:
        return [*lines, f"{shown(output)} is its table: nothing is left to draw"]
    lines += [other] if other else []
    require_store(folder, plan)
    store = Store(folder, plan)
    if (fewer := store.extended_from) is not None:
        lines.append(f"{shown(folder)} is that of {fewer:,} draws: a run goes on from its whole chunks")
    there = [number for number in store.present() if not store.was_shorter(plan.chunks.numbered(number))]
    wrong = {number: store.unsound(plan.chunks.numbered(number)) for number in there}
    lines += [f"not sound, to be drawn again: {what}" for what in wrong.values() if what is not None]
    sound = [number for number, what in wrong.items() if what is None]
    there = plan.chunks.only((number, number + 1) for number in sound)
    left = plan.chunks.without(sound)
    return [
        *lines,
        f"{shown(folder)}: {_amount(there)} there, {_amount(left)} left",
        f"what is left would take {cost(plan, left)}",
    ]


def store_folder(output: Path) -> Path:
    """The folder of the chunks of a table that is not finished."""
    return output.with_name(output.name + ".chunks")


def finished_table(output: Path, plan: Plan) -> tuple[xr.Dataset | None, str]:
    """The plan's table, if the file is that; else None, and what is there in its place, if anything is."""
    try:
        table = open_table(output)
    except MissingFileError:
        return None, ""
    except RmtbaseError as error:
        return None, f"to be replaced when the new table is whole: {error}"
    if isinstance(table, xr.Dataset) and table.attrs.get("plan_hash") == plan.hash:
        return table, ""
    return None, f"{shown(output)} is another table: to be replaced when the new one is whole"


def _complete(
    store: Store,
    output: Path,
    entering: AbstractContextManager[Executor],
    keep_chunks: bool,
    progress: Progress,
    workers: int | None,
) -> xr.Dataset:
    """Draw what is left, write the table, and remove the store."""
    plan = store.plan
    with said_what_is_kept(lambda: _kept(store)):
        sweep(output.resolve().parent, output.name)
        left = store.missing(progress)
        if (fewer := store.extended_from) is not None:
            kept = plan.total_draws - left.total_draws
            progress.note(
                f"going on from {kept:,} of the {fewer:,} draws in {shown(store.folder)}, those in whole chunks"
            )
        require_possible(plan, left, output, store.folder, workers)
        _note_resumption(left, plan.chunks, progress)
        if left.size:
            with entering as executor:
                solvers = store.record_settings(executor.machine, executor.choose_solvers)
                _draw(store, left, executor, solvers, progress)
        table = make_table(DrawSource(plan, store.read), store.settings())
        write_table(table, output)
    progress.note(f"wrote {shown(output)}")
    if not keep_chunks:
        _remove(store, progress)
    return table


def _note_resumption(left: Chunks, wanted: Chunks, progress: Progress) -> None:
    if not left.size:
        progress.note(f"all {wanted.size:,} chunks are there: nothing is left to draw")
    elif left.size < wanted.size:
        progress.note(f"resuming: {_amount(left)} left of {_amount(wanted)}")


def _draw(store: Store, left: Chunks, executor: Executor, solvers: Sequence[str], progress: Progress) -> None:
    """Draw and write chunks, and read them again.

    Raises:
        StoreError: one is not as it was written.
    """
    for chunk, arrays in executor.draw(left, solvers, progress):
        store.write(chunk, arrays)
    for chunk in left:
        if (wrong := store.unsound(chunk)) is not None:
            raise StoreError(store.folder, f"damage done after it was written: {wrong}", "a sound disk")


def _executor(
    plan: Plan, workers: int | None, scheduler: str | None, progress: Progress
) -> tuple[AbstractContextManager[Executor], int | None]:
    """The executor, to be entered, and how many processes of this machine draw; None where other machines do."""
    number = _require_one_of(workers, scheduler)
    if number is None:
        return nullcontext(LocalExecutor(plan)), 1
    from rmtbase.montecarlo._dask import dask_executor

    return dask_executor(plan, number, scheduler, progress), number or None


def dask_workers(
    workers: int | None, scheduler: str | None, progress: Progress, work: str
) -> AbstractContextManager[DaskWorkers] | None:
    """That many local processes through Dask, or the workers of a scheduler; None where neither is asked for.

    Args:
        workers: how many.
        scheduler: address of a Dask scheduler instead.
        progress: told of the workers.
        work: what they are to do, in a word: ``drawing``.

    Raises:
        ParameterError: both, or a number of workers that is no positive integer or far more than cores.
        MissingDependencyError: Dask is asked for and not installed.
        WorkerError: as the block is entered, there are none, or they are of different kinds.
    """
    number = _require_one_of(workers, scheduler)
    if number is None:
        return None
    from rmtbase.montecarlo import _dask

    return _dask.dask_workers(number, scheduler, progress, work)


def _require_one_of(workers: int | None, scheduler: str | None) -> int | None:
    """The number of local workers, 0 beside a scheduler; None where neither is asked for."""
    if workers is None:
        return None if scheduler is None else 0
    if scheduler is not None:
        raise ParameterError("workers", workers, f"nothing beside the scheduler {scheduler}, whose workers draw")
    return require_workers("workers", workers)


def _kept(store: Store) -> str:
    """Which chunks are kept, and where; "" where none is."""
    there = store.plan.chunks.only((number, number + 1) for number in store.present())
    return f"{_amount(there)} are kept in {shown(store.folder)}" if there.size else ""


def _tidy(output: Path, plan: Plan, progress: Progress) -> None:
    """Remove the chunks that a run which was killed after its table had been written has left."""
    folder = store_folder(output)
    if not folder.exists():
        return
    try:
        with open_store(folder, plan) as store:
            sweep(output.resolve().parent, output.name)
            _remove(store, progress)
    except (StoreError, OutputError) as error:
        progress.note(f"left as it is: {error}")


def _remove(store: Store, progress: Progress) -> None:
    try:
        store.remove()
    except OutputError as error:
        progress.note(f"the table is written; what it was made from is still there: {error}")


def _amount(chunks: Chunks) -> str:
    return f"{chunks.total_draws:,} draws in {chunks.size:,} chunk{'s' if chunks.size != 1 else ''}"
