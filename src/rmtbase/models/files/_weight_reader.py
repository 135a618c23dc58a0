"""Tensors of a checkpoint as weights: finite, not lost to rounding, and no more of them in memory than needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Shaped

from rmtbase.errors import CheckpointError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._tensor_file import require_digits
from rmtbase.shown import quoted

_BLOCK = 1 << 22  # elements in a block of rows, 16 MiB in float32; a block of wider rows is square


class WeightReader:
    """Reader of tensors that keeps the last one, since queries, keys and values may share it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._last: tuple[str, Shaped[np.ndarray, "..."]] | None = None

    def read_one_of(self, name: str) -> Any:
        """Read matrices of a stack one at a time, or all at once where they can only be made together."""
        one = self._checkpoint.tensor(name)
        if len(one.entry.shape) == 3 and not one.is_made_whole:
            return _Stack(self._checkpoint, name)
        return self.read(name)

    def blocks(self, name: str) -> Iterator[Shaped[np.ndarray, "row column"]]:
        """Yield blocks of rows, converted as by :meth:`read`; each is read by itself where it can be made by itself."""
        rows, width = self._checkpoint.shape(name)
        height = max(width, _BLOCK // width)
        whole = self.read(name) if self._checkpoint.tensor(name).is_made_whole else None
        for start in range(0, rows, height):
            stop = min(start + height, rows)
            yield _rows(self._checkpoint, name, start, stop) if whole is None else whole[start:stop]

    def read(self, name: str) -> Shaped[np.ndarray, "..."]:
        """Read a whole tensor, in the precision in which it is stored; float64 is rounded to float32."""
        last = self._last
        if last is not None and last[0] == name:
            return last[1]
        self._last = last = None  # so that two tensors are never held at once
        values = _weights(self._checkpoint, name, self._checkpoint.read_stored(name))
        values.flags.writeable = False
        self._last = (name, values)
        return values


class _Stack:
    """Stack of matrices, each read when it is indexed."""

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self._checkpoint, self._name, self.shape = checkpoint, name, checkpoint.shape(name)

    def __getitem__(self, index: int) -> Shaped[np.ndarray, "row column"]:
        return _rows(self._checkpoint, self._name, index, index + 1)[0]


def _rows(checkpoint: Checkpoint, name: str, start: int, stop: int) -> Shaped[np.ndarray, "..."]:
    return _weights(checkpoint, name, checkpoint.read_stored_rows(name, start, stop))


def _weights(checkpoint: Checkpoint, name: str, values: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
    """Check the numbers of a stored tensor, and round float64 to float32."""
    require_digits(checkpoint.file(name), name, values, checkpoint.dtype(name))
    if values.dtype != np.float64:
        return values
    try:
        # A few values that underflow beside larger ones change nothing; require_digits refuses a tensor of only those.
        with np.errstate(over="raise", under="ignore"):
            return values.astype(np.float32)
    except FloatingPointError as error:
        raise CheckpointError(
            checkpoint.file(name),
            f"tensor {quoted(name)} holds values beyond the range of float32; expected weights, or rescale them",
        ) from error
