"""Scores of one checkpoint of a series against every requested null: fetched, scored, discarded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import xarray as xr

from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.models import Model, Revision, Series, WeightMatrices, require_model
from rmtbase.nulls import NULLS, Null, find_null
from rmtbase.progress import SILENT, NotedOnce, Progress
from rmtbase.results.scores import score
from rmtbase.results.scores._head_elements import ElementMode
from rmtbase.results.scores._read_matrices import LAYERS
from rmtbase.results.scores._scores_tree import Scope
from rmtbase.results.scores.measure import MatrixMode
from rmtbase.results.trajectory._along_steps import one_step
from rmtbase.results.trajectory._attributes import COMMIT, StepName
from rmtbase.shown import in_one_line
from rmtbase.tables import SCHEMA_VERSION, provenance

Result = TypeVar("Result")

FETCHED = "rmtbase-fetched-"
"""Prefix of the temporary folders that hold fetched files until they are scored."""


@in_one_line
@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Options by which each checkpoint is scored: those of :func:`rmtbase.score`, with several nulls."""

    #: objects of :mod:`rmtbase.nulls` or their names. Matrices and further circuits are scored only with the first.
    nulls: Sequence[Null | str] | Null | str = ("gaussian",)
    matrices: MatrixMode = "elements"
    circuits: tuple[str, ...] = ("qk",)
    components: tuple[str, ...] = (LAYERS,)
    elements: ElementMode = "matrices"
    #: fold, proof: how each model was opened; recorded with the scores
    fold: tuple[str, ...] = ()
    proof: bool = True

    @cached_property
    def by_name(self) -> dict[str, Null]:
        """Nulls by name, in their order.

        Raises:
            ParameterError: there are no nulls, or two have the same name.
        """
        given = [self.nulls] if isinstance(self.nulls, Null | str) else list(self.nulls)
        names = [one for one in given if isinstance(one, str)]
        found = [find_null(one) for k, one in enumerate(given) if one not in names or given.index(one) == k]
        named = {one.name: one for one in found}
        if not named or len(named) < len(found):
            names = ", ".join(one.name for one in found) or "nothing"
            raise ParameterError("nulls", names, f"one or several of {', '.join(NULLS)}, each once")
        return named

    @cached_property
    def options(self) -> dict[str, Any]:
        """Everything that determines the scores of given weights, as plain values; tables are given by their digests.

        Raises:
            TableError, MissingFileError: a table of a null cannot be read.
        """
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.loads(
            json.dumps(options | {"nulls": {name: null.options() for name, null in self.by_name.items()}})
        )

    def reads(
        self, progress: Progress = SILENT
    ) -> Callable[[WeightMatrices], tuple[Iterable[str] | None, Iterable[str]]]:
        """Judge the options, and return what judges them for an opened model: see :meth:`Scope.reads`."""
        first = next(iter(self.by_name.values()))
        return Scope(first, self.matrices, self.circuits, self.components, self.elements).reads(progress)

    def key(self) -> str:
        """Digest that differs whenever the scores of the same weights could differ.

        Raises:
            TableError, MissingFileError: a table of a null cannot be read.
        """
        whole = {**self.options, "schema": SCHEMA_VERSION, "made_by": provenance({})}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    def step(self, model: Model, at: StepName, progress: Progress = SILENT) -> xr.DataTree:
        """Score a model as a trajectory of one step.

        Raises:
            ParameterError, CheckpointError, TableError, MissingFileError: as :func:`rmtbase.score`.
        """
        return one_step(self.scores(model, progress), at, self.options)

    def scores(self, model: Model, progress: Progress = SILENT) -> dict[str, xr.DataTree]:
        """Score a model against each null.

        Raises:
            ParameterError, CheckpointError, TableError: as :func:`rmtbase.score`.
        """
        proved, found = require_model(model, self.reads(progress)), {}
        for name, null in self.by_name.items():
            beside: dict[str, Any] = {"matrices": "none"}
            if not found:
                beside = {"matrices": self.matrices, "circuits": self.circuits, "elements": self.elements}
            found[name] = score(proved, null, components=self.components, progress=progress, **beside)
        return found


class Failed(NamedTuple):
    """Reason for which a checkpoint could not be scored."""

    reason: str


class Same(NamedTuple):
    """Checkpoint with the weights of another one that is already scored, or is being scored by another worker."""

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
    """Score one checkpoint as a trajectory of one step, or return why there is none."""

    def scored(model: Model, at: StepName) -> xr.DataTree | Same:
        return scoring.step(model, at, progress) if is_left(at) else Same(at)

    return with_checkpoint(series, revision, scored, keep, folder)


def with_checkpoint(
    series: Series,
    revision: Revision,
    use: Callable[[Model, StepName], Result],
    keep: bool = False,
    folder: Path | None = None,
) -> Result | Failed:
    """Fetch, open, use and discard a checkpoint; return the result, or the reason why it cannot be read."""
    with _place(series, keep, folder) as cache:
        try:
            model = series.open(revision, cache)
            commit = next((note.removeprefix(COMMIT) for note in model.notes if note.startswith(COMMIT)), "")
            return use(model, StepName(revision.step, revision.name, model.weights_digest(), commit))
        except CheckpointError as error:
            reason = str(error)
            for place in (f"{place}/" for place in (cache, series.folder) if place is not None):
                reason = reason.replace(place, "")  # so that the message does not depend on the location
            return Failed(reason)


@contextmanager
def _place(series: Series, keep: bool, folder: Path | None) -> Iterator[Path | None]:
    """Temporary folder for a fetched checkpoint; None if it is not fetched or is kept in the hub's cache.

    Files that the hub's cache already holds are read from there, and stay.
    """
    if keep or series.folder is not None:
        yield None
        return
    with TemporaryDirectory(prefix=FETCHED, dir=folder, ignore_cleanup_errors=True) as place:
        yield Path(place)


class QuietlyNotedOnce(NotedOnce):
    """Progress without bars, which shows a note that several checkpoints share only once."""

    def bar(self, label: str, total: int) -> Any:
        """Return a silent bar, because the checkpoints have a bar already."""
        return SILENT.bar(label, total)

    def detail(self, line: str) -> None:
        """Show a line the first time; the commit of a checkpoint is recorded in the file and not shown."""
        if not line.startswith(COMMIT):
            super().detail(line)
