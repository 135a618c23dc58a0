"""The bundled model at several stages of its training."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from rmtbase.errors import CorruptFileError, ParameterError
from rmtbase.models.files._files import read_json_object


def demo_root() -> Path:
    """Return the folder of the bundled model, within the installed package."""
    return Path(str(files("rmtbase.models").joinpath("demo")))


def demo_revisions() -> tuple[str, ...]:
    """Return the names of the bundled checkpoints, in the order of training.

    Raises:
        MissingFileError: the package was installed without the checkpoints.
        CorruptFileError: the list of checkpoints is damaged.
    """
    return _read_index()[0]


def demo_steps() -> dict[str, int]:
    """Return the number of optimizer steps of each bundled checkpoint, by name. Raises as :func:`demo_revisions`."""
    path = demo_root() / "index.json"
    try:
        return {str(one["name"]): int(one["step"]) for one in read_json_object(path)["revisions"]}
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(path, "no list of revisions with their steps", "one: install again") from error


def demo_checkpoint(revision: str | None = None) -> tuple[Path, str]:
    """Return the folder of a bundled checkpoint, and its name."""
    names, default = _read_index()
    name = default if revision is None else revision
    if name not in names:
        raise ParameterError("revision", name, f"one of the bundled checkpoints: {', '.join(names)}")
    return demo_root() / name, name


def _read_index() -> tuple[tuple[str, ...], str]:
    path = demo_root() / "index.json"
    index = read_json_object(path)
    try:
        return tuple(str(revision["name"]) for revision in index["revisions"]), str(index["default"])
    except (KeyError, TypeError) as error:
        raise CorruptFileError(path, "no list of revisions with a default", "one: install again") from error
