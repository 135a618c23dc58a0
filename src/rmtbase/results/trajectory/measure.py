"""The trajectory of a model: every checkpoint fetched, scored and discarded, one at a time or on Dask workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from rmtbase.errors import CheckpointError, OutputError
from rmtbase.models import Revision, Series, find_series
from rmtbase.nulls import Null
from rmtbase.progress import SILENT, Progress
from rmtbase.results.scores import LAYERS, ElementMode, MatrixMode
from rmtbase.results.trajectory._along_steps import joined, renamed
from rmtbase.results.trajectory._attributes import StepName, revisions_of
from rmtbase.results.trajectory._checkpoint_scores import Failed, NotedOnce, Same, Scoring, score_checkpoint
from rmtbase.results.trajectory._earlier_file import earlier_file, require_same_weights
from rmtbase.results.trajectory._finished import Finished, finished_checkpoints
from rmtbase.shown import shown
from rmtbase.tables import require_writable, write_table

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rmtbase.montecarlo._dask import DaskWorkers, FirstCome


def trajectory(
    model: Series | str | Path,
    revisions: str | Sequence[str] = "all",
    output: Path | str | None = None,
    *,
    nulls: Sequence[Null | str] | Null | str = ("gaussian",),
    matrices: MatrixMode = "elements",
    circuits: Sequence[str] = ("qk",),
    components: Sequence[str] = (LAYERS,),
    elements: ElementMode = "matrices",
    keep: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> xr.DataTree:
    """Score the checkpoints of a model, and say when each head left each null.

    One checkpoint at a time is fetched, scored and discarded, so that disk and memory hold one, beside the scores. A
    checkpoint that cannot be scored, or whose matrices have other sizes than those of most, is named in the attribute
    ``failed``, and the rest goes on. Weights that are those of another revision are scored once, and the later one is
    flagged (``duplicate_of``).

    With an ``output`` every checkpoint that is finished is kept in the folder ``<output>.steps`` until the trajectory
    is written. Called again after a kill, with the same options and of the same files, it goes on where it stood. A
    file that is whole is gone on with too: only the checkpoints that it lacks are scored, and those that could not be
    before; what it has stays in it, even where the checkpoint is there no more. Either way the file is that of one
    uninterrupted run, to the bit. The weights of checkpoints that are still there are read again to see that they are
    the same, but for those of the hub, where the commit tells.

    Args:
        model: a hub id or the name of a known model, whose branches and tags are its checkpoints; a folder of
            checkpoints ``step-N`` or ``checkpoint-N``; ``"demo"``; or a series from :func:`rmtbase.models.find_series`,
            which takes the options of opening.
        revisions: ``"all"`` whose names tell their steps, or some: see :func:`rmtbase.models.find_series`.
        output: file to write.
        nulls: objects of :mod:`rmtbase.nulls` or their names. ``/heads``, ``/matrices`` and further circuits are scored
            against the first; ``/departures`` has p- and q-values of all.
        matrices: as of :func:`rmtbase.score`.
        circuits: as of :func:`rmtbase.score`.
        components: as of :func:`rmtbase.score`.
        elements: as of :func:`rmtbase.score`.
        keep: leave what is fetched in the hub's cache; what it held before stays there in any case.
        workers: score on that many local processes through Dask, each on one core of the CPU.
        scheduler: on the workers of the Dask scheduler at that address instead; they fetch for themselves, and read
            folders under the same name.
        overwrite: begin anew where a file is there already, and replace it, whatever it is, when the new one is whole.
        progress: shows the checkpoints scored, and is told what was recorded about them.

    Returns:
        The tree of a trajectory file: the groups of a scores file with a first dimension ``step``, and ``/departures``:
        see ``rmtbase.results.trajectory.schema.DEPARTURES_SCHEMA``.

    Raises:
        ParameterError: no such revision, null or option.
        CheckpointError: the hub cannot be asked, or no checkpoint at all can be scored.
        TableError, MissingFileError: a table of a null cannot be read; or the file that is there is no trajectory of
            this model, was scored otherwise, or of other weights. It stays.
        StoreError: the folder of finished checkpoints holds those of other options, or another run is at work.
        OutputError: something cannot be written. What is finished is kept.
        WorkerError, MissingDependencyError: of Dask, as :func:`rmtbase.montecarlo.run_plan`.
    """
    series = model if isinstance(model, Series) else find_series(model, revisions)
    scoring = Scoring(
        nulls=nulls,
        matrices=matrices,
        circuits=_words(circuits),
        components=_words(components),
        elements=elements,
        fold=series.fold,
        proof=series.proof,
    )
    entering = _dask(workers, scheduler, progress)
    if output is None:
        return _gone_on_with(None, None, series, scoring, entering, keep, progress)
    output = require_writable(output)
    with finished_checkpoints(output, scoring.key()) as finished:
        before = None if overwrite else earlier_file(output, scoring.options, series.model)
        if before is not None:
            require_same_weights(before, output, series, keep, finished.folder, progress)
        tree = _gone_on_with(before, finished, series, scoring, entering, keep, progress)
        if before is not None and tree.identical(before):
            progress.note(f"{shown(output)} is the trajectory of these checkpoints already: nothing is left to score")
        else:
            write_table(tree, output)
            progress.note(f"wrote {shown(output)}")
        try:
            finished.remove()
        except OutputError as error:
            progress.note(f"the trajectory is written; what it was made from is still there: {error}")
    return tree


def _words(given: Iterable[str] | str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([given] if isinstance(given, str) else given))


def _gone_on_with(
    before: xr.DataTree | None,
    finished: Finished | None,
    series: Series,
    scoring: Scoring,
    entering: AbstractContextManager[DaskWorkers | None],
    keep: bool,
    progress: Progress,
) -> xr.DataTree:
    """The trajectory of what is in a file, what was finished beside it, and what is scored now."""
    there = {} if before is None else revisions_of(before)
    asked = [revision for revision in series.revisions if revision.name not in there]
    if there and asked:
        progress.note(f"going on from the {len(there)} checkpoints that are there: {len(asked)} to be scored")
    steps = [] if before is None else [before]
    failed: dict[str, str] = {}
    left = asked
    if finished is not None:
        kept = {revision: step for revision in asked if (step := finished.read(revision, progress)) is not None}
        steps += kept.values()
        left = [revision for revision in asked if revision not in kept]
        if kept:
            progress.note(f"resuming: {len(left)} of {len(asked)} checkpoints left")
    folder = None if finished is None else finished.folder
    for revision, outcome in _outcomes(series, left, scoring, steps, entering, keep, folder, progress):
        if isinstance(outcome, Failed):
            failed[revision.name] = outcome.reason
            continue
        if finished is not None:
            finished.write(revision, outcome)
        steps.append(outcome)
    if not steps:
        name, reason = next(iter(failed.items()))
        raise CheckpointError(series.model, f"none of {len(failed)} checkpoints can be scored; {name}: {reason}")
    return joined(steps, failed, before)


def _dask(workers: int | None, scheduler: str | None, progress: Progress) -> AbstractContextManager[DaskWorkers | None]:
    if workers is None and scheduler is None:
        return nullcontext()
    from rmtbase.montecarlo import dask_workers

    return dask_workers(workers, scheduler, progress, "scoring") or nullcontext()


def _outcomes(
    series: Series,
    left: Sequence[Revision],
    scoring: Scoring,
    before: Sequence[xr.DataTree],
    entering: AbstractContextManager[DaskWorkers | None],
    keep: bool,
    folder: Path | None,
    progress: Progress,
) -> Iterator[tuple[Revision, xr.DataTree | Failed]]:
    """What comes of each checkpoint, as it is finished, each set of weights scored once; what fails is told."""
    if not left:
        return
    known = {at.fingerprint: tree for tree in before for at in revisions_of(tree).values()}
    with entering as dask:
        advance = progress.bar("scoring checkpoints", len(left))
        while left:
            if dask is None:
                scored = _one_by_one(series, left, scoring, known, keep, folder, NotedOnce(progress))
            else:
                scored = _on_workers(dask, series, left, scoring, known, keep)
            same: list[tuple[Revision, StepName]] = []
            for revision, outcome in scored:
                if isinstance(outcome, Same):
                    same.append((revision, outcome.at))
                    continue
                if isinstance(outcome, Failed):
                    progress.note(f"{revision.name} left out: {outcome.reason}")
                else:
                    known.update({at.fingerprint: outcome for at in revisions_of(outcome).values()})
                advance(1)
                yield revision, outcome
            for revision, at in same:
                if at.fingerprint in known:
                    advance(1)
                    yield revision, renamed(known[at.fingerprint], at)
            left = [revision for revision, at in same if at.fingerprint not in known]


def _one_by_one(
    series: Series,
    left: Sequence[Revision],
    scoring: Scoring,
    known: Mapping[str, xr.DataTree],
    keep: bool,
    folder: Path | None,
    progress: Progress,
) -> Iterator[tuple[Revision, xr.DataTree | Failed | Same]]:
    """In the order of the steps."""

    def is_left(at: StepName) -> bool:
        return at.fingerprint not in known

    for revision in left:
        yield revision, score_checkpoint(series, revision, scoring, is_left, keep, folder, progress)


def _on_workers(
    dask: DaskWorkers,
    series: Series,
    left: Sequence[Revision],
    scoring: Scoring,
    known: Mapping[str, xr.DataTree],
    keep: bool,
) -> Iterator[tuple[Revision, xr.DataTree | Failed | Same]]:
    """As they are finished; of those with the same weights the one whose worker sees them first is scored."""
    with dask.first_come() as first_come:
        yield from dask.each(
            left,
            score_checkpoint,
            lambda revision: (series, revision, scoring, partial(_is_left, frozenset(known), first_come), keep),
        )


def _is_left(known: frozenset[str], first_come: FirstCome, at: StepName) -> bool:
    return at.fingerprint not in known and first_come(at.fingerprint, at.revision)
