"""Runs of a plan: in memory, or through a store that stays intact if the run is killed at any moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import xarray as xr

from rmtbase.errors import MissingFileError, OutputError, ParameterError, RmtbaseError, StoreError, said_what_is_kept
from rmtbase.montecarlo._chunks import Chunk, Chunks
from rmtbase.montecarlo._compute import Arrays, choose_solvers, compute_chunk
from rmtbase.montecarlo._machine import machine_settings
from rmtbase.montecarlo._memory import require_workers
from rmtbase.montecarlo._plan import Plan
from rmtbase.montecarlo._preflight import cost, require_possible, require_possible_in_memory
from rmtbase.montecarlo._store import Store, open_store, require_store
from rmtbase.montecarlo._summary import DrawSource
from rmtbase.montecarlo._table import make_table
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import shown
from rmtbase.tables import open_table, require_writable, sweep, write_table

if TYPE_CHECKING:
    from rmtbase.montecarlo._dask import DaskWorkers


class Executor(Protocol):
    """Executor of the chunks of a plan: this process, or Dask workers."""

    @property
    def machine(self) -> dict[str, Any]:
        """Versions and platform, the same on all workers."""
        ...

    def choose_solvers(self) -> list[str]:
        """Choose the solver of each case; called if none is recorded yet."""
        ...

    def draw(self, chunks: Chunks, solvers: Sequence[str], progress: Progress) -> Iterator[tuple[Chunk, Arrays]]:
        """Yield the chunks in the order in which they are finished, for the caller to write."""
        ...


@dataclass(frozen=True)
class LocalExecutor:
    """Executor in this process, with all the cores and devices that it may use."""

    plan: Plan

    @property
    def machine(self) -> dict[str, Any]:
        """Versions and platform of this process."""
        return machine_settings()

    def choose_solvers(self) -> list[str]:
        """Choose the solvers in this process."""
        return choose_solvers(self.plan)

    def draw(self, chunks: Chunks, solvers: Sequence[str], progress: Progress) -> Iterator[tuple[Chunk, Arrays]]:
        """Draw one chunk after the other."""
        advance = progress.bar("drawing", chunks.total_draws)
        for chunk in chunks:
            yield chunk, compute_chunk(self.plan, chunk, solvers[chunk.case], advance=advance)


def run_in_memory(plan: Plan, progress: Progress = SILENT, self_normalize: bool = False) -> xr.Dataset:
    """Simulate a plan in memory and return its table. A stopped run is lost; use :func:`run_plan` for long ones."""
    source, solvers = draw_in_memory(plan, progress)
    return make_table(source, {**machine_settings(), "solvers": solvers}, self_normalize)


def draw_in_memory(plan: Plan, progress: Progress) -> tuple[DrawSource, list[str]]:
    """Make all draws of a plan; return them with the solver of each case."""
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
    """Simulate a plan and write its table. A run that was killed can be repeated: it resumes and gives the same table.

    Finished chunks are kept in the folder ``<output>.chunks`` until the table is written. After a kill, only chunks
    that were being drawn are drawn again. A plan that differs only in having more draws also resumes from these chunks,
    and its table equals that of a run that began with that number. Memory, disk space and number of files are checked
    first, and a run that cannot complete is refused before anything is drawn.

    Memory grows with the draws only if the plan keeps the sample: by 16 bytes for each statistic and draw (and each σ
    of a W_QK table, with the estimates of both its σ) while the table is made. In addition, memory holds the draws
    under way and one chunk, of which there are three copies while it is written.

    Args:
        plan: the plan to simulate.
        output: the netCDF file of the table. If it already is this plan's table, nothing is drawn.
        workers: number of local processes through Dask, each on one core of the CPU, at most a few per core. They
            communicate by TLS with keys made for this run. Call from under ``if __name__ == "__main__":``, like all
            code that starts processes.
        scheduler: address of a Dask scheduler to use instead; its workers must have this version of rmtbase installed.
        keep_chunks: keep the chunks when the table is written.
        progress: receives the number of finished draws, and notes on what is resumed, put aside or complete.

    Raises:
        OutputError: the table or a chunk cannot be written. Finished chunks are kept.
        StoreError: the folder holds chunks of another plan or installation, or another run is using it.
        ParameterError: both ``workers`` and ``scheduler`` are given; ``workers`` is not a positive integer or far more
            than the cores; or draws, chunks or workers take more memory than is available.
        AllocationError: one draw takes more memory than is available.
        ForkedProcessError: this process was forked from a process that had used JAX.
        MissingDependencyError: Dask is asked for and not installed.
        WorkerError: the Dask workers are lost, fail at a chunk repeatedly, or differ in their versions or platform.
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


def plan_status(plan: Plan, output: Path | str) -> list[str]:
    """Report, in lines of text, what a run of the plan would find and need, without changing or drawing anything.

    Another run may be in progress meanwhile.
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
        lines.append(f"{shown(folder)} holds a run of {fewer:,} draws: this one goes on from its whole chunks")
    there = [number for number in store.present() if not store.was_shorter(plan.chunks.numbered(number))]
    wrong = {number: store.unsound(plan.chunks.numbered(number)) for number in there}
    lines += [f"not sound, to be drawn again: {what}" for what in wrong.values() if what is not None]
    sound = [number for number, what in wrong.items() if what is None]
    there = plan.chunks.only((number, number + 1) for number in sound)
    left = plan.chunks.without(sound)
    return [
        *lines,
        f"{shown(folder)}: {_amount(there)} there, {_amount(left)} left",
        f"the rest would take {cost(plan, left)}",
    ]


def store_folder(output: Path) -> Path:
    """Folder of the chunks of an unfinished table."""
    return output.with_name(output.name + ".chunks")


def finished_table(output: Path, plan: Plan) -> tuple[xr.Dataset | None, str]:
    """Return the plan's table if the file holds it; else None and a note on the file that is there, if any."""
    try:
        table = open_table(output)
    except MissingFileError:
        return None, ""
    except RmtbaseError as error:
        return None, f"to be replaced when the new table is complete: {error}"
    if isinstance(table, xr.Dataset) and table.attrs.get("plan_hash") == plan.hash:
        return table, ""
    return None, f"{shown(output)} is another table: to be replaced when the new one is complete"


def _complete(
    store: Store,
    output: Path,
    entering: AbstractContextManager[Executor],
    keep_chunks: bool,
    progress: Progress,
    workers: int | None,
) -> xr.Dataset:
    """Draw the missing chunks, write the table, and remove the store."""
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
    if not keep_chunks:
        _remove(store, progress)
    return table


def _note_resumption(left: Chunks, wanted: Chunks, progress: Progress) -> None:
    if not left.size:
        progress.note(f"all {wanted.size:,} chunks are there: nothing is left to draw")
    elif left.size < wanted.size:
        progress.note(f"resuming: {_amount(left)} left of {_amount(wanted)}")


def _draw(store: Store, left: Chunks, executor: Executor, solvers: Sequence[str], progress: Progress) -> None:
    """Draw and write chunks, then read them again."""
    for chunk, arrays in executor.draw(left, solvers, progress):
        store.write(chunk, arrays)
    for chunk in left:
        if (wrong := store.unsound(chunk)) is not None:
            raise StoreError(store.folder, f"damage done after it was written: {wrong}", "a sound disk")


def _executor(
    plan: Plan, workers: int | None, scheduler: str | None, progress: Progress
) -> tuple[AbstractContextManager[Executor], int | None]:
    """Return the executor, to be entered, and the number of drawing processes on this machine; None for a scheduler."""
    number = _require_one_of(workers, scheduler)
    if number is None:
        return nullcontext(LocalExecutor(plan)), 1
    from rmtbase.montecarlo._dask import dask_executor

    return dask_executor(plan, number, scheduler, progress), number or None


def dask_workers(
    workers: int | None, scheduler: str | None, progress: Progress, work: str
) -> AbstractContextManager[DaskWorkers] | None:
    """Local worker processes through Dask, or the workers of a scheduler; None if neither is asked for."""
    number = _require_one_of(workers, scheduler)
    if number is None:
        return None
    from rmtbase.montecarlo import _dask

    return _dask.dask_workers(number, scheduler, progress, work)


def _require_one_of(workers: int | None, scheduler: str | None) -> int | None:
    """Return the number of local workers, 0 for a scheduler; None if neither is asked for."""
    if workers is None:
        return None if scheduler is None else 0
    if scheduler is not None:
        raise ParameterError("workers", workers, f"nothing beside the scheduler {scheduler}, whose workers draw")
    return require_workers("workers", workers)


def _kept(store: Store) -> str:
    """Say which chunks are kept, and where; "" if there are none."""
    there = store.plan.chunks.only((number, number + 1) for number in store.present())
    return f"{_amount(there)} are kept in {shown(store.folder)}" if there.size else ""


def _tidy(output: Path, plan: Plan, progress: Progress) -> None:
    """Remove the chunks left by a run that was killed after it had written its table."""
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
        progress.note(f"the table is written, but its chunks are still there: {error}")


def _amount(chunks: Chunks) -> str:
    return f"{chunks.total_draws:,} draws in {chunks.size:,} chunk{'s' if chunks.size != 1 else ''}"
