"""One tensor of a checkpoint: as a file stores it, or made of several that are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.models._tensor_file import NARROW_FLOATS, STORAGE, TensorEntry, TensorFile, numbers_of, require_finite


class CheckpointTensor(Protocol):
    """What a name of a checkpoint stands for."""

    @property
    def entry(self) -> TensorEntry:
        """Its element type and shape."""
        ...

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        """The tensors of files that it is made of."""
        ...

    def read_bits(self, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """The elements ``start <= i < stop`` of the flattened tensor, as ``STORAGE`` holds them."""
        ...


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as a file stores it, under the file's own name for it."""

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

    def read_bits(self, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """The elements ``start <= i < stop`` of the flattened tensor, as ``STORAGE`` holds them."""
        return self.file.read_bits(self.name, start, stop)

    def array(self) -> Shaped[np.ndarray, "..."]:
        """The whole tensor in its own element type, of NumPy or of ml_dtypes."""
        bits = np.ascontiguousarray(self.read_bits(0, self.entry.size))
        return numbers_of(bits, self.entry.dtype).reshape(self.entry.shape)

    def numbers(self) -> Float[np.ndarray, "..."]:
        """The whole tensor in float32.

        Raises:
            NonFiniteError: it holds NaN or infinite values.
        """
        values = self.array().astype(np.float32)
        require_finite(self.path, self.name, values)
        return values


@dataclass(frozen=True)
class DerivedTensor:
    """A tensor made of stored ones each time that it is read, and not kept.

    Attributes:
        entry: the type to which its elements are rounded, and its shape.
        stored: what it is made of; the first gives it its file.
        make: the elements in their order, in float32 or in the type to which they are rounded.
    """

    entry: TensorEntry
    stored: tuple[StoredTensor, ...]
    make: Callable[[], Shaped[np.ndarray, "..."]]

    def read_bits(self, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """The elements ``start <= i < stop`` of the flattened tensor, as ``STORAGE`` holds them. All are made."""
        values = self.make().reshape(-1)[start:stop]
        with np.errstate(over="ignore"):  # what becomes infinite is found by whoever reads it
            rounded: Any = values.astype(NARROW_FLOATS.get(self.entry.dtype, STORAGE[self.entry.dtype]), copy=False)
        return rounded.view(STORAGE[self.entry.dtype]) if self.entry.dtype in NARROW_FLOATS else rounded
