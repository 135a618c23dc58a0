"""Interface of all files of tensors, which differ in how bits are found, and conversion of bits to numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import ml_dtypes
import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import CheckpointError, NonFiniteError, ParameterError
from rmtbase.parameters import require_real_array
from rmtbase.shown import quoted, shown

WEIGHTS = ("F64", "F32", "F16", "BF16")
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
    dtype: str  # the element type under its safetensors name ("F32", "BF16", ...), supported or not
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)


class TensorFile(Protocol):
    @property
    def path(self) -> Path: ...

    @property
    def entries(self) -> Mapping[str, TensorEntry]: ...

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """Read the elements ``start <= i < stop`` of the flattened tensor, in the types of ``STORAGE``."""
        ...


def entry_of(tensor: Any) -> TensorEntry:
    name = str(tensor.dtype).removeprefix("torch.")
    return TensorEntry(_TORCH_NAMES.get(name, name), tuple(tensor.shape))


def require_supported(path: Path, name: str, entry: TensorEntry) -> None:
    if entry.dtype not in WEIGHTS:
        raise CheckpointError(
            path,
            f"tensor {quoted(name)} has element type {shown(entry.dtype)}; expected one of {', '.join(WEIGHTS)} "
            "(quantised weights are not the trained weights: pass the checkpoint they were made from)",
        )
    if entry.size == 0:
        problem = f"tensor {quoted(name)} has shape {shown(entry.shape)}, no elements; expected weights"
        raise CheckpointError(path, problem)


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
    """Raise CheckpointError if the tensor is not zero, but all its values are within a few steps of the finest grid."""
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
    if not np.isfinite(largest_magnitude(values)):
        with np.errstate(invalid="ignore"):  # ml_dtypes warns of some NaN
            raise NonFiniteError(path, name, int(np.isnan(values).sum()), int(np.isinf(values).sum()))


@dataclass(frozen=True)
class StoredTensor:
    file: TensorFile
    name: str
    is_made_whole: ClassVar[bool] = False

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def entry(self) -> TensorEntry:
        return self.file.entries[self.name]

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        return (self,)

    def read_bits(self, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
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
        values = self.array(start, stop).astype(np.float32)
        require_finite(self.path, self.name, values)
        return values


@dataclass(frozen=True)
class DerivedTensor:
    """Tensor computed from stored tensors each time that it is read. The rows of a stack are its matrices."""

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
        rows = self.entry.shape[0]
        step, width = self.rows_together or rows, self.entry.size // rows
        first, last = start // (step * width) * step, min(ceil(stop / (step * width)) * step, rows)
        values = self.make(first, last).reshape(-1)[start - first * width : stop - first * width]
        with np.errstate(over="ignore"):  # the reader checks for infinite values
            rounded: Any = values.astype(NARROW_FLOATS.get(self.entry.dtype, STORAGE[self.entry.dtype]), copy=False)
        return rounded.view(STORAGE[self.entry.dtype]) if self.entry.dtype in NARROW_FLOATS else rounded


CheckpointTensor = StoredTensor | DerivedTensor
"""Tensor of a checkpoint."""


@dataclass(frozen=True)
class StateDict:
    """Named tensors of torch, NumPy or JAX, on any device; not copied, so that later changes affect what is read."""

    path: Path  # name in messages, not a file
    entries: Mapping[str, TensorEntry]  # the tensors by name
    _tensors: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_tensors(cls, tensors: Mapping[Any, Any], name: str) -> StateDict:
        expected = "a state dict: names of tensors, and the tensors"
        kept_tensors = {}
        for key, value in tensors.items():
            if not isinstance(key, str):
                raise ParameterError("model", f"a mapping with a key of type {type(key).__name__}", expected)
            if getattr(value, "is_nested", False) is True:
                described = f"a mapping with a nested tensor under {quoted(key)}, which has no one shape"
                raise ParameterError("model", described, f"{expected}; take it apart with unbind, or leave it out")
            if hasattr(value, "shape") and hasattr(value, "dtype"):
                kept_tensors[key] = value
            elif value is not None and not isinstance(value, (bool, int, float, str, bytes)):
                described = f"a mapping with a {type(value).__name__} under {quoted(key)}"
                advice = "pass the inner one where it is in a larger mapping"
                raise ParameterError("model", described, f"{expected}; {advice}")
        entries = {key: entry_of(value) for key, value in kept_tensors.items()}
        return cls(Path(name), MappingProxyType(entries), MappingProxyType(kept_tensors))

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        try:
            elements = self._tensors[name].reshape(-1)[start:stop]
            torch = sys.modules.get("torch")
            if torch is not None and isinstance(elements, torch.Tensor) and elements.dtype.itemsize == 1:
                elements = elements.view(torch.uint8)  # NumPy has no 8-bit floats
            elements = require_real_array(name, elements)
        except (ParameterError, RuntimeError, TypeError) as error:
            described = f"tensor {quoted(name)} is a {type(self._tensors[name]).__name__} that cannot be read"
            raise CheckpointError(self.path, f"{described} ({error}); expected a dense tensor with values") from error
        return elements.view(STORAGE[self.entries[name].dtype])


def weights_in_effect(module: Any) -> dict[str, Any]:
    """Return the state dict of a module of torch, with the results of ``torch.nn.utils.parametrize``."""
    tensors = dict(module.state_dict())
    for path, submodule in module.named_modules():
        if getattr(submodule, "parametrizations", None) is None:
            continue
        stem = f"{path}." if path else ""
        for name in submodule.parametrizations:
            tensors[f"{stem}{name}"] = getattr(submodule, name).detach()
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{stem}parametrizations.")}
    return tensors
