"""The trajectory of a model: every checkpoint fetched, scored and discarded, one at a time or on Dask workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from rmtbase.errors import CheckpointError, OutputError
from rmtbase.models import Revision, Series, find_series
from rmtbase.progress import SILENT, Progress
from rmtbase.scoring import LAYERS, ElementMode, MatrixMode
from rmtbase.shown import shown
from rmtbase.tables import groups_of, require_writable, write_table
from rmtbase.trajectories._along_steps import joined
from rmtbase.trajectories._checkpoint_scores import Failed, NotedOnce, Scoring, score_checkpoint
from rmtbase.trajectories._finished import Finished, finished_checkpoints

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rmtbase.montecarlo._dask import DaskWorkers

Outcome = xr.DataTree | Failed


def trajectory(
    model: str | Path,
    revisions: str | Sequence[str] = "all",
    output: Path | str | None = None,
    *,
    nulls: Sequence[str] | str = ("gaussian",),
    baseline: xr.Dataset | Path | str | None = None,
    matrices: MatrixMode = "elements",
    draws: int | None = None,
    seed: int = 0,
    circuits: Sequence[str] = ("qk",),
    components: Sequence[str] = (LAYERS,),
    elements: ElementMode = "matrices",
    initialization: str = "normal",
    fold: Iterable[str] | str = (),
    subfolder: str | None = None,
    proof: bool = True,
    keep: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress = SILENT,
) -> xr.DataTree:
    """Score the checkpoints of a model, and say when each head left each null.

    One checkpoint at a time is fetched, scored and discarded, so that disk and memory hold one, beside the scores. A
    checkpoint that cannot be scored, or whose matrices have other sizes than those of most, is named in the attribute
    ``failed``, and the rest goes on. Weights that are those of an earlier revision are flagged (``duplicate_of``) and
    scored once, or on several workers once by each that meets them.

    With an ``output`` every checkpoint that is finished is kept in the folder ``<output>.steps`` until the trajectory
    is written. Called again after a kill, with the same options and of the same files, it goes on where it stood, and
    the file is that of an uninterrupted run, to the bit.

    Args:
        model: a hub id or the name of a known model, whose branches and tags are its checkpoints; a folder of
            checkpoints ``step-N`` or ``checkpoint-N``; or ``"demo"``.
        revisions: ``"all"`` whose names tell their steps, or some: see :func:`rmtbase.models.find_series`.
        output: file to write.
        nulls: against which ones, ``"gaussian"``, ``"permutation"``, ``"haar"``; ``/heads``, ``/matrices`` and further
            circuits are scored against the first, ``/departures`` has p- and q-values of all.
        baseline: of the Gaussian null, as in :func:`rmtbase.score`.
        matrices: as there.
        draws: as there.
        seed: as there.
        circuits: as there.
        components: as there.
        elements: as there.
        initialization: as there.
        fold: as there.
        proof: as there, for each checkpoint.
        subfolder: within each checkpoint, that holds the model.
        keep: leave what is fetched in the hub's cache; what it held before stays there in any case.
        workers: score on that many local processes through Dask, each on one core of the CPU.
        scheduler: on the workers of the Dask scheduler at that address instead; they fetch for themselves, and read
            folders under the same name.
        progress: shows the checkpoints scored, and is told what was recorded about them.

    Returns:
        The tree of a trajectory file: the groups of a scores file with a first dimension ``step``, and ``/departures``:
        see ``rmtbase.tables.DEPARTURES_SCHEMA``.

    Raises:
        ParameterError: no such revision, null or option.
        CheckpointError: the hub cannot be asked, or no checkpoint at all can be scored.
        TableError, MissingFileError: ``baseline`` is no baseline table.
        StoreError: the folder of finished checkpoints holds those of other options, or another run is at work.
        OutputError: something cannot be written. What is finished is kept.
        WorkerError, MissingDependencyError: of Dask, as :func:`rmtbase.montecarlo.run_plan`.
    """
    scoring = Scoring(
        nulls=_words(nulls),
        baseline=baseline,
        matrices=matrices,
        draws=draws,
        seed=seed,
        circuits=_words(circuits),
        components=_words(components),
        elements=elements,
        initialization=initialization,
        fold=_words(fold),
        proof=proof,
    )
    series = find_series(model, revisions, subfolder)
    entering = _dask(workers, scheduler, progress)
    if output is None:
        return _joined(series, dict(_outcomes(series, series.revisions, scoring, {}, entering, keep, None, progress)))
    output = require_writable(output)
    with finished_checkpoints(output, scoring.key()) as finished:
        outcomes = _kept(series, finished, progress)
        left = [revision for revision in series.revisions if revision not in outcomes]
        if outcomes:
            progress.note(f"resuming: {len(left)} of {len(series.revisions)} checkpoints left")
        for revision, outcome in _outcomes(series, left, scoring, outcomes, entering, keep, finished.folder, progress):
            if not isinstance(outcome, Failed):
                finished.write(revision, outcome)
            outcomes[revision] = outcome
        tree = _joined(series, outcomes)
        write_table(tree, output)
        progress.note(f"wrote {shown(output)}")
        try:
            finished.remove()
        except OutputError as error:
            progress.note(f"the trajectory is written; what it was made from is still there: {error}")
    return tree


def _words(given: Iterable[str] | str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([given] if isinstance(given, str) else given))


def _kept(series: Series, finished: Finished, progress: Progress) -> dict[Revision, Outcome]:
    read = {revision: finished.read(revision, progress) for revision in series.revisions}
    return {revision: step for revision, step in read.items() if step is not None}


def _dask(workers: int | None, scheduler: str | None, progress: Progress) -> AbstractContextManager[DaskWorkers | None]:
    if workers is None and scheduler is None:
        return nullcontext()
    from rmtbase.montecarlo import dask_workers

    return dask_workers(workers, scheduler, progress, "scoring") or nullcontext()


def _outcomes(
    series: Series,
    left: Sequence[Revision],
    scoring: Scoring,
    before: Mapping[Revision, Outcome],
    entering: AbstractContextManager[DaskWorkers | None],
    keep: bool,
    folder: Path | None,
    progress: Progress,
) -> Iterator[tuple[Revision, Outcome]]:
    """What comes of each checkpoint, as it is finished; what fails is told."""
    if not left:
        return
    with entering as dask:
        if dask is None:
            scored = _one_by_one(series, left, scoring, before, keep, folder, NotedOnce(progress))
        else:
            scored = dask.each(left, score_checkpoint, lambda revision: (series, revision, scoring, keep))
        advance = progress.bar("scoring checkpoints", len(left))
        for revision, outcome in scored:
            if isinstance(outcome, Failed):
                progress.note(f"{revision.name} left out: {outcome.reason}")
            advance(1)
            yield revision, outcome


def _one_by_one(
    series: Series,
    left: Sequence[Revision],
    scoring: Scoring,
    before: Mapping[Revision, Outcome],
    keep: bool,
    folder: Path | None,
    progress: Progress,
) -> Iterator[tuple[Revision, Outcome]]:
    """In the order of the steps, each set of weights once."""
    known = {_fingerprint(one): one for one in before.values() if not isinstance(one, Failed)}
    for revision in left:
        outcome = score_checkpoint(series, revision, scoring, keep, folder, known, progress)
        if not isinstance(outcome, Failed):
            known.setdefault(_fingerprint(outcome), outcome)
        yield revision, outcome


def _fingerprint(step: xr.DataTree) -> str:
    return str(groups_of(step)["/heads"]["fingerprint"].values.item())


def _joined(series: Series, outcomes: Mapping[Revision, Outcome]) -> xr.DataTree:
    """The trajectory of all that was scored, the same in whatever order that was."""
    failed, steps = {}, []
    for revision in series.revisions:
        outcome = outcomes[revision]
        if isinstance(outcome, Failed):
            failed[revision.name] = outcome.reason
        else:
            steps.append(outcome)
    if not steps:
        name, reason = next(iter(failed.items()))
        raise CheckpointError(series.model, f"none of {len(failed)} checkpoints can be scored; {name}: {reason}")
    return joined(steps, failed)
