"""The scores of one checkpoint of a series by every null that is asked for: fetched, scored, discarded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import xarray as xr

from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.models import Model, Revision, Series
from rmtbase.nulls import ANALYTIC, NULLS, OF_A_TABLE
from rmtbase.progress import SILENT, Progress
from rmtbase.results import open_table
from rmtbase.results.scores import LAYERS, ElementMode, MatrixMode, score
from rmtbase.results.trajectory._along_steps import one_step
from rmtbase.results.trajectory._attributes import COMMIT, StepName
from rmtbase.shown import in_one_line
from rmtbase.tables import SCHEMA_VERSION, digest_of, provenance

Result = TypeVar("Result")

FETCHED = "rmtbase-fetched-"
"""How the names of folders begin that what is fetched is in until it is scored."""


@in_one_line
@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How each checkpoint is scored: the options of :func:`rmtbase.score`, and several nulls.

    Attributes:
        nulls: against which ones. Matrices, and further circuits, are scored beside the first alone.
    """

    nulls: tuple[str, ...] = ("gaussian",)
    baseline: xr.Dataset | Path | str | None = None
    matrices: MatrixMode = "elements"
    draws: int | None = None
    seed: int = 0
    circuits: tuple[str, ...] = ("qk",)
    components: tuple[str, ...] = (LAYERS,)
    elements: ElementMode = "matrices"
    initialization: str = "normal"
    fold: tuple[str, ...] = ()
    proof: bool = True

    def __post_init__(self) -> None:
        if not self.nulls:
            raise ParameterError("nulls", "nothing", f"one or several of {', '.join(NULLS)}")
        if self.baseline is not None and not set(OF_A_TABLE) & set(self.nulls):
            raise ParameterError("baseline", str(self.baseline), f"none: no table has the null {self.nulls[0]}")

    @cached_property
    def options(self) -> dict[str, Any]:
        """What decides about the scores of given weights, as plain values; of a baseline its digest.

        Raises:
            TableError, MissingFileError: the baseline is none.
        """
        table = self.baseline
        if table is not None and not (isinstance(table, str) and table == ANALYTIC):
            table = digest_of(table if isinstance(table, xr.Dataset) else open_table(table, "baseline", "atlas"))
        options = {field.name: getattr(self, field.name) for field in fields(self)} | {"baseline": table}
        return json.loads(json.dumps(options))

    def key(self) -> str:
        """Another one wherever the scores of the same weights could be others.

        Raises:
            TableError, MissingFileError: the baseline is none.
        """
        whole = {**self.options, "schema": SCHEMA_VERSION, "made_by": provenance({})}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    def step(self, model: Model, at: StepName, progress: Progress = SILENT) -> xr.DataTree:
        """The trajectory of one step: of a model as it is there.

        Raises:
            ParameterError, CheckpointError, TableError, MissingFileError: as :func:`rmtbase.score`.
        """
        return one_step(self.scores(model, progress), at, self.options)

    def scores(self, model: Model, progress: Progress = SILENT) -> dict[str, xr.DataTree]:
        """The scores of a model by each null.

        Raises:
            ParameterError, CheckpointError, TableError: as :func:`rmtbase.score`.
        """
        if self.proof:
            model = model.prove()
        return {
            null: score(
                model,
                self.baseline if null in OF_A_TABLE else None,
                null,
                matrices=self.matrices if null == self.nulls[0] else "none",
                circuits=self.circuits if null == self.nulls[0] else ("qk",),
                components=self.components,
                elements=self.elements if null == self.nulls[0] else "matrices",
                initialization=self.initialization,
                draws=self.draws,
                seed=self.seed,
                proof=False,
                progress=progress,
            )
            for null in self.nulls
        }


class Failed(NamedTuple):
    """Why a checkpoint could not be scored."""

    reason: str


class Same(NamedTuple):
    """A checkpoint whose weights are those of another one, which is scored already, or by somebody else just now."""

    at: StepName


def score_checkpoint(
    series: Series,
    revision: Revision,
    scoring: Scoring,
    is_left: Callable[[StepName], bool],
    keep: bool = False,
    folder: Path | None = None,
    progress: Progress = SILENT,
) -> xr.DataTree | Failed | Same:
    """The trajectory of one step, or why there is none.

    Args:
        series: that the checkpoint is of.
        revision: which.
        scoring: how.
        is_left: whether its weights, once they are known, are still to be scored.
        keep: leave what is fetched in the hub's cache.
        folder: in which it is otherwise, until it is scored; by default the system's for temporary files.
        progress: told what was recorded about the model.

    Raises:
        ParameterError: an option that the model does not have.
        TableError, MissingFileError: the baseline is none.
    """

    def scored(model: Model, at: StepName) -> xr.DataTree | Same:
        return scoring.step(model, at, progress) if is_left(at) else Same(at)

    return with_checkpoint(series, revision, scored, scoring.fold, keep, folder)


def with_checkpoint(
    series: Series,
    revision: Revision,
    use: Callable[[Model, StepName], Result],
    fold: Iterable[str] = (),
    keep: bool = False,
    folder: Path | None = None,
) -> Result | Failed:
    """What comes of a checkpoint that is fetched, opened, used and discarded; or why it cannot be read."""
    with _place(series, keep, folder) as cache:
        try:
            model = series.open(revision, fold, cache)
            commit = next((note.removeprefix(COMMIT) for note in model.notes if note.startswith(COMMIT)), "")
            return use(model, StepName(revision.step, revision.name, model.weights_digest(), commit))
        except CheckpointError as error:
            reason = str(error)
            for place in (f"{place}/" for place in (cache, series.folder) if place is not None):
                reason = reason.replace(place, "")  # so that the same is told in the same words wherever it happens
            return Failed(reason)


@contextmanager
def _place(series: Series, keep: bool, folder: Path | None) -> Iterator[Path | None]:
    """Where a checkpoint of the hub is while it is scored; None where it is not fetched, or kept where the hub has it.

    What the hub's own cache held before is read there, and stays.
    """
    if keep or series.folder is not None:
        yield None
        return
    with TemporaryDirectory(prefix=FETCHED, dir=folder, ignore_cleanup_errors=True) as place:
        yield Path(place)


class NotedOnce:
    """Progress without bars of its own, that tells what is said of several checkpoints once."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._said = progress, set[str]()

    def bar(self, label: str, total: int) -> Any:
        """No bar: that of the checkpoints is above it."""
        return SILENT.bar(label, total)

    def note(self, line: str) -> None:
        """One line, the first time; of which commit a checkpoint is, the file says."""
        if line not in self._said and not line.startswith(COMMIT):
            self._said.add(line)
            self._progress.note(line)
