"""Existing file of a trajectory that is to be continued: same model, same options, same weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from rmtbase.errors import MissingFileError, ParameterError, TableError
from rmtbase.models import Series
from rmtbase.progress import Progress
from rmtbase.results import open_trajectory
from rmtbase.results.trajectory._attributes import options_of, revisions_of
from rmtbase.results.trajectory._checkpoint_scores import Failed, with_checkpoint
from rmtbase.shown import quoted, shown

_ADVICE = "name another output, or remove that file to begin anew"


def earlier_file(output: Path, options: Mapping[str, Any], model: str | None = None) -> xr.DataTree | None:
    """Open the trajectory in a file that is to be continued; None if there is no file.

    Args:
        output: the file.
        options: :attr:`Scoring.options` of the further checkpoints.
        model: model that the file must belong to, if known.

    Raises:
        TableError: the file is not a trajectory, is damaged, or belongs to another model or other options. It is left
            unchanged.
    """
    try:
        tree = open_trajectory(output)
    except MissingFileError:
        return None
    except TableError as error:
        raise TableError(output, error.found, f"{error.expected}; {_ADVICE}") from error
    of = str(tree.attrs["model"])
    if model is not None and of != shown(model):
        raise TableError(output, f"the trajectory of {quoted(of)}", f"one of {quoted(model)}; {_ADVICE}")
    there = options_of(tree)
    if there is None:
        raise TableError(output, "a trajectory that does not say how it was scored", f"one that does; {_ADVICE}")
    there, options = _flat(there), _flat(options)
    names = [name for name in {**there, **options} if there.get(name) != options.get(name)]
    if names:
        found, expected = (", ".join(f"{name} = {_short(one.get(name))}" for name in names) for one in (there, options))
        raise TableError(output, f"a trajectory scored with {found}", f"one with {expected}; {_ADVICE}")
    return tree


def require_same_weights(
    tree: xr.DataTree,
    output: Path,
    series: Series,
    keep: bool,
    folder: Path,
    progress: Progress,
) -> None:
    """Raise an error if a checkpoint of the series has other weights now than in the trajectory.

    Checkpoints on the hub are compared by commit; otherwise the weights are read. Checkpoints that can no longer be
    read are noted.

    Raises:
        ParameterError: a step or revision of the series belongs to another revision or step in the file.
        TableError: the weights of a checkpoint differ.
    """
    by_name = revisions_of(tree)
    by_step = {at.step: at for at in by_name.values()}
    for revision in series.revisions:
        at = by_name.get(revision.name) or by_step.get(revision.step)
        if at is not None and at[:2] != revision[:2]:
            expected = f"those of {output.name}, in which step {at.step} is {at.revision}"
            raise ParameterError("revisions", f"{revision.step}:{revision.name}", expected)
    checked = [one for one in series.revisions if one.name in by_name and by_name[one.name].commit != one.identity]
    advance = progress.bar("checking checkpoints", len(checked))
    for revision in checked:
        found = with_checkpoint(series, revision, lambda model, at: at, keep, folder)
        if isinstance(found, Failed):
            progress.note(f"{revision.name} cannot be read any more, its scores stay: {found.reason}")
        elif found.fingerprint != by_name[revision.name].fingerprint:
            expected = f"those of the checkpoint that is there now, as in a file of this run; {_ADVICE}"
            raise TableError(output, f"other weights of {revision.name}", expected)
        advance(1)


def _flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with those of each null as separate entries, such as ``"seed of gaussian"``."""
    nulls = options["nulls"]
    of_nulls = {f"{one} of {name}": value for name, null in nulls.items() for one, value in null.items()}
    return {**options, "nulls": list(nulls), **of_nulls}


def _short(value: object) -> str:
    return shown(", ".join(map(str, value)) or "none" if isinstance(value, list) else value, 60)
