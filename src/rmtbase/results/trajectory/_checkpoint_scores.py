"""Scores of one checkpoint of a series against every null, and the folder of those that are finished."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import xarray as xr

from rmtbase import errors
from rmtbase.errors import CheckpointError, MissingFileError, ParameterError, StoreError, TableError
from rmtbase.models import Model, Revision, Series, WeightMatrices, require_model
from rmtbase.nulls import NULLS, Null, find_null
from rmtbase.progress import SILENT, NotedOnce, Progress
from rmtbase.results import open_table
from rmtbase.results.scores import score
from rmtbase.results.scores._element_scores import ElementMode
from rmtbase.results.scores._matrices import LAYERS
from rmtbase.results.scores._scores_tree import Scope
from rmtbase.results.scores.measure import MatrixMode
from rmtbase.results.trajectory._along_steps import StepName, one_step
from rmtbase.shown import in_one_line, shown
from rmtbase.tables import LOCK, SCHEMA_VERSION, is_temporary, locked_folder, provenance, sweep, write_table
from rmtbase.words import counted

Result = TypeVar("Result")

FETCHED = "rmtbase-fetched-"  # prefix of the temporary folders that hold fetched files until they are scored


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
        """Nulls by name, in their order; a name may come twice."""
        nulls = [self.nulls] if isinstance(self.nulls, Null | str) else list(self.nulls)
        names = list(dict.fromkeys(null for null in nulls if isinstance(null, str)))
        first = [null for k, null in enumerate(nulls) if null not in names or nulls.index(null) == k]
        by_name = {null.name: null for null in map(find_null, first)}
        if not by_name or len(by_name) < len(first):
            names = ", ".join(find_null(null).name for null in first) or "nothing"
            raise ParameterError("nulls", names, f"one or several of {', '.join(NULLS)}, each once")
        return by_name

    @cached_property
    def options(self) -> dict[str, Any]:
        """Everything that determines the scores of given weights; tables by their digests."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        nulls = {name: null.options() for name, null in self.by_name.items()}
        return json.loads(json.dumps(options | {"nulls": nulls}))

    def reads(
        self, progress: Progress = SILENT
    ) -> Callable[[WeightMatrices], tuple[Iterable[str] | None, Iterable[str]]]:
        first = next(iter(self.by_name.values()))
        return Scope(first, self.matrices, self.circuits, self.components, self.elements).reads(progress)

    def key(self) -> str:
        record = {**self.options, "schema": SCHEMA_VERSION, "made_by": provenance({})}
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()

    def step(self, model: Model, at: StepName, progress: Progress = SILENT) -> xr.DataTree:
        proved, scores = require_model(model, self.reads(progress)), {}
        for name, null in self.by_name.items():
            options: dict[str, Any] = {"matrices": "none"}
            if not scores:
                options = {"matrices": self.matrices, "circuits": self.circuits, "elements": self.elements}
            scores[name] = score(proved, null, components=self.components, progress=progress, **options)
        return one_step(scores, at, self.options)


class Failed(str):
    """Reason for which a checkpoint could not be scored."""


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of a series, which are fetched and discarded one at a time."""

    series: Series
    keep: bool = False  # whether fetched files stay in the hub's cache
    folder: Path | None = None  # folder of fetched files; None for that of the system

    def use(self, revision: Revision, use: Callable[[Model, StepName], Result]) -> Result | Failed:
        """Fetch, open, use and discard a checkpoint; files that the hub's cache already holds stay."""
        fetched = not self.keep and self.series.folder is None
        temporary = TemporaryDirectory(prefix=FETCHED, dir=self.folder, ignore_cleanup_errors=True) if fetched else None
        with temporary or nullcontext() as folder:
            cache = None if folder is None else Path(folder)
            try:
                model = self.series.open(revision, cache)
                at = StepName(revision.step, revision.name, model.weights_digest(), model.commit)
                return use(model.without_commit(), at)  # the same weights may have several commits
            except CheckpointError as error:
                path = error.path  # without the location of the folder
                for place in (cache, self.series.folder):
                    path = path.relative_to(place) if place is not None and path.is_relative_to(place) else path
                return Failed(f"{shown(path)}: {error.problem}")


def score_checkpoint(
    checkpoints: Checkpoints,
    revision: Revision,
    scoring: Scoring,
    is_new: Callable[[StepName], bool],
    progress: Progress = SILENT,
) -> xr.DataTree | Failed | StepName:
    """Score one checkpoint, unless it has the weights of another one that is scored already, or by another worker."""
    return checkpoints.use(revision, lambda model, at: scoring.step(model, at, progress) if is_new(at) else at)


class NotesOfCheckpoints(NotedOnce):
    """Notes of all checkpoints, each once, without bars: the checkpoints have one."""

    def bar(self, label: str, total: int) -> Callable[[int], None]:
        return SILENT.bar(label, total)


_STEP_FILE = re.compile(r"([0-9a-f]{16})-[0-9a-f]{16}\.nc", re.ASCII)


@dataclass(frozen=True)
class Finished:
    """Folder of one trajectory's finished checkpoints."""

    folder: Path  # the folder, which also holds files that are being fetched
    key: str  # digest of the options of the scoring

    def write(self, revision: Revision, step: xr.DataTree) -> None:
        write_table(step, self._path(revision))

    def read(self, revision: Revision, progress: Progress) -> xr.DataTree | None:
        try:
            return cast("xr.DataTree", open_table(self._path(revision), "trajectory"))
        except MissingFileError:
            return None
        except TableError as error:
            progress.note(f"not sound, scored again: {error}")
            return None

    def files(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if _STEP_FILE.fullmatch(path.name)]

    def words(self) -> str:
        count = len(self.files())
        are = "is" if count == 1 else "are"
        return f"{counted(count, 'finished checkpoint')} {are} kept in {shown(self.folder)}" if count else ""

    def remove(self) -> None:
        try:
            for path in self.files():
                path.unlink(missing_ok=True)
        except OSError as error:
            raise errors.OutputError(self.folder, f"it cannot be emptied: {error.strerror or error}") from error

    def _path(self, revision: Revision) -> Path:
        digest = hashlib.sha256(repr(tuple(revision)).encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / f"{self.key[:16]}-{digest[:16]}.nc"


@contextmanager
def finished_checkpoints(output: Path, key: str) -> Iterator[Finished]:
    """Open the folder of finished checkpoints for a ``with`` block, locked against other runs."""
    folder = output.with_name(f"{output.name}.steps")
    if folder.exists() and not folder.is_dir():
        raise StoreError(folder, "something that is no folder", "a folder, or nothing; choose another output name")
    for name in sorted(path.name for path in folder.iterdir()) if folder.exists() else ():
        step_file = _STEP_FILE.fullmatch(name)
        if step_file is None and name != LOCK and not is_temporary(name) and not name.startswith(FETCHED):
            expected = "finished checkpoints, or nothing; choose another output name, or move it away"
            raise StoreError(folder, shown(name), expected)
        if step_file is not None and step_file[1] != key[:16]:
            expected = "those of this command; choose another output name, or remove the folder to begin anew"
            raise StoreError(folder, "checkpoints scored with other options, or by another installation", expected)
    finished = Finished(folder, key)
    with locked_folder(folder, "finished checkpoints", lambda: not finished.files()):
        sweep(folder)
        for fetched in folder.glob(f"{FETCHED}*"):  # by a run that was killed while it scored the checkpoint
            shutil.rmtree(fetched, ignore_errors=True)
        with errors.resumable(finished.words):
            yield finished
