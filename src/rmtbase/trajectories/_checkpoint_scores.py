"""The scores of one checkpoint of a series by every null that is asked for: fetched, scored, discarded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import xarray as xr

from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.models import Model, Revision, Series
from rmtbase.progress import SILENT, Progress
from rmtbase.scoring import ANALYTIC, LAYERS, ElementMode, MatrixMode, score
from rmtbase.shown import in_one_line
from rmtbase.tables import SCHEMA_VERSION, digest_of, open_table, provenance
from rmtbase.trajectories._along_steps import COMMIT, StepName, one_step, renamed

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
            raise ParameterError("nulls", "nothing", "'gaussian', 'permutation' or 'haar', or several of them")
        if self.baseline is not None and "gaussian" not in self.nulls:
            raise ParameterError("baseline", str(self.baseline), f"none: {self.nulls[0]} is of a head's own matrices")

    def key(self) -> str:
        """Another one wherever the scores of the same weights could be others.

        Raises:
            TableError, MissingFileError: the baseline is none.
        """
        table = None
        if isinstance(self.baseline, xr.Dataset):
            table = digest_of(self.baseline)
        elif self.baseline is not None:
            table = ANALYTIC if self.baseline == ANALYTIC else digest_of(open_table(self.baseline, "baseline", "atlas"))
        options = {**vars(self), "baseline": table, "schema": SCHEMA_VERSION, "made_by": provenance({})}
        return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()

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
                self.baseline if null == "gaussian" else None,
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


def score_checkpoint(
    series: Series,
    revision: Revision,
    scoring: Scoring,
    keep: bool = False,
    folder: Path | None = None,
    known: Mapping[str, xr.DataTree] | None = None,
    progress: Progress = SILENT,
) -> xr.DataTree | Failed:
    """The trajectory of one step, or why there is none.

    Args:
        series: that the checkpoint is of.
        revision: which.
        scoring: how.
        keep: leave what is fetched in the hub's cache.
        folder: in which it is otherwise, until it is scored; by default the system's for temporary files.
        known: of other steps by fingerprint, whose scores are taken where the weights are the same.
        progress: told what was recorded about the model.

    Raises:
        ParameterError: an option that the model does not have.
        TableError, MissingFileError: the baseline is none.
    """
    with _place(series, keep, folder) as cache:
        try:
            model = series.open(revision, scoring.fold, cache)
            commit = next((note.removeprefix(COMMIT) for note in model.notes if note.startswith(COMMIT)), "")
            at = StepName(revision.step, revision.name, model.weights_digest(), commit)
            same = (known or {}).get(at.fingerprint)
            return one_step(scoring.scores(model, progress), at) if same is None else renamed(same, at)
        except CheckpointError as error:
            places = [f"{place}/" for place in (cache, series.folder) if place is not None]
            reason = str(error)
            for place in places:  # so that the same failure is told in the same words wherever it happens
                reason = reason.replace(place, "")
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
