"""Runs of a plan: in memory, or through a store that stays intact if the run is killed at any moment."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from rmtbase.errors import MissingFileError, OutputError, ParameterError, RmtbaseError, StoreError, resumable
from rmtbase.executors import Executor, Inline, LocalProcesses, Scheduler
from rmtbase.montecarlo import _machine
from rmtbase.montecarlo._compute import choose_solvers, chunk_layout, compute_chunk
from rmtbase.montecarlo._machine import machine_settings
from rmtbase.montecarlo._plan import Chunk, Plan
from rmtbase.montecarlo._store import Store, open_store
from rmtbase.montecarlo._summary import DrawSource
from rmtbase.montecarlo._table import make_table
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import shown
from rmtbase.tables import open_table, require_writable, sweep, write_table
from rmtbase.words import plural

if TYPE_CHECKING:
    from rmtbase.montecarlo._dask import DaskWorkers

_HEADER = 512  # approximate bytes of a chunk's file before its numbers
_PACKED = 3  # copies of a chunk in memory while it is written: its arrays, their bytes, the file's
_JOINED = 2  # copies of a table's sample in memory while its cases are joined
_COMPRESSED = 0.75  # smallest compressed share of a sample: the digits of random numbers have no pattern
_WORKER = 2**28  # bytes of a worker process before it has drawn anything


def run_in_memory(plan: Plan, progress: Progress = SILENT, self_normalize: bool = False) -> xr.Dataset:
    """Simulate a plan in memory; if ``self_normalize``, with quantiles of spectra divided by each draw's own scale."""
    source, solvers = draw_in_memory(plan, progress)
    return make_table(source, {**machine_settings(), "solvers": solvers}, self_normalize)


def draw_in_memory(plan: Plan, progress: Progress) -> tuple[DrawSource, list[str]]:
    _require_draws_fit(plan)
    drawn = sum(case.draws * size for case, size in zip(plan.cases, _draw_bytes(plan), strict=True))
    most = max(plan.draws)
    each = math.ceil((drawn + _JOINED * _table_bytes(plan)) / most)
    _machine.require_results_fit(most, each, "run_plan keeps them on disk")
    solvers, advance = choose_solvers(plan), progress.bar("drawing the null", plan.total_draws)
    chunks = {chunk: compute_chunk(plan, chunk, solvers[chunk.case], advance=advance) for chunk in plan.chunks}
    return DrawSource(plan, lambda chunk, variable, rows: chunks[chunk][variable][rows]), solvers


def run_plan(
    plan: Plan,
    output: Path | str,
    *,
    executor: Executor = Inline(),  # noqa: B008  # frozen
    keep_chunks: bool = False,
    progress: Progress = SILENT,
) -> xr.Dataset:
    """Simulate a plan and write its table. A run that was killed can be repeated: it resumes and gives the same table.

    Finished chunks are kept in the folder ``<output>.chunks`` until the table is written. A plan that differs only in
    its number of draws also resumes from these chunks, and its table equals that of a run that began with that number.
    Memory and disk space are checked first, and a run that cannot complete is refused before anything is drawn.

    Memory grows with the draws only if the plan keeps the sample: by 16 bytes for each statistic and draw (and each σ
    of a W_QK table, with the estimates of both its σ) while the table is made. In addition, memory holds the draws
    under way and three copies of one chunk.

    Args:
        plan: the plan to simulate.
        output: the netCDF file of the table. If it already is this plan's table, nothing is drawn.
        executor: :class:`Inline`, :class:`LocalProcesses` or the workers of a Dask :class:`Scheduler`.
        keep_chunks: keep the chunks when the table is written.
        progress: receives the number of finished draws, and notes on what is resumed, drawn again or complete.

    Raises:
        OutputError: the table or a chunk cannot be written. Finished chunks are kept.
        StoreError: the folder holds chunks of another plan or installation, or another run is using it.
        ParameterError: the number of processes, or the memory that draws, chunks or processes take, is too large.
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
            with resumable(
                lambda: f"{_amount(chunks)} are kept in {shown(store.folder)}" if (chunks := store.present()) else ""
            ):
                sweep(output.resolve().parent, output.name)
                missing = store.missing(progress)
                _require_possible(plan, missing, output, store.folder, executor)
                if not missing:
                    progress.note(f"all {len(plan.chunks):,} chunks are there: nothing is left to draw")
                elif len(missing) < len(plan.chunks):
                    progress.note(f"resuming: {_amount(missing)} left of {_amount(plan.chunks)}")
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
        _machine.require_workers("workers", executor.count)
    from rmtbase.montecarlo._dask import start_workers

    return start_workers(executor, progress, work)


def store_folder(output: Path) -> Path:
    return output.with_name(output.name + ".chunks")


def _finished_table(output: Path, plan: Plan) -> tuple[xr.Dataset | None, str]:
    try:
        table = open_table(output)
    except MissingFileError:
        return None, ""
    except RmtbaseError as error:
        return None, f"to be replaced when the new table is complete: {error}"
    if isinstance(table, xr.Dataset) and table.attrs.get("plan_hash") == plan.hash:
        return table, ""
    return None, f"{shown(output)} is another table: to be replaced when the new one is complete"


def _draw(store: Store, chunks: Sequence[Chunk], workers: DaskWorkers | None, progress: Progress) -> None:
    plan, draws = store.plan, sum(chunk.count for chunk in chunks)
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


def _remove(store: Store, progress: Progress) -> None:
    try:
        store.remove()
    except OutputError as error:
        progress.note(f"the table is written, but its chunks are still there: {error}")


def _amount(chunks: Sequence[Chunk]) -> str:
    draws = sum(chunk.count for chunk in chunks)
    return f"{draws:,} draws in {len(chunks):,} {plural(len(chunks), 'chunk')}"


def _require_possible(plan: Plan, chunks: Sequence[Chunk], output: Path, folder: Path, executor: Executor) -> None:
    memory = _machine.host_memory()
    available = f"the {_machine.binary_size(memory)} of memory available"
    if not isinstance(executor, Scheduler):
        _require_draws_fit(plan)
    if isinstance(executor, LocalProcesses) and executor.count > 1:
        elements = plan.measure == "elements"
        ensembles = [case.ensemble for case in plan.cases]
        worker = _WORKER + max(
            _machine.elements_bytes(ensemble) if elements else _machine.spectrum_bytes(ensemble, plan.precision)
            for ensemble in ensembles
        )
        if executor.count * worker > memory:
            expected = f"at most {memory // worker}: each takes {_machine.binary_size(worker)} of {available}"
            raise ParameterError("workers", executor.count, expected)
    sizes = _draw_bytes(plan)
    for case, size in zip(plan.cases, sizes, strict=True):
        if (needed := _PACKED * case.chunk * size) > memory:
            expected = f"at most {memory * case.chunk // needed}, which fill {available}"
            raise ParameterError("chunk", case.chunk, expected)
    table = _table_bytes(plan)
    if table:
        most = max(plan.draws)
        advice = "with keep_sample = false memory does not grow with them"
        _machine.require_results_fit(most, _JOINED * table // most, advice)
    folders = folder.resolve(), output.resolve().parent  # one may be a link to another disk
    disks = [place.stat().st_dev for place in folders]
    needs = [sum(chunk.count * sizes[chunk.case] + _HEADER for chunk in chunks), int(_COMPRESSED * table)]
    for place, disk in zip(folders, disks, strict=True):
        needed = sum(need for need, on in zip(needs, disks, strict=True) if on == disk)
        if needed > (free := shutil.disk_usage(place).free):
            size, room = _machine.binary_size(needed), _machine.binary_size(free)
            reason = f"the run takes {size} of disk at least, and {room} are free on that disk"
            raise OutputError(output, f"{reason}; make room, write to another disk, or ask for fewer draws")


def _require_draws_fit(plan: Plan) -> None:
    for case in plan.cases:
        if plan.measure == "elements":
            _machine.require_elements_fit(case.ensemble)
        else:
            _machine.require_draw_fits(case.ensemble, plan.precision)


def _draw_bytes(plan: Plan) -> list[int]:
    layouts = [chunk_layout(plan, Chunk(case, 0, 1)) for case in range(len(plan.cases))]
    return [sum(8 * math.prod(shape) for _, shape in layout.values()) for layout in layouts]


def _table_bytes(plan: Plan) -> int:
    """Bytes of the sample in the table, 0 without one; for W_QK at each σ, with the estimates of both σ."""
    if not plan.keep_sample:
        return 0
    rows = chunk_layout(plan, Chunk(0, 0, 1))["statistic"][1][0]
    return sum(8 * case.draws * (len(case.sigmas) * (rows + 2) if plan.is_baseline else rows) for case in plan.cases)
