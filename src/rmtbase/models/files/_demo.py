"""The bundled model at several stages of its training."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from rmtbase.errors import CorruptFileError, ParameterError
from rmtbase.models.files._files import read_json_object


def demo_root() -> Path:
    return Path(str(files("rmtbase.models").joinpath("demo")))


def demo_revisions() -> tuple[str, ...]:
    """Return the bundled checkpoints' names in the order of training. Raises MissingFileError, CorruptFileError."""
    return tuple(_read_index()[0])


def demo_steps() -> dict[str, int]:
    """Return the number of optimizer steps of each bundled checkpoint, by name. Raises as :func:`demo_revisions`."""
    return _read_index()[0]


def demo_checkpoint(revision: str | None = None) -> tuple[Path, str]:
    steps, default = _read_index()
    name = default if revision is None else revision
    if name not in steps:
        raise ParameterError("revision", name, f"one of the bundled checkpoints: {', '.join(steps)}")
    return demo_root() / name, name


def _read_index() -> tuple[dict[str, int], str]:
    path = demo_root() / "index.json"
    index = read_json_object(path)
    try:
        return {str(entry["name"]): int(entry["step"]) for entry in index["revisions"]}, str(index["default"])
    except (KeyError, TypeError, ValueError) as error:
        expected = "one: install again"
        raise CorruptFileError(path, "no list of revisions with their steps and a default", expected) from error
