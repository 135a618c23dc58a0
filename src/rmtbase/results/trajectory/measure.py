"""Trajectory of a model: every checkpoint is fetched, scored and discarded, one at a time or on Dask workers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import xarray as xr

from rmtbase.errors import CheckpointError, MissingFileError, OutputError, ParameterError, TableError
from rmtbase.executors import Executor, Inline
from rmtbase.models import Revision, Series, find_series
from rmtbase.nulls import Null
from rmtbase.progress import SILENT, Progress
from rmtbase.results import open_table
from rmtbase.results.scores._element_scores import ElementMode
from rmtbase.results.scores._matrices import LAYERS
from rmtbase.results.scores.measure import MatrixMode
from rmtbase.results.trajectory._along_steps import StepName, joined, renamed, revisions_of
from rmtbase.results.trajectory._checkpoint_scores import (
    Checkpoints,
    Failed,
    Finished,
    NotesOfCheckpoints,
    Scoring,
    finished_checkpoints,
    score_checkpoint,
)
from rmtbase.shown import quoted, shown
from rmtbase.tables import require_writable, write_table

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rmtbase.montecarlo._dask import DaskWorkers, FirstCome

_ADVICE = "name another output, or remove that file to begin anew"


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
    executor: Executor = Inline(),  # noqa: B008  # frozen
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> xr.DataTree:
    """Score the checkpoints of a model, and find the step at which each head departs from each null.

    Checkpoints are fetched, scored and discarded one at a time. One that cannot be scored, or whose matrices differ in
    size from most, is named in the attribute ``failed``, and the run continues. Equal weights are scored once, and
    later revisions of them are flagged (``duplicate_of``).

    With an ``output``, every finished checkpoint is kept in the folder ``<output>.steps`` until the trajectory is
    written: the same call resumes a killed run. A complete file is extended by the checkpoints that it lacks, or that
    could not be scored before; its other steps stay, even if their checkpoints no longer exist. Either way the file is
    bit-identical to that of one uninterrupted run. The weights of checkpoints that still exist are read again to check
    that they are unchanged; for checkpoints on the hub the commit is compared instead.

    Args:
        model: a hub id or the name of a known model, whose branches and tags are its checkpoints; a folder of
            checkpoints ``step-N`` or ``checkpoint-N``; ``"demo"``; or a series from :func:`rmtbase.models.find_series`,
            which takes the options for opening.
        revisions: ``"all"`` for every revision whose name gives its step, or a selection: see
            :func:`rmtbase.models.find_series`.
        output: file to write.
        nulls: objects of :mod:`rmtbase.nulls` or their names. Matrices and further circuits are scored against the
            first; ``/departures`` has p- and q-values for all.
        matrices: as in :func:`rmtbase.score`.
        circuits: as in :func:`rmtbase.score`.
        components: as in :func:`rmtbase.score`.
        elements: as in :func:`rmtbase.score`.
        keep: whether to leave fetched files in the hub's cache; files that it held before stay in any case.
        executor: as in :func:`rmtbase.montecarlo.run_plan`; the workers of a scheduler fetch checkpoints themselves,
            and read folders under the same path.
        overwrite: whether to start anew if the file exists, which is replaced when the new one is complete.
        progress: shows the checkpoints scored, and receives the notes about them.

    Returns:
        The tree of a trajectory file: the groups of a scores file with a first dimension ``step``, and ``/departures``;
        see ``rmtbase.results.trajectory.schema.DEPARTURES_SCHEMA``.

    Raises:
        ParameterError: a revision, null or option does not exist.
        CheckpointError: the hub cannot be reached, or no checkpoint can be scored.
        TableError, MissingFileError: the table of a null cannot be read; or the existing file is not a trajectory of
            this model, or has other options or weights. That file is left unchanged.
        StoreError: the folder of finished checkpoints belongs to other options, or is used by another run.
        OutputError: a file cannot be written. Finished checkpoints are kept.
        WorkerError, MissingDependencyError: Dask fails or is missing, as in :func:`rmtbase.montecarlo.run_plan`.
    """
    series = model if isinstance(model, Series) else find_series(model, revisions)
    circuits, components = (
        tuple(dict.fromkeys([names] if isinstance(names, str) else names)) for names in (circuits, components)
    )
    opening = {"fold": series.fold, "proof": series.proof}
    scoring = Scoring(
        nulls=nulls, matrices=matrices, circuits=circuits, components=components, elements=elements, **opening
    )
    scoring.reads()  # judges the options before anything is fetched
    entering: AbstractContextManager[DaskWorkers | None] = nullcontext()
    if not isinstance(executor, Inline):
        from rmtbase.montecarlo import dask_workers

        entering = dask_workers(executor, progress, "scoring")
    if output is None:
        return _completed(_Run(Checkpoints(series, keep), scoring, entering, progress))
    output = require_writable(output)
    with finished_checkpoints(output, scoring.key()) as finished:
        run = _Run(Checkpoints(series, keep, finished.folder), scoring, entering, progress)
        before = None if overwrite else earlier_file(output, scoring.options, series.model)
        if before is not None:
            _require_same_weights(before, output, run)
        tree = _completed(run, before, finished)
        if before is not None and tree.identical(before):
            progress.note(f"{shown(output)} is the trajectory of these checkpoints already: nothing is left to score")
        else:
            write_table(tree, output)
        try:
            finished.remove()
        except OutputError as error:
            progress.note(f"the trajectory is written; what it was made from is still there: {error}")
    return tree


class _Run(NamedTuple):
    checkpoints: Checkpoints
    scoring: Scoring
    workers: AbstractContextManager[DaskWorkers | None]
    progress: Progress


def _completed(run: _Run, before: xr.DataTree | None = None, finished: Finished | None = None) -> xr.DataTree:
    series, progress = run.checkpoints.series, run.progress
    scored = {} if before is None else revisions_of(before)
    requested = remaining = [revision for revision in series.revisions if revision.name not in scored]
    if scored and requested:
        progress.note(f"going on from the {len(scored)} checkpoints that are there: {len(requested)} to be scored")
    steps = [] if before is None else [before]
    if finished is not None:
        read = {revision: step for revision in requested if (step := finished.read(revision, progress)) is not None}
        steps += read.values()
        remaining = [revision for revision in requested if revision not in read]
        if read:
            progress.note(f"resuming: {len(remaining)} of {len(requested)} checkpoints left")
    failed: dict[str, str] = {}
    for revision, outcome in _outcomes(run, remaining, steps) if remaining else ():
        if isinstance(outcome, Failed):
            failed[revision.name] = str(outcome)
            continue
        if finished is not None:
            finished.write(revision, outcome)
        steps.append(outcome)
    if not steps:
        name, reason = next(iter(failed.items()))
        raise CheckpointError(series.model, f"none of {len(failed)} checkpoints can be scored; {name}: {reason}")
    return joined(steps, failed, before)


def _outcomes(
    run: _Run, remaining: Sequence[Revision], before: Sequence[xr.DataTree]
) -> Iterator[tuple[Revision, xr.DataTree | Failed]]:
    """Yield checkpoints and their results as they finish, and note failures; equal weights are scored once."""
    trees = {at.fingerprint: tree for tree in before for at in revisions_of(tree).values()}
    with run.workers as dask:
        advance = run.progress.bar("scoring checkpoints", len(remaining))
        while remaining:
            duplicates: list[tuple[Revision, StepName]] = []
            for revision, outcome in _scored(run, remaining, trees, dask):
                if isinstance(outcome, StepName):
                    duplicates.append((revision, outcome))
                    continue
                if isinstance(outcome, Failed):
                    run.progress.note(f"{revision.name} left out: {outcome}")
                else:
                    trees.update({at.fingerprint: outcome for at in revisions_of(outcome).values()})
                advance(1)
                yield revision, outcome
            for revision, at in duplicates:
                if at.fingerprint in trees:
                    advance(1)
                    yield revision, renamed(trees[at.fingerprint], at)
            remaining = [revision for revision, at in duplicates if at.fingerprint not in trees]


def _scored(
    run: _Run, remaining: Sequence[Revision], trees: Mapping[str, xr.DataTree], dask: DaskWorkers | None
) -> Iterator[tuple[Revision, xr.DataTree | Failed | StepName]]:
    if dask is not None:
        with dask.first_come() as first_come:
            is_new = partial(_is_new, frozenset(trees), first_come)
            yield from dask.map(
                score_checkpoint, remaining, lambda revision: (run.checkpoints, revision, run.scoring, is_new)
            )
        return
    progress = NotesOfCheckpoints(run.progress)
    for revision in remaining:
        is_new = partial(_is_new, trees, None)
        yield revision, score_checkpoint(run.checkpoints, revision, run.scoring, is_new, progress)


def _is_new(fingerprints: Collection[str], first_come: FirstCome | None, at: StepName) -> bool:
    return at.fingerprint not in fingerprints and (first_come is None or first_come(at.fingerprint, at.revision))


def earlier_file(output: Path, options: Mapping[str, Any], model: str | None = None) -> xr.DataTree | None:
    """Open the trajectory in a file that is to be continued; None if there is no file."""
    try:
        tree = cast("xr.DataTree", open_table(output, "trajectory"))
    except MissingFileError:
        return None
    except TableError as error:
        raise TableError(output, error.found, f"{error.expected}; {_ADVICE}") from error
    name, recorded = str(tree.attrs["model"]), json.loads(tree.attrs["provenance"]).get("options")
    if model is not None and name != shown(model):
        raise TableError(output, f"the trajectory of {quoted(name)}", f"one of {quoted(model)}; {_ADVICE}")
    if recorded is None:
        raise TableError(output, "a trajectory that does not say how it was scored", f"one that does; {_ADVICE}")
    recorded, options = (
        {**values, "nulls": list(values["nulls"])}
        | {f"{option} of {name}": value for name, null in values["nulls"].items() for option, value in null.items()}
        for values in (recorded, options)
    )
    names = [name for name in {**recorded, **options} if recorded.get(name) != options.get(name)]
    if names:
        texts = []
        for options_of in (recorded, options):
            values = {name: options_of.get(name) for name in names}
            for name, value in values.items():
                if isinstance(value, list):
                    values[name] = ", ".join(map(str, value)) or "none"
            texts.append(", ".join(f"{name} = {shown(value, 60)}" for name, value in values.items()))
        raise TableError(output, f"a trajectory scored with {texts[0]}", f"one with {texts[1]}; {_ADVICE}")
    return tree


def _require_same_weights(tree: xr.DataTree, output: Path, run: _Run) -> None:
    """Compare the weights of checkpoints that still exist with those scored, on the hub by their commits."""
    series, by_name = run.checkpoints.series, revisions_of(tree)
    by_step = {at.step: at for at in by_name.values()}
    for revision in series.revisions:
        at = by_name.get(revision.name) or by_step.get(revision.step)
        if at is not None and at[:2] != revision[:2]:
            expected = f"those of {output.name}, in which step {at.step} is {at.revision}"
            raise ParameterError("revisions", f"{revision.step}:{revision.name}", expected)
    scored = [revision for revision in series.revisions if revision.name in by_name]
    unchecked = [revision for revision in scored if by_name[revision.name].commit != revision.identity]
    advance = run.progress.bar("checking checkpoints", len(unchecked))
    for revision in unchecked:
        current = run.checkpoints.use(revision, lambda model, at: at)
        if isinstance(current, Failed):
            run.progress.note(f"{revision.name} cannot be read any more, its scores stay: {current}")
        elif current.fingerprint != by_name[revision.name].fingerprint:
            expected = f"those of the checkpoint that is there now, as in a file of this run; {_ADVICE}"
            raise TableError(output, f"other weights of {revision.name}", expected)
        advance(1)
