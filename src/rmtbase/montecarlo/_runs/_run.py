"""Running a plan: in memory, or through a store that any kill leaves whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import xarray as xr

from rmtbase.errors import MissingFileError, OutputError, ParameterError, RmtbaseError, StoreError, WorkerError
from rmtbase.montecarlo._draws._room import require_workers
from rmtbase.montecarlo._plans._chunks import Chunks
from rmtbase.montecarlo._plans._plan import Plan
from rmtbase.montecarlo._runs._crew import Alone, Bar, Crew
from rmtbase.montecarlo._runs._preflight import cost, require_possible, require_possible_in_memory
from rmtbase.montecarlo._stores._source import MemorySource, StoreSource
from rmtbase.montecarlo._stores._store import Store, open_store, require_store
from rmtbase.montecarlo._summaries._table import make_table
from rmtbase.shown import shown
from rmtbase.tables import check_writable, open_table, sweep, write_table

Note = Callable[[str], None]


def run_in_memory(plan: Plan, progress: Callable[[int], None] | None = None) -> xr.Dataset:
    """The table of a plan, without a file. What is stopped is lost; for long runs :func:`run_plan`.

    Args:
        plan: what to simulate.
        progress: called with the number of draws finished since the last call.

    Raises:
        ParameterError, AllocationError: the draws, or one of them, take more memory than is there.
        ForkedProcessError: this process was forked from one that had used JAX.
    """
    require_possible_in_memory(plan)
    crew = Alone(plan)
    solvers = crew.choose_solvers()
    chunks = dict(crew.draw(plan.chunks, solvers, lambda label, total: progress or silent))
    return make_table(MemorySource(plan, chunks), {**crew.machine, "solvers": solvers})


def run_plan(
    plan: Plan,
    output: Path | str,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    keep_chunks: bool = False,
    bar: Bar | None = None,
    note: Note | None = None,
) -> xr.Dataset:
    """Simulate a plan and write its table. Run again after a kill, it goes on where it stood; the table is the same.

    Finished chunks are kept in the folder ``<output>.chunks`` until the table is written. Only what was being drawn
    when the run was killed is drawn again. What it takes in memory, on disk and in files is asked first, and a run that
    cannot end is refused before anything is drawn.

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
        bar: called with a label and the number of draws left; gives what to call as draws are finished.
        note: called with one line on what is resumed, put aside or complete.

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
    output, tell = Path(output), note or silent
    enter_crew = _crew(plan, workers, scheduler, tell)
    table = finished_table(output, plan, tell)
    if table is None:
        check_writable(output)
        with open_store(store_folder(output), plan) as store:
            here = None if scheduler is not None else workers or 1
            return complete(store, output, enter_crew, keep_chunks, bar or no_bar, tell, here)
    tell(f"{shown(output)} is the table of this plan already: nothing is left to draw")
    if not keep_chunks:
        _tidy(output, plan, tell)
    return table


def plan_status(plan: Plan, output: Path | str) -> list[str]:
    """What a run of the plan would find and take, in lines of text. Nothing is changed or drawn; a run may be at work.

    Raises:
        StoreError: the folder of the chunks is another plan's, or no store.
    """
    output = Path(output)
    folder = store_folder(output)
    lines = [f"plan {shown(plan.name)} ({plan.hash[:12]}): {_amount(plan.chunks)}"]
    if finished_table(output, plan, lines.append) is not None:
        return [*lines, f"{shown(output)} is its table: nothing is left to draw"]
    require_store(folder, plan)
    store = Store(folder, plan)
    wrong = {number: store.unsound(plan.chunks.numbered(number)) for number in store.present()}
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


def complete(
    store: Store,
    output: Path,
    enter_crew: AbstractContextManager[Crew],
    keep_chunks: bool,
    bar: Bar,
    tell: Note,
    workers: int | None = 1,
) -> xr.Dataset:
    """Draw what is left, write the table, and remove the store.

    ``workers`` processes of this machine draw; None where other machines do.
    """
    plan = store.plan
    with _said_what_is_kept(store):
        sweep(output.resolve().parent, output.name)
        left = store.missing(tell)
        require_possible(plan, left, output, store.folder, workers)
        if not left.size:
            tell(f"all {plan.chunks.size:,} chunks are there: nothing is left to draw")
        elif left.size < plan.chunks.size:
            tell(f"resuming: {_amount(left)} left of {_amount(plan.chunks)}")
        if left.size:
            with enter_crew as crew:
                solvers = store.settle(crew.machine, crew.choose_solvers)
                for chunk, arrays in crew.draw(left, solvers, bar):
                    store.write(chunk, arrays)
            for chunk in left:
                if (wrong := store.unsound(chunk)) is not None:
                    raise StoreError(store.folder, f"damage done after it was written: {wrong}", "a sound disk")
        table = make_table(StoreSource(store), store.settings())
        write_table(table, output)
    tell(f"wrote {shown(output)}")
    if not keep_chunks:
        _remove(store, tell)
    return table


def finished_table(output: Path, plan: Plan, tell: Note) -> xr.Dataset | None:
    """The plan's table, if the file is that; None if it is not there, or is another, which ``tell`` says."""
    try:
        table = open_table(output)
    except MissingFileError:
        return None
    except RmtbaseError as error:
        tell(f"to be replaced when the new table is whole: {error}")
        return None
    if isinstance(table, xr.Dataset) and table.attrs.get("plan_hash") == plan.hash:
        return table
    tell(f"{shown(output)} is another table: to be replaced when the new one is whole")
    return None


def _crew(plan: Plan, workers: int | None, scheduler: str | None, tell: Note) -> AbstractContextManager[Crew]:
    if workers is None and scheduler is None:
        return nullcontext(Alone(plan))
    if workers is not None and scheduler is not None:
        raise ParameterError("workers", workers, f"nothing beside the scheduler {scheduler}, whose workers draw")
    number = 0 if workers is None else require_workers("workers", workers)
    from rmtbase.montecarlo._runs._dask import dask_crew

    return dask_crew(plan, number, scheduler, tell)


@contextmanager
def _said_what_is_kept(store: Store) -> Iterator[None]:
    """Say in the message of what stops a run that its chunks are kept, and how to go on."""

    def kept() -> str:
        there = store.plan.chunks.only((number, number + 1) for number in store.present())
        return f"; {_amount(there)} are kept in {shown(store.folder)}, run again to go on" if there.size else ""

    try:
        yield
    except OutputError as error:
        raise OutputError(error.path, f"{error.reason}{kept()}") from error
    except WorkerError as error:
        raise WorkerError(error.piece, f"{error.reason}{kept()}") from error
    except KeyboardInterrupt as stop:  # told by who ends the process on it, once
        if what_is_kept := kept():
            stop.add_note(what_is_kept.removeprefix("; "))
        raise


def _tidy(output: Path, plan: Plan, tell: Note) -> None:
    """Remove the chunks that a run which was killed after its table had been written has left."""
    folder = store_folder(output)
    if not folder.exists():
        return
    try:
        with open_store(folder, plan) as store:
            sweep(output.resolve().parent, output.name)
            _remove(store, tell)
    except (StoreError, OutputError) as error:
        tell(f"left as it is: {error}")


def _remove(store: Store, tell: Note) -> None:
    try:
        store.remove()
    except OutputError as error:
        tell(f"the table is written; what it was made from is still there: {error}")


def _amount(chunks: Chunks) -> str:
    return f"{chunks.total_draws:,} draws in {chunks.size:,} chunk{'s' if chunks.size != 1 else ''}"


def no_bar(label: str, total: int) -> Callable[[int], None]:
    return silent


def silent(_: object) -> None:
    return None
