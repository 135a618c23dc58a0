"""Input of a recipe, a :class:`Run`, and its output, a :class:`Result`: figures, rows and tables."""

import hashlib
import json
import os
import re
import shutil
import sys
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
from rmtbase.errors import CheckpointError, ParameterError, TableError
from rmtbase.models import Model, Revision, Series, find_series, known_models, open_model
from rmtbase.models.files._hub import fetch_refs
from rmtbase.models.files._hub import hub_id as full_name
from rmtbase.progress import SILENT, Progress
from rmtbase.results.trajectory._along_steps import revisions_of
from rmtbase.results.trajectory.figures._animation import Animation
from rmtbase.systems import is_alive
from rmtbase.tables import write_table
from studies.sources.store import Entry, Store, commit_of
from studies.sources.verdicts import LEVEL, Verdict

CONVENTIONS = ("λ", "s", "")
"""Of a spectral quantity: of eigenvalues λ = s², or of singular values s; none of what has no spectrum."""


_SPECIAL = re.compile(r"[^\w .,@/+()~=-]")
_FETCHED = "rmtbase-fetched-"
_COMMIT = re.compile("[0-9a-f]{40}")
_SEED = 20  # of random heads


class HeadShape(NamedTuple):
    """Sizes of the heads of a layer."""

    d_model: int
    d_head: int
    n_heads: int
    n_key_heads: int


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


def null_of_draws(drawn: np.ndarray, of: str) -> Null:
    """Null by simulated values, with the interval beyond which a claim of learned structure agrees."""
    low, high = (float(end) for end in np.quantile(drawn, (LEVEL, 1.0 - LEVEL)))
    return Null(float(np.mean(drawn)), float(np.std(drawn)), low, high, f"{of}, {100 * (1 - 2 * LEVEL):g} %")


@dataclass(frozen=True)
class Row:
    """Published value beside the observed one, its null and a verdict.

    Attributes:
        place: where it is published: ``"post 1, figure 5"``, ``"Weibull paper, table 2"``, ``"follow-up, figure 1"``.
        quantity: the quantity, in words.
        published: the value as printed, a number or words; None if it can only be read off a figure.
        observed: the value for the model of this run; None if there is none.
        null: the value for weights that learned nothing; None if the quantity has none.
        verdict: finding and standing, by the rule of :mod:`studies.sources.verdicts`.
        convention: one of :data:`CONVENTIONS`; a spectral quantity has a row in each.
        note: a sentence at most.
    """

    place: str
    quantity: str
    published: float | str | None
    observed: float | str | None
    null: Null | None
    verdict: Verdict
    convention: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.verdict, Verdict):
            raise ParameterError("verdict", repr(self.verdict), "a Verdict of studies.sources.verdicts")
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
        self._commits: dict[str, dict[str, str]] = {}
        self._said: set[str] = set()

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

    def commit(self, model: str, revision: str | None) -> str | None:
        """Commit of a model on the hub, which is asked once; None if it does not say."""
        if model not in self._commits:
            try:
                self._commits[model] = fetch_refs(full_name("/".join(model.split("/")[:2])))
            except CheckpointError:
                self._commits[model] = {}
        at = revision or "main"
        return self._commits[model].get(at) or (at if _COMMIT.fullmatch(at) else None)

    def say(self, text: str) -> None:
        """Say something on stderr, once."""
        if text not in self._said:
            self._said.add(text)
            print(text, file=sys.stderr, flush=True)


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
        published: folder or URL of a published store, which is asked first for what that folder lacks; "" for none.
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
    published: str = ""
    progress: Progress = SILENT
    scored: dict[str, dict[str, str]] = field(default_factory=dict, compare=False, repr=False)
    fetched: Fetched = field(default_factory=Fetched, compare=False, repr=False)
    digests: dict[tuple[str, str | None], str] = field(default_factory=dict, compare=False, repr=False)

    def scores(self, model: str | None = None, revision: str | None = None, **options: Any) -> xr.DataTree:
        """Score a model by :func:`rmtbase.score` with its options; scores are kept, and read when requested again.

        Raises:
            CheckpointError, ParameterError, TableError: as :func:`rmtbase.score`.
        """
        entry = self._entry(model, revision, "scores", options, ".nc")
        path = self._find(entry)
        if path is None:
            with self.open_model(model, revision) as opened:
                tree = rmtbase.score(opened, progress=self.progress, **options)
            write_table(tree, path := self._path(entry, opened))
        tree = rmtbase.open_table(path)
        weights = json.loads(tree.attrs["provenance"]).get("weights", {})
        self._record(f"{tree.attrs['model']}@{tree.attrs['revision']}", path, weights)
        return tree

    def random_scores(self, shape: HeadShape, layers: int, null: Any = "gaussian", **options: Any) -> xr.DataTree:
        """Score layers of random heads of a shape as heads of a model are scored; they are kept by their shape."""
        options = {"elements": options["elements"], "matrices": options["matrices"]}
        settings = {"null": null, **options, "layers": layers, "shape": shape}
        name = "random-heads"
        entry = Entry(name, None, "", "scores", settings, ".nc", False)
        path = self._find(entry)
        if path is None:
            w_q, w_k = (_random_factors(shape, layers, of_keys) for of_keys in (False, True))
            tree = rmtbase.score_heads(w_q, w_k, null, model=name, progress=self.progress, **options)
            write_table(tree, path := self._store.begin(entry, None))
        return rmtbase.open_table(path)

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
        entry = self._entry(model, revision, what, options, ".npz")
        path = self._find(entry)
        if path is None:
            with self.open_model(model, revision) as opened:
                made = {name: np.asarray(one) for name, one in measure(opened, **options).items()}
            path = self._path(entry, opened)
            partial = path.with_suffix(f".{os.getpid()}.partial.npz")  # of this run alone: two may share a store
            try:
                np.savez_compressed(partial, allow_pickle=False, **made)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        if entry.of_hub:
            self._record(f"{entry.model}@{entry.revision or 'main'}", path)
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
        yield open_model(name, at, cache=None if is_here else self.fetched.place(full_name(name), at))

    def trajectory(
        self,
        model: str | None = None,
        revisions: str | tuple[str, ...] = "all",
        until: tuple[str, ...] | None = None,
        **options: Any,
    ) -> xr.DataTree:
        """Score the steps of a model by :func:`rmtbase.trajectory`, which continues from what it has kept.

        The model is one of the hub, or a folder of checkpoints. With ``until``, only these of the revisions are scored
        now.
        """
        name, _ = self._named(model, None)
        folder = _place(name)
        if folder is not None:
            entry = Entry(
                folder.name, None, str(folder), "trajectory", {"revisions": revisions, **options}, ".nc", False
            )
            path = self._store.begin(entry, None)
            return rmtbase.trajectory(str(folder), revisions, path, progress=self.progress, **options)
        return self._trajectory_of_hub(full_name(name), revisions, revisions if until is None else until, options)

    def _trajectory_of_hub(
        self, name: str, revisions: str | tuple[str, ...], until: str | tuple[str, ...], options: Mapping[str, Any]
    ) -> xr.DataTree:
        """Score checkpoints of the hub; the file is that of the commits of all ``revisions``."""
        entry, commit = self._course(name, revisions, options)
        path = self._find(entry, commit)
        tree = None if path is None else rmtbase.open_table(path, "trajectory")
        if tree is None or not {*until} <= revisions_of(tree).keys():
            path = self._store.begin(entry, commit)
            series = find_series(name, until)
            held = _Held(**vars(series), fetched=self.fetched)
            tree = rmtbase.trajectory(held, output=path, progress=self.progress, **options)
        for revision, at in revisions_of(tree).items():
            if at.commit:
                self.scored[f"{name}@{revision}"] = {"commit": at.commit}
        return tree

    def _course(
        self, name: str, revisions: str | tuple[str, ...], options: Mapping[str, Any]
    ) -> tuple[Entry, str | None]:
        entry = Entry(name, None, "", "trajectory", {"revisions": revisions, **options}, ".nc", True)
        joined = "".join(self.fetched.commit(name, one) or "" for one in revisions)
        return entry, hashlib.sha256(joined.encode()).hexdigest()[:40] if joined else None

    @property
    def label(self) -> str:
        """The model as texts and pictures call it."""
        return label(self.model)

    def is_of(self, model: str) -> bool:
        """Return True if this run is of that published model, under any of its names."""
        return hub_id(self._named(None, None)[0]) == hub_id(model)

    def is_here(self, model: str) -> bool:
        """Return True if a model is the demo, or lies on this machine."""
        name, _ = self._named(model, None)
        return name == "demo" or _place(name) is not None

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

    @property
    def _store(self) -> Store:
        return Store(self.store, self.published, self.fetched.say)

    def _entry(self, model: str | None, revision: str | None, what: str, options: Mapping[str, Any], end: str) -> Entry:
        """Identity of results of one checkpoint; anything that could be another checkpoint has another one."""
        name, at = self._checkpoint(model, revision)
        is_here = _place(name) is not None
        if is_here and (name, at) not in self.digests:
            self.digests[name, at] = open_model(name, at).weights_digest()
        of_hub = not is_here and name != "demo"
        called = full_name(name) if of_hub else _called(name)
        return Entry(called, at, self.digests.get((name, at), ""), what, options, end, of_hub)

    def _find(self, entry: Entry, commit: str | None = None) -> Path | None:
        if entry.of_hub and commit is None and entry.what != "trajectory":
            commit = self.fetched.commit(entry.model, entry.revision)
        return self._store.find(entry, commit)

    def _path(self, entry: Entry, opened: Model) -> Path:
        return self._store.begin(entry, opened.commit or None)

    def _record(self, checkpoint: str, path: Path, weights: Mapping[str, Any] | None = None) -> None:
        """Note the commit and the digest of the weights of a file that is used."""
        commit, known = commit_of(path), self.scored.setdefault(checkpoint, {})
        known.update({"commit": commit} if commit else {})
        known.update({name: str(one) for name, one in (weights or {}).items() if name == "query_key_sha256"})

    def is_kept(self, what: str, revision: str | None = None, **options: Any) -> bool:
        """Return True if nothing need be fetched for these scores or arrays of the run's model."""
        entry = self._entry(None, revision, what, options, ".nc" if what == "scores" else ".npz")
        return self._find(entry) is not None

    def steps_kept(self, revisions: tuple[str, ...]) -> set[str]:
        """Revisions of :meth:`trajectory` for which nothing need be fetched."""
        entry, commit = self._course(full_name(self._named(None, None)[0]), revisions, {})
        path = self._find(entry, commit)
        return set() if path is None else {*revisions_of(rmtbase.open_table(path, "trajectory"))}


@dataclass(frozen=True, repr=False)
class _Held(Series):
    """Series whose checkpoints are fetched where the run holds the one in use, so that all may read it there."""

    fetched: Fetched = field(default_factory=Fetched)

    def open(self, revision: Revision, cache: Path | None = None) -> Model:
        return super().open(revision, None if cache is None else self.fetched.place(self.model, revision.name))


def _random_factors(shape: HeadShape, layers: int, of_keys: bool) -> Iterator[np.ndarray]:
    """Draw the queries or the keys of each layer, (head, d_head, d_model), with entries N(0, 1)."""
    number = shape.n_key_heads if of_keys else shape.n_heads
    for layer in range(layers):
        rng = np.random.default_rng([_SEED, layer, int(of_keys)])
        yield rng.standard_normal((number, shape.d_head, shape.d_model))


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


def usual_name(model: str) -> str:
    """Name of a model by which it is kept: of a known model of the hub, its hub id."""
    name, at, revision = model.partition("@")
    return model if name == "demo" or _place(name) is not None else f"{full_name(name)}{at}{revision}"


def hub_id(name: str) -> str:
    """Hub id, in lower case, of a known model by any of its names; otherwise the name itself."""
    asked = name.lower()
    ids = ((one.name, one.hub_id.lower()) for one in known_models())
    return next((hub_id for short, hub_id in ids if asked in (short, hub_id, hub_id.partition("/")[2])), asked)
