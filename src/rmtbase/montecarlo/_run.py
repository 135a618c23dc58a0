"""Runs of a plan: in memory, or through a store that stays intact if the run is killed at any moment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from rmtbase.errors import MissingFileError, OutputError, RmtbaseError, StoreError, resumable
from rmtbase.executors import Executor, Inline, LocalProcesses
from rmtbase.montecarlo._compute import choose_solvers, compute_chunk
from rmtbase.montecarlo._machine import machine_settings
from rmtbase.montecarlo._memory import require_workers
from rmtbase.montecarlo._plan import Chunk, Plan
from rmtbase.montecarlo._preflight import require_possible, require_possible_in_memory
from rmtbase.montecarlo._store import Store, open_store
from rmtbase.montecarlo._summary import DrawSource
from rmtbase.montecarlo._table import make_table
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import shown
from rmtbase.tables import open_table, require_writable, sweep, write_table

if TYPE_CHECKING:
    from rmtbase.montecarlo._dask import DaskWorkers


def run_in_memory(plan: Plan, progress: Progress = SILENT, self_normalize: bool = False) -> xr.Dataset:
    """Simulate a plan and return its table, with all draws in memory.

    If ``self_normalize``, also the quantiles of spectra divided by each draw's own scale, always there for W_QK.
    """
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
    executor: Executor = Inline(),  # noqa: B008  # frozen
    keep_chunks: bool = False,
    progress: Progress = SILENT,
) -> xr.Dataset:
    """Simulate a plan and write its table. A run that was killed can be repeated: it resumes and gives the same table.

    Finished chunks are kept in the folder ``<output>.chunks`` until the table is written. After a kill, only chunks
    that were being drawn are drawn again. A plan that differs only in its number of draws also resumes from these
    chunks, and its table equals that of a run that began with that number. Memory and disk space are checked first,
    and a run that cannot complete is refused before anything is drawn.

    Memory grows with the draws only if the plan keeps the sample: by 16 bytes for each statistic and draw (and each σ
    of a W_QK table, with the estimates of both its σ) while the table is made. In addition, memory holds the draws
    under way and one chunk, of which there are three copies while it is written.

    Args:
        plan: the plan to simulate.
        output: the netCDF file of the table. If it already is this plan's table, nothing is drawn.
        executor: :class:`Inline`, :class:`LocalProcesses` or the workers of a Dask :class:`Scheduler`.
        keep_chunks: keep the chunks when the table is written.
        progress: receives the number of finished draws, and notes on what is resumed, drawn again or complete.

    Raises:
        OutputError: the table or a chunk cannot be written. Finished chunks are kept.
        StoreError: the folder holds chunks of another plan or installation, or another run is using it.
        ParameterError: the number of processes is not a positive integer or far more than the cores; or draws, chunks
            or processes take more memory than is available.
        AllocationError: one draw takes more memory than is available.
        ForkedProcessError: this process was forked from a process that had used JAX.
        MissingDependencyError: Dask is asked for and not installed.
        WorkerError: the Dask workers are lost, fail at a chunk repeatedly, or differ in their versions or platform.
    """
    output = Path(output)
    entering = dask_workers(executor, progress, "drawing")
    table, replaced = _finished_table(output, plan)
    if replaced:
        progress.note(replaced)
    if table is None:
        require_writable(output)
        with open_store(store_folder(output), plan) as store:
            with resumable(lambda: _kept(store)):
                sweep(output.resolve().parent, output.name)
                missing = store.missing(progress)
                require_possible(plan, missing, output, store.folder, executor)
                _note_resumption(missing, plan.chunks, progress)
                if missing:
                    with entering as workers:
                        _draw(store, missing, workers, progress)
                table = make_table(DrawSource(plan, store.read), store.settings())
                write_table(table, output)
            if not keep_chunks:
                _remove(store, progress)
        return table
    progress.note(f"{shown(output)} is the table of this plan already: nothing is left to draw")
    if not keep_chunks and store_folder(output).exists():  # of a run that was killed after it had written its table
        try:
            with open_store(store_folder(output), plan) as store:
                sweep(output.resolve().parent, output.name)
                _remove(store, progress)
        except (StoreError, OutputError) as error:
            progress.note(f"left as it is: {error}")
    return table


def dask_workers(executor: Executor, progress: Progress, work: str) -> AbstractContextManager[DaskWorkers | None]:
    """Return the workers of an executor, to be entered, or None for this process; a wrong executor is refused now."""
    if isinstance(executor, Inline):
        return nullcontext()
    if isinstance(executor, LocalProcesses):
        require_workers("workers", executor.count)
    from rmtbase.montecarlo._dask import start_workers

    return start_workers(executor, progress, work)


def store_folder(output: Path) -> Path:
    """Folder of the chunks of an unfinished table."""
    return output.with_name(output.name + ".chunks")


def _finished_table(output: Path, plan: Plan) -> tuple[xr.Dataset | None, str]:
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


def _note_resumption(missing: Sequence[Chunk], chunks: Sequence[Chunk], progress: Progress) -> None:
    if not missing:
        progress.note(f"all {len(chunks):,} chunks are there: nothing is left to draw")
    elif len(missing) < len(chunks):
        progress.note(f"resuming: {_amount(missing)} left of {_amount(chunks)}")


def _draw(store: Store, chunks: Sequence[Chunk], workers: DaskWorkers | None, progress: Progress) -> None:
    """Draw chunks, write them in the order in which they are finished, and read them again."""
    plan, draws = store.plan, _draws(chunks)
    if workers is None:
        solvers = store.record_settings(machine_settings(), partial(choose_solvers, plan))
        advance = progress.bar("drawing", draws)
        for chunk in chunks:
            store.write(chunk, compute_chunk(plan, chunk, solvers[chunk.case], advance=advance))
    else:
        solvers = store.record_settings(workers.machine, partial(workers.call, partial(choose_solvers, plan, cores=1)))
        advance = progress.bar("drawing", draws)
        drawn = workers.map(partial(compute_chunk, cores=1), chunks, lambda chunk: (plan, chunk, solvers[chunk.case]))
        for chunk, arrays in drawn:
            store.write(chunk, arrays)
            advance(chunk.count)
    for chunk in chunks:
        if (fault := store.unsound(chunk)) is not None:
            raise StoreError(store.folder, f"damage done after it was written: {fault}", "a sound disk")


def _kept(store: Store) -> str:
    """Say which chunks are kept, and where; "" if there are none."""
    chunks = store.present()
    return f"{_amount(chunks)} are kept in {shown(store.folder)}" if chunks else ""


def _remove(store: Store, progress: Progress) -> None:
    try:
        store.remove()
    except OutputError as error:
        progress.note(f"the table is written, but its chunks are still there: {error}")


def _amount(chunks: Sequence[Chunk]) -> str:
    return f"{_draws(chunks):,} draws in {len(chunks):,} chunk{'s' if len(chunks) != 1 else ''}"


def _draws(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.count for chunk in chunks)
