"""Checkpoints of a model during its training: branches and tags on the hub, folders, or those of the bundled model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rmtbase.errors import CheckpointError, MissingCheckpointFileError, ParameterError
from rmtbase.models._model import Model
from rmtbase.models._open import open_model
from rmtbase.models.files._demo import demo_root, demo_steps
from rmtbase.models.files._hub import HUB_ID, existing_folder, fetch_refs, hub_id
from rmtbase.models.layouts._sites import require_folds
from rmtbase.shown import in_one_line
from rmtbase.words import listing

ALL = "all"
_STEP = re.compile(
    r"(?!tmp-)(?:^|.*[-_./])(?:global_?step|step|checkpoint|ckpt|iter)[-_]?(\d{1,15})(?!\d)(?:[-_./].*)?", re.I
)
_SHOWN = 6  # names in an error


@in_one_line
class Revision(NamedTuple):
    step: int  # optimizer steps taken
    name: str  # name of the branch, tag or folder
    identity: str  # changes when the files may have: the commit on the hub, or sizes and times of the files in a folder


@in_one_line
@dataclass(frozen=True)
class Series:
    """Checkpoints of one model in the order of their steps.

    Attributes:
        model: name of the model.
        revisions: the checkpoints.
        folder: the folder that holds those of the checkpoints; None for a model on the hub.
        subfolder: the subfolder that holds the model in each checkpoint.
        fold: what is folded into the queries, keys and values of each; see :func:`open_model`.
        proof: whether the heads of each are proved; see :func:`open_model`.
    """

    model: str
    revisions: tuple[Revision, ...]
    folder: Path | None
    subfolder: str | None = None
    fold: tuple[str, ...] = ()
    proof: bool = True

    def open(self, revision: Revision, cache: Path | None = None) -> Model:
        """Open one checkpoint: see :func:`open_model`, also for what it raises."""
        of_hub = self.folder is None
        opened = open_model(
            self.model if self.folder is None else self.folder / revision.name,
            revision.name if of_hub else None,
            subfolder=self.subfolder,
            fold=self.fold,
            proof=self.proof,
            cache=cache if of_hub else None,
        )
        return opened if of_hub else replace(opened, name=self.model, revision=revision.name)


def find_series(
    model: str | Path,
    revisions: str | Sequence[str] = ALL,
    subfolder: str | None = None,
    *,
    fold: Iterable[str] | str = (),
    proof: bool = True,
) -> Series:
    """Find the checkpoints of a model during its training. Only the names of revisions are fetched from the hub.

    Args:
        model: a hub id or the name of a known model, for its branches and tags; a folder of checkpoints, as the Trainer
            of transformers writes it; or ``"demo"``.
        revisions: ``"all"`` for those with a number of steps in the name: ``step512``, ``step-512``,
            ``checkpoint-512``, ``stage1-step512-tokens2B``. Or some of them, by name or only by number. Put the number
            of steps before any other name: ``143000:main``.
        subfolder: the subfolder that holds the model in each checkpoint.
        fold: as of :func:`open_model`, for each checkpoint.
        proof: as of :func:`open_model`, for each checkpoint.

    Raises:
        ParameterError: there is no such revision, or none at all, or two have the same step.
        CheckpointError: the hub cannot be reached.
        MissingFileError: there is no such folder.
    """
    if not isinstance(model, (str, Path)) or not str(model).strip():
        raise ParameterError("model", model, "a folder of checkpoints, the name of a model on the hub, or 'demo'")
    names = [revisions] if isinstance(revisions, str) else list(revisions)
    opening = subfolder, require_folds(fold), proof
    folder = demo_root() if model == "demo" else existing_folder(model)
    if folder is not None:
        name = "demo" if model == "demo" else folder.resolve().name
        if not folder.is_dir():
            raise CheckpointError(folder, "is a file; pass the folder that holds the folders of checkpoints")
        try:
            in_folder = sorted(path.name for path in folder.iterdir() if path.is_dir())
        except OSError as error:
            raise CheckpointError(folder, f"cannot be read: {error.strerror}") from error
        stepped = {name: step for name in in_folder if (step := step_of(name)) is not None}
        steps_by_name = demo_steps() if model == "demo" else stepped
        named = _chosen(names, steps_by_name, f"checkpoints of {name}")
        if missing := [revision for _, revision in named if not (folder / revision).is_dir()]:
            raise ParameterError("revisions", missing[0], _some(steps_by_name))
        return Series(name, tuple(Revision(*step, _identity(folder / step[1])) for step in named), folder, *opening)
    if isinstance(model, Path) or not HUB_ID.fullmatch(model):
        raise MissingCheckpointFileError(Path(model), advice="pass a folder of checkpoints, or the name of a model")
    name = hub_id(model)
    try:
        commits = fetch_refs(name)
    except CheckpointError:  # the hub cannot be reached, which does not matter if all revisions are named
        if ALL in names:
            raise
        commits = {}
    steps = {ref: step for ref in commits if (step := step_of(ref)) is not None}
    named = _chosen(names, steps, f"revisions of {name}")
    return Series(name, tuple(Revision(*step, commits.get(step[1], step[1])) for step in named), None, *opening)


def step_of(name: str) -> int | None:
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _chosen(names: Sequence[str], steps_by_name: Mapping[str, int], noun: str) -> list[tuple[int, str]]:
    if not names:
        raise ParameterError("revisions", "nothing", f"'{ALL}', or some of the {noun}")
    by_step = {step: name for name, step in steps_by_name.items()}
    chosen: list[tuple[int, str]] = []
    for asked in names:
        number, colon, name = asked.partition(":")
        if asked == ALL:
            if not steps_by_name:
                expected = f"{noun} whose names state their steps (step512, checkpoint-512)"
                raise ParameterError("revisions", asked, expected)
            chosen += [(step, name) for name, step in steps_by_name.items()]
        elif colon and number.isdecimal() and name:
            chosen.append((int(number), name))
        elif asked in steps_by_name:
            chosen.append((steps_by_name[asked], asked))
        elif asked.isdecimal() and int(asked) in by_step:
            chosen.append((int(asked), by_step[int(asked)]))
        elif (step := step_of(asked)) is not None:
            chosen.append((step, asked))  # opening it raises if it does not exist
        else:
            expected = f"{_some(steps_by_name)}; other names need their step: '5000:{asked}'"
            raise ParameterError("revisions", asked, expected)
    chosen = sorted(set(chosen))
    for (step, name), (next_step, next_name) in pairwise(chosen):
        if step == next_step:
            expected = f"only one of step {step}: list the revisions that are meant"
            raise ParameterError("revisions", f"{name}, {next_name}", expected)
    if twice := [name for name, count in Counter(name for _, name in chosen).items() if count > 1]:
        raise ParameterError("revisions", twice[0], "a revision of one step: it is given for several")
    return chosen


def _some(steps_by_name: Mapping[str, int]) -> str:
    names = sorted(steps_by_name, key=lambda name: steps_by_name[name])
    if not names:
        return "names that state a number of steps, such as step512"
    return f"'{ALL}', or some of {listing(names, _SHOWN)}"


def _identity(folder: Path) -> str:
    """List the files of a folder with their sizes and times, as one string; "" if there is no folder."""
    try:
        facts = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    except OSError:
        return ""
    return ";".join(f"{path.relative_to(folder)}:{fact.st_size}:{fact.st_mtime_ns}" for path, fact in facts)
