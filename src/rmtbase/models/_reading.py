"""A checkpoint's files opened for reading, and what the system says of them as errors of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rmtbase.errors import CheckpointError, MissingCheckpointFileError
from rmtbase.regular_files import open_regular


@contextmanager
def reading(path: Path, needed_by: str | None = None) -> Iterator[BinaryIO]:
    """A regular file, open for as long as the context lasts.

    Raises:
        MissingFileError: nothing is there.
        CheckpointError: it is no regular file, or cannot be read.
    """
    try:
        with open_regular(path) as stream:
            yield stream
    except FileNotFoundError as error:
        raise MissingCheckpointFileError(path, needed_by) from error
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror or error}") from error
