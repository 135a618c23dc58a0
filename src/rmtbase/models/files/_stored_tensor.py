"""Tensor of a checkpoint, as a file stores it or derived from several stored tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.models.files._tensor_file import (
    NARROW_FLOATS,
    STORAGE,
    TensorEntry,
    TensorFile,
    numbers_of,
    require_finite,
)


class CheckpointTensor(Protocol):
    """Tensor of a checkpoint."""

    @property
    def entry(self) -> TensorEntry:
        """Its element type and shape."""
        ...

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        """The tensors in files that it is made of."""
        ...

    @property
    def is_made_whole(self) -> bool:
        """True if the whole tensor is computed even if only a part of it is read."""
        ...

    def read_bits(self, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """Read the elements ``start <= i < stop`` of the flattened tensor, in the types of ``STORAGE``."""
        ...


@dataclass(frozen=True)
class StoredTensor:
    """Tensor as a file stores it, under the name that it has in the file."""

    file: TensorFile
    name: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.file.path

    @property
    def entry(self) -> TensorEntry:
        """Its element type and shape."""
        return self.file.entries[self.name]

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        """Itself."""
        return (self,)

    @property
    def is_made_whole(self) -> bool:
        """False: any part of it can be read."""
        return False

    def read_bits(self, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """Read the elements ``start <= i < stop`` of the flattened tensor, in the types of ``STORAGE``."""
        return self.file.read_bits(self.name, start, stop)

    def array(self, start: int = 0, stop: int | None = None) -> Shaped[np.ndarray, "..."]:
        """Read the tensor, or its rows ``start <= i < stop``, in its own element type of NumPy or ml_dtypes."""
        shape, width = self.entry.shape, 1
        if stop is None:
            stop = self.entry.size
        else:
            width, shape = prod(shape[1:]), (stop - start, *shape[1:])
        bits = np.ascontiguousarray(self.read_bits(start * width, stop * width))
        return numbers_of(bits, self.entry.dtype).reshape(shape)

    def numbers(self, start: int = 0, stop: int | None = None) -> Float[np.ndarray, "..."]:
        """Read as :meth:`array` does, and convert to float32."""
        values = self.array(start, stop).astype(np.float32)
        require_finite(self.path, self.name, values)
        return values


@dataclass(frozen=True)
class DerivedTensor:
    """Tensor that is computed from stored tensors each time that it is read, and not kept.

    The rows of a stack are its matrices.
    """

    entry: TensorEntry  # the type to which its elements are rounded, and its shape
    stored: tuple[StoredTensor, ...]  # the tensors that it is made of; the first determines its file
    # function that computes the rows ``start <= i < stop``, in float32 or in the type to which they are rounded
    make: Callable[[int, int], Shaped[np.ndarray, "..."]]
    # how many rows must be computed together: the range passed to ``make`` begins at a multiple of this number, and
    # ends at one or at the last row. By default all rows are computed together.
    rows_together: int | None = None

    @property
    def is_made_whole(self) -> bool:
        """True if the whole tensor is computed even if only a part of it is read."""
        return self.rows_together is None or self.rows_together >= self.entry.shape[0]

    def read_bits(self, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """Compute the elements ``start <= i < stop`` of the flattened tensor, in the types of ``STORAGE``."""
        rows = self.entry.shape[0]
        step, width = self.rows_together or rows, self.entry.size // rows
        first, last = start // (step * width) * step, min(ceil(stop / (step * width)) * step, rows)
        values = self.make(first, last).reshape(-1)[start - first * width : stop - first * width]
        with np.errstate(over="ignore"):  # the reader checks for infinite values
            rounded: Any = values.astype(NARROW_FLOATS.get(self.entry.dtype, STORAGE[self.entry.dtype]), copy=False)
        return rounded.view(STORAGE[self.entry.dtype]) if self.entry.dtype in NARROW_FLOATS else rounded
