"""Interface of all files of tensors, and conversion of their bits to numbers.

Formats differ only in how the bits are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import CheckpointError, NonFiniteError
from rmtbase.shown import quoted, shown

_WEIGHTS = ("F64", "F32", "F16", "BF16")
NARROW_FLOATS: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {
        "BF16": np.dtype(ml_dtypes.bfloat16),
        "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
        "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
        "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    }
)
"""Number types that NumPy lacks, by their safetensors names."""
STORAGE: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
    | dict.fromkeys(("U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), np.dtype("u1"))
    | {"I8": np.dtype("i1"), "I16": np.dtype("<i2"), "I32": np.dtype("<i4"), "I64": np.dtype("<i8")}
)
"""NumPy type for the bits of each element type that is read. The first four types are weights; the others are codes of
quantised weights, with their scales. The bits of bfloat16 and of the float8 types, which NumPy lacks, are integers."""
_TORCH_NAMES = (
    {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "uint8": "U8", "bool": "BOOL"}
    | {"int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64"}
    | {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"}
)

_FINEST = {"F64": 2.0**-149, "F32": 2.0**-149, "BF16": 2.0**-133, "F16": 2.0**-24}  # float64 is rounded to float32
DIGITS: Mapping[str, int] = MappingProxyType({"BF16": 8, "F16": 11})
"""Binary digits of the types that have fewer digits than float32."""

_FEW = 4096  # values that are checked first: in most tensors one of them is large enough
_STEPS = 64  # weights below this many steps of the grid have lost their digits
_STEPS_OF_SIGMA = 15  # the same for the standard deviation of Gaussian weights


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Description of a tensor in a file."""

    dtype: str  # the element type under its safetensors name ("F32", "BF16", ...), supported or not
    shape: tuple[int, ...]  # the stored shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)


class TensorFile(Protocol):
    """File of named tensors."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def entries(self) -> Mapping[str, TensorEntry]:
        """The tensors by name."""
        ...

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """Read the elements ``start <= i < stop`` of the flattened tensor, in the types of ``STORAGE``."""
        ...


def element_type(name: str) -> str:
    """Return the safetensors name of an element type of torch, NumPy or JAX, or the name itself if there is none."""
    return _TORCH_NAMES.get(name, name)


def is_float(entry: TensorEntry) -> bool:
    """Return True for the element types of weights; others are codes of quantised weights."""
    return entry.dtype in _WEIGHTS


def require_supported(path: Path, name: str, entry: TensorEntry) -> None:
    """Raise CheckpointError unless the tensor has elements, and their type is that of weights."""
    if not is_float(entry):
        raise CheckpointError(
            path,
            f"tensor {quoted(name)} has element type {shown(entry.dtype)}; expected one of {', '.join(_WEIGHTS)} "
            "(quantised weights are not the trained weights: pass the checkpoint they were made from)",
        )
    if entry.size == 0:
        raise CheckpointError(
            path, f"tensor {quoted(name)} has shape {shown(entry.shape)}, no elements; expected weights"
        )


def numbers_of(bits: Shaped[np.ndarray, " size"], dtype: str) -> Shaped[np.ndarray, " size"]:
    """View bits as numbers of their own element type, of NumPy or else of ml_dtypes."""
    return bits.view(NARROW_FLOATS.get(dtype, bits.dtype))


def widened(numbers: Shaped[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Convert half precision and narrower types to float32, which is exact, and leave other types unchanged."""
    return numbers.astype(np.float32) if numbers.dtype.itemsize < 4 else numbers


def largest_magnitude(numbers: Shaped[np.ndarray, "..."]) -> float:
    """Return ``max |w|``, or NaN or infinity if any. Apart from the sign, IEEE numbers order like their bits."""
    size = numbers.dtype.itemsize
    sign = 1 << (8 * size - 1)
    positive = int(numbers.view(f"i{size}").max(initial=0))
    negative = int(numbers.view(f"u{size}").max(initial=0)) & (sign - 1)
    return float(np.array(max(positive, negative), f"u{size}").view(numbers.dtype))


def require_digits(path: Path, name: str, values: Shaped[np.ndarray, "..."], dtype: str) -> None:
    """Raise CheckpointError if the tensor is not zero, but all its values are within a few steps of the finest grid.

    Near zero the numbers of a type lie on an equidistant grid. Weights as small as its steps are rounded to few values,
    many of them to zero, and their spectrum is that of the rounding. A few such values among larger ones do no harm.
    """
    enough = _STEPS * _FINEST[dtype]
    if largest_magnitude(values.reshape(-1)[:_FEW]) >= enough:
        return
    largest = largest_magnitude(values)
    if 0 < largest < enough:
        grid = "float32" if dtype == "F64" else dtype
        raise CheckpointError(
            path,
            f"tensor {quoted(name)} has no value over {largest:.2g}, where {grid} has steps of {_FINEST[dtype]:.2g}: "
            "its digits are lost; expected weights stored at another scale or in a wider type",
        )


def least_sigma(dtype: str) -> float:
    """Return the standard deviation below which weights of a stored type are only a few steps of its finest grid."""
    return _STEPS_OF_SIGMA * _FINEST[dtype]


def require_finite(path: Path, name: str, values: Shaped[np.ndarray, "..."]) -> None:
    """Raise NonFiniteError unless every value is finite."""
    if not np.isfinite(largest_magnitude(values)):
        with np.errstate(invalid="ignore"):  # ml_dtypes warns of some NaN
            raise NonFiniteError(path, name, int(np.isnan(values).sum()), int(np.isinf(values).sum()))
