"""A model that is read is never written over."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rmtbase.errors import OutputError
from rmtbase.models._model import Model


def check_outputs(paths: Iterable[Path], model: Model) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if a path leads to a file of the model.

    Files are compared, not names: the hub's cache keeps a model's files as links to where they are, and a link, or the
    file that it points to, may be the path.
    """
    own = {_identity(file) for file in (*model.path.iterdir(), *model.files)} - {None}
    for path in paths:
        if _identity(path) in own:
            raise OutputError(path, "it is a file of the model that is read; expected another name")


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from any other, links followed; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
