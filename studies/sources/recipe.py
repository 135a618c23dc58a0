"""Input of a recipe, a :class:`Run`, and its output, a :class:`Result`: figures, rows and tables."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing

import rmtbase
from rmtbase.errors import ParameterError, TableError
from rmtbase.models import Model, find_series, known_models, open_model
from rmtbase.progress import SILENT, Progress
from rmtbase.results.trajectory.figures._animation import Animation
from rmtbase.systems import is_alive
from rmtbase.tables import SCHEMA_VERSION, software_version, write_table

VERDICTS = ("agrees", "differs", "corrected", "open", "needs")
"""How a verdict begins: *agrees* within what was printed or the null; *differs*, with the numbers beside it;
*corrected*, with the reason in the note; *open*, nothing decides it; *needs CHECKPOINT*, of another model than this."""

CONVENTIONS = ("λ", "s", "")
"""Of a spectral quantity: of eigenvalues λ = s², or of singular values s; none of what has no spectrum."""


_SPECIAL = re.compile(r"[^\w .,@/+()~=-]")
_FETCHED = "rmtbase-fetched-"


class Null(NamedTuple):
    """Value of a quantity for weights that learned nothing: mean and standard deviation, or an interval, or both.

    Attributes:
        mean: None if only the interval is known.
        sd: standard deviation over heads, matrices or models, whichever have the quantity.
        low: lower end of the interval.
        high: its upper end.
        of: the null in a few words, and its share in the interval: ``"Gaussian (768, 64), 95 %"``.
    """

    mean: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    of: str = ""


@dataclass(frozen=True)
class Row:
    """Published value beside the observed one, its null and a verdict.

    Attributes:
        place: where it is published: ``"post 1, figure 5"``, ``"Weibull paper, table 2"``, ``"follow-up, figure 1"``.
        quantity: the quantity, in words.
        published: the value as printed, a number or words; None if it can only be read off a figure.
        observed: the value for the model of this run; None if there is none.
        null: the value for weights that learned nothing; None if the quantity has none.
        verdict: begins with one of :data:`VERDICTS`.
        convention: one of :data:`CONVENTIONS`; a spectral quantity has a row in each.
        note: a sentence at most.
    """

    place: str
    quantity: str
    published: float | str | None
    observed: float | str | None
    null: Null | None
    verdict: str
    convention: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.verdict.startswith(VERDICTS):
            raise ParameterError("verdict", self.verdict, f"words that begin with one of {', '.join(VERDICTS)}")
        if self.convention not in CONVENTIONS:
            raise ParameterError("convention", self.convention, "λ, s, or nothing")


class Figure(NamedTuple):
    """A figure, or an animation, of a place in the sources.

    Attributes:
        name: of its file: ``post1-figure-05``, ``post2-figure-11``, ``weibull-figure-03``, ``followup-figure-1``.
        figure: drawn, not yet written.
        caption: what is seen, with its null.
        place: as in :class:`Row`.
    """

    name: str
    figure: Drawing | Animation
    caption: str
    place: str


class Table(NamedTuple):
    """A table of a place in the sources: ``weibull-table-2``.

    Attributes:
        name: as of a figure.
        columns: their headings.
        rows: cells, numbers or words; None where there is nothing.
        caption: what the rows are.
        place: as in :class:`Row`.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[float | str | None, ...], ...]
    caption: str
    place: str


@dataclass(frozen=True)
class Result:
    """Output of a recipe.

    Attributes:
        figures: in the order of the sources.
        rows: published values beside the observed.
        tables: in the order of the sources.
        summary: paragraphs that begin the page, with what was found.
    """

    figures: tuple[Figure, ...] = ()
    rows: tuple[Row, ...] = ()
    tables: tuple[Table, ...] = ()
    summary: tuple[str, ...] = ()


class Fetched:
    """The folder into which checkpoints of the hub are fetched: one at a time is held, and none at the end."""

    def __init__(self) -> None:
        self._held: tuple[str, str | None] | None = None
        self._place: TemporaryDirectory[str] | None = None

    def place(self, model: str, revision: str | None) -> Path:
        """Return the folder for a checkpoint; files held for another checkpoint are deleted."""
        if self._held != (model, revision):
            self.discard()
        if self._place is None:
            discard_left()
            self._place = TemporaryDirectory(prefix=f"{_FETCHED}{os.getpid()}-", ignore_cleanup_errors=True)
            self._held = (model, revision)
        return Path(self._place.name)

    def discard(self) -> None:
        """Delete what is held."""
        if self._place is not None:
            self._place.cleanup()
        self._place = self._held = None


@dataclass(frozen=True)
class Run:
    """Call of a recipe: its models, the folders for its files, and what is kept.

    A model is named as :func:`rmtbase.models.open_model` takes it: ``demo``, a folder, or a model of the hub, followed
    by ``@REVISION`` for another revision than the default.

    Attributes:
        model: the requested model.
        quick: True for fewer draws.
        out: folder of the recipe's outputs.
        store: folder in which scores are kept.
        models: the requested models of a recipe that compares several; the first is ``model``.
        progress: receives notes of what was recorded.
        scored: hub commit and digest of the weights, for each model and revision whose scores were used.
        fetched: folder for fetched files, shared with the recipes that run with this one.
        digests: digests of the weights of each requested folder and revision, each read once.
    """

    model: str
    quick: bool
    out: Path
    store: Path
    models: tuple[str, ...] = ()
    progress: Progress = SILENT
    scored: dict[str, dict[str, str]] = field(default_factory=dict, compare=False, repr=False)
    fetched: Fetched = field(default_factory=Fetched, compare=False, repr=False)
    digests: dict[tuple[str, str | None], str] = field(default_factory=dict, compare=False, repr=False)

    def scores(self, model: str | None = None, revision: str | None = None, **options: Any) -> xr.DataTree:
        """Score a model by :func:`rmtbase.score` with its options; scores are kept, and read when requested again.

        Raises:
            CheckpointError, ParameterError, TableError: as :func:`rmtbase.score`.
        """
        path = self._kept(model, revision, "scores", options, ".nc")
        if not path.exists():
            with self.open_model(model, revision) as opened:
                tree = rmtbase.score(opened, progress=self.progress, **options)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_table(tree, path)
        tree = rmtbase.open_table(path)
        weights = json.loads(tree.attrs["provenance"]).get("weights", {})
        commits = [one for one in json.loads(tree.attrs["notes"]) if one.startswith("hub commit ")]
        self.scored[f"{tree.attrs['model']}@{tree.attrs['revision']}"] = {
            **({"commit": commits[0].removeprefix("hub commit ")} if commits else {}),
            **{name: weights[name] for name in ("query_key_sha256",) if name in weights},
        }
        return tree

    def arrays(
        self,
        what: str,
        measure: Callable[[Model], Mapping[str, Any]],
        model: str | None = None,
        revision: str | None = None,
        **options: Any,
    ) -> dict[str, np.ndarray]:
        """Arrays that a function makes of the weights, for what scores do not hold; kept as they are.

        Args:
            what: their name, another one wherever the function makes something else.
            measure: of the opened model, and ``options`` by name.
            model: as in :meth:`scores`.
            revision: as there.
            options: given to the function.

        Raises:
            CheckpointError: the model cannot be read.
        """
        path = self._kept(model, revision, what, options, ".npz")
        if not path.exists():
            with self.open_model(model, revision) as opened:
                made = {name: np.asarray(one) for name, one in measure(opened, **options).items()}
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".{os.getpid()}.partial.npz")  # of this run alone: two may share a store
            try:
                np.savez_compressed(partial, allow_pickle=False, **made)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
                return {name: kept[name] for name in kept.files}
        except (ValueError, EOFError, KeyError, BadZipFile, zlib.error) as error:
            raise TableError(path, "a damaged file", "arrays as they were kept; delete it, and run again") from error

    @contextmanager
    def open_model(self, model: str | None = None, revision: str | None = None) -> Iterator[Model]:
        """Open the model. Files fetched for it are deleted when another model is opened, and at the end of the run.

        Files that the hub's own cache held before are read there, and stay.
        """
        name, at = self._checkpoint(model, revision)
        is_here = name == "demo" or _place(name) is not None
        yield open_model(name, at, cache=None if is_here else self.fetched.place(name, at))

    def trajectory(
        self, model: str | None = None, revisions: str | tuple[str, ...] = "all", **options: Any
    ) -> xr.DataTree:
        """Score the steps of a model by :func:`rmtbase.trajectory`, which continues from what it has kept.

        The model is one of the hub, or a folder of checkpoints.
        """
        name, _ = self._named(model, None)
        folder = _place(name)
        name = name if folder is None else str(folder)
        path = self._file(name, None, "", "trajectory", {"revisions": revisions, **options}, ".nc")
        path.parent.mkdir(parents=True, exist_ok=True)
        return rmtbase.trajectory(name, revisions, path, progress=self.progress, **options)

    @property
    def label(self) -> str:
        """The model as texts and pictures call it."""
        return label(self.model)

    def is_of(self, model: str) -> bool:
        """Return True if this run is of that published model, under any of its names."""
        return _hub_id(self._named(None, None)[0]) == _hub_id(model)

    def _named(self, model: str | None, revision: str | None) -> tuple[str, str | None]:
        name, _, at = (self.model if model is None else model).partition("@")
        return name, revision or at or None

    def _checkpoint(self, model: str | None, revision: str | None) -> tuple[str, str | None]:
        """Resolve names as :meth:`_named` does; a folder of checkpoints becomes that of the named or last one."""
        name, at = self._named(model, revision)
        place = _place(name)
        if place is None or not place.is_dir() or (place / "config.json").exists():
            return name, at
        try:
            return str(place / find_series(place, at or "all").revisions[-1].name), None
        except ParameterError:
            if at is not None and (place / at / "config.json").is_file():
                return str(place / at), None
            return name, at  # one model, such as a GGUF file, which needs no config.json

    def _kept(self, model: str | None, revision: str | None, what: str, options: Mapping[str, Any], end: str) -> Path:
        """File that keeps results of one checkpoint; anything that could be another checkpoint has another file."""
        name, at = self._checkpoint(model, revision)
        if _place(name) is not None and (name, at) not in self.digests:
            self.digests[name, at] = open_model(name, at).weights_digest()
        return self._file(name, at, self.digests.get((name, at), ""), what, options, end)

    def _file(self, name: str, at: str | None, weights: str, what: str, options: Mapping[str, Any], end: str) -> Path:
        whole = [name, at, weights, what, options, SCHEMA_VERSION, software_version()]
        key = hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:12]
        called = re.sub(r"[^\w.-]+", "--", _called(name))
        return self.store / f"{called}{f'@{at}' if at else ''}-{what}-{key}{end}"


def discard_left(own: int | None = None) -> None:
    """Delete what killed runs have fetched, of which no process is there any more; and what this one has."""
    for left in Path(gettempdir()).glob(f"{_FETCHED}*-*"):
        process = left.name.removeprefix(_FETCHED).partition("-")[0]
        if process.isdecimal() and (int(process) == own or not is_alive(int(process))):
            for _ in range(20):  # a thread of this process may be writing into it
                shutil.rmtree(left, ignore_errors=True)
                if not left.exists():
                    break


def read_results(path: Path) -> dict[str, Any]:
    """Read a ``results.json``.

    Raises:
        TableError: it is damaged.
    """
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TableError(path, "no JSON", "the results of a recipe; delete it, and run the recipe again") from error
    if not isinstance(held, dict) or not {"recipe", "model", "rows", "figures", "tables"} <= held.keys():
        raise TableError(path, "something else", "the results of a recipe; delete it, and run the recipe again")
    return held


def label(model: str) -> str:
    """Label of a model in texts and figures: a folder or file by its name only, wherever it lies on this machine.

    Characters that have a meaning in Markdown, HTML or a figure's formulae become underscores.
    """
    name, _, revision = model.partition("@")
    return f"{_called(name)}@{_SPECIAL.sub('_', revision)}" if revision else _called(name)


def _called(name: str) -> str:
    place = _place(name)
    return _SPECIAL.sub("_", name if place is None else place.name)


def _place(name: str) -> Path | None:
    """Folder or file that a model's name means on this machine; None for the demo, and for a model of the hub."""
    path = Path(name).expanduser()
    with suppress(OSError):  # of what is too long for a name
        return path.resolve() if name not in ("demo", "") and path.exists() else None
    return None


def _hub_id(name: str) -> str:
    """Hub id, in lower case, of a known model by any of its names; otherwise the name itself."""
    asked = name.lower()
    ids = ((one.name, one.hub_id.lower()) for one in known_models())
    return next((hub_id for short, hub_id in ids if asked in (short, hub_id, hub_id.partition("/")[2])), asked)
