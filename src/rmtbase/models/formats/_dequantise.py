"""Conversion of codes to numbers: the steps that the formats of quantised matrices share.

W = round((q − z) · s), with codes q, zero points z, scales s. The product is computed in float32, and rounded to the
type in which the format's library returns the matrix (:class:`~rmtbase.models.files._tensor_file.DerivedTensor`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Integer, Shaped, UInt8

from rmtbase.errors import CheckpointError, ShapeError
from rmtbase.models.files._tensor_file import NARROW_FLOATS, DerivedTensor, StoredTensor, TensorEntry, require_finite
from rmtbase.shown import quoted, shown

_LARGEST = 2**48  # sizes are smaller


@dataclass(frozen=True)
class Settings:
    path: Path  # the file that holds them
    key: str  # the name under which they are in the file
    words: Mapping[str, Any]  # the settings by key

    def get(self, word: str, default: Any = None) -> Any:
        value = self.words.get(word)
        return default if value is None else value

    def refused(self, word: str, found: Any, expected: str) -> CheckpointError:
        return CheckpointError(self.path, f"{self.key}: {word} = {quoted(found)}; expected {expected}")

    def one_of(self, word: str, allowed: tuple[Any, ...], default: Any = None) -> Any:
        return self.one_value(word, self.get(word, default), allowed)

    def one_value(self, word: str, value: Any, allowed: tuple[Any, ...]) -> Any:
        for choice in allowed:
            is_of_type = isinstance(value, type(choice)) and isinstance(value, bool) == isinstance(choice, bool)
            if is_of_type and value == choice:
                return choice
        raise self.refused(word, value, " or ".join(map(repr, allowed)))

    def require_none(self, *words: str) -> None:
        """Raise CheckpointError if one of these keys is set, because they change how the weights are stored."""
        for word in words:
            if self.get(word):
                raise self.refused(word, self.get(word), "none: weights that are stored in this way are not supported")

    def positive(self, word: str) -> int:
        return self._checked(word, self.get(word), _is_size(self.get(word)), "a positive integer")

    def sizes(self, word: str) -> list[int]:
        value = self.get(word)
        is_valid = isinstance(value, list) and 0 < len(value) <= 4 and all(map(_is_size, value))
        return self._checked(word, value, is_valid, "a list of one to four positive integers")

    def number(self, word: str) -> float:
        value = self.get(word)
        is_valid = type(value) in (int, float) and abs(value) < float("inf")
        return float(self._checked(word, value, is_valid, "a finite number"))

    def group_size(self, word: str, default: Any = None) -> int:
        """Return how many inputs share a scale; −1 means all."""
        value = self.get(word, default)
        is_valid = _is_size(value) or (type(value) is int and value == -1)
        return self._checked(word, value, is_valid, "a positive number of inputs that share a scale, or -1 for all")

    def _checked(self, word: str, value: Any, is_valid: bool, expected: str) -> Any:
        if not is_valid:
            raise self.refused(word, value, expected)
        return value

    def block(self, word: str, default: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the (outputs, inputs) that share a scale, or None if the setting is null, so that all share one."""
        value = self.words.get(word, default)
        is_valid = value is None or (isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_is_size, value)))
        self._checked(word, value, is_valid, "two positive integers, or null for one scale of a whole matrix")
        return None if value is None else (value[0], value[1])


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value < _LARGEST


SCALES = ("F32", "F16", "BF16")  # element types of scales that are numbers
EXPONENTS = ("U8", "F8_E8M0")  # those of powers of two, stored as the exponent plus 127
Parts = Mapping[str, StoredTensor]  # tensors that make up one matrix, by the endings of their names


@dataclass(frozen=True)
class Format:
    """Names of the tensors of a quantised matrix, by the endings after its base name, and the computation from them."""

    called: str  # name of the format in messages: "GPTQ (4 bit)"
    marker: str  # the ending by which a matrix is recognised
    weight: str  # the ending of the matrix's own name
    needed: tuple[str, ...]  # the endings of the tensors that it is made of, that of its codes first
    # function that makes the matrix. It checks types and shapes, and reads only what describes them.
    derive: Callable[[Parts], DerivedTensor]
    optional: tuple[str, ...] = ()  # the endings of tensors that may be missing
    # function that looks at the values of one matrix, and returns what is to be noted of all
    look: Callable[[Parts], str] = lambda _: ""


def unpacked(words: Shaped[np.ndarray, "... word"], bits: int, count: int) -> UInt8[np.ndarray, "... count"]:
    """Unpack codes of ``bits`` bits from words of 32 bits, lowest bits first; a code may span two words."""
    words = words.view(np.uint32)
    in_period, period = (32 // bits, 1) if 32 % bits == 0 else (32, bits)
    lacking = -words.shape[-1] % period
    if lacking:
        words = np.concatenate([words, np.zeros((*words.shape[:-1], lacking), np.uint32)], axis=-1)
    codes = np.empty((*words.shape[:-1], words.shape[-1] // period * in_period), np.uint8)
    for place in range(in_period):
        word, begin = divmod(place * bits, 32)
        bits_found = words[..., word::period] >> np.uint32(begin)
        if begin + bits > 32:
            bits_found |= words[..., word + 1 :: period] << np.uint32(32 - begin)
        codes[..., place::in_period] = bits_found & np.uint32(2**bits - 1)
    return codes[..., :count]


def nibbles(
    packed: UInt8[np.ndarray, "..."], table: tuple[float, ...], *, low_first: bool
) -> Float32[np.ndarray, "..."]:
    """Look up 4-bit codes, two per byte along the last axis, in a table of sixteen numbers."""
    numbers = np.array(table, np.float32)
    values = np.empty((*packed.shape, 2), np.float32)
    values[..., 0 if low_first else 1] = numbers[packed & 15]
    values[..., 1 if low_first else 0] = numbers[packed >> 4]
    return values.reshape(*packed.shape[:-1], -1)


def times(
    values: Float32[np.ndarray, "..."], scales: Float32[np.ndarray, "..."], tensor: StoredTensor
) -> Float32[np.ndarray, "..."]:
    if not scales.all() and ((scales == 0) & (values != 0)).any():
        problem = f"tensor {quoted(tensor.name)} holds scales that are zero where the codes are not"
        raise CheckpointError(tensor.path, f"{problem}; expected the scales that these were made with")
    values *= scales
    return values


def factors(scales: StoredTensor, start: int = 0, stop: int | None = None) -> Float32[np.ndarray, "..."]:
    """Read scales, or rows of them, as numbers; exponents become powers of two."""
    if scales.entry.dtype != "U8":
        return scales.numbers(start, stop)
    values = scales.array(start, stop).view(NARROW_FLOATS["F8_E8M0"]).astype(np.float32)
    require_finite(scales.path, scales.name, values)
    return values


@dataclass(frozen=True)
class Coded:
    codes: Callable[[int, int], Float32[np.ndarray, "..."]]  # reads rows of codes
    scales: StoredTensor
    zeros: Callable[[int, int], Float32[np.ndarray, "..."]] | None = None  # reads rows of as many zero points as scales
    # reads the block of each input, where blocks of a row are not of consecutive inputs
    groups: Callable[[], Integer[np.ndarray, " inputs"] | None] | None = None


def of_blocks(
    parts: Parts,
    shape: tuple[int, ...],
    block: tuple[int, int] | None,
    coded: Coded,
    called: str,
    types: tuple[str, ...] = SCALES,
) -> DerivedTensor:
    """Derive a matrix or a stack whose blocks of (outputs, inputs) have a scale each; if None, all share one."""
    scales, zeros = coded.scales, coded.zeros
    inputs = shape[-1]
    if block is None:
        expected = scales.entry.shape if scales.entry.size == 1 else (1,)
    else:
        expected = (*shape[:-2], ceil(shape[-2] / block[0]), ceil(inputs / block[1]))
    require(scales, expected, types, called)
    together = 1 if block is None or len(shape) > 2 else block[0]

    def make(start: int, stop: int) -> Float32[np.ndarray, "..."]:
        values = coded.codes(start, stop)
        if block is None:
            values -= np.float32(0) if zeros is None else zeros(0, 1).reshape(())
            return times(values, factors(scales).reshape(()), scales)
        height, width = block
        rows = start // together, ceil(stop / together)
        row_scales, offsets = factors(scales, *rows), None if zeros is None else zeros(*rows)
        order = None if coded.groups is None else coded.groups()
        if order is not None:
            values -= 0 if offsets is None else offsets[:, order]
            return times(values, row_scales[:, order], scales)
        if height == 1 and inputs % width == 0:
            grouped = values.reshape(*values.shape[:-1], -1, width)
            if offsets is not None:
                grouped -= offsets[..., None]
            times(grouped, row_scales[..., None], scales)
            return values
        for row in range(row_scales.shape[-2]):
            of_row = values[..., row * height : (row + 1) * height, :]
            if offsets is not None:
                of_row -= np.repeat(offsets[..., row : row + 1, :], width, axis=-1)[..., :inputs]
            times(of_row, np.repeat(row_scales[..., row : row + 1, :], width, axis=-1)[..., :inputs], scales)
        return values

    return derived(scales.entry.dtype if scales.entry.dtype in SCALES else "BF16", shape, parts, make, together)


def derived(
    dtype: str,
    shape: tuple[int, ...],
    parts: Parts,
    make: Callable[[int, int], Float32[np.ndarray, "..."]],
    rows_together: int = 1,
) -> DerivedTensor:
    return DerivedTensor(TensorEntry(dtype, shape), tuple(parts.values()), make, rows_together)


def matrix_shape(codes: StoredTensor, dtypes: tuple[str, ...], called: str) -> tuple[int, int]:
    shape = codes.entry.shape
    if len(shape) != 2 or not all(shape):
        problem = f"tensor {quoted(codes.name)} has shape {shown(shape)}; expected a matrix of codes of {called}"
        raise CheckpointError(codes.path, problem)
    require(codes, shape, dtypes, called)
    return shape[0], shape[1]


def number_of_groups(codes: StoredTensor, inputs: int, group_size: int, called: str) -> int:
    if group_size == -1:
        return 1
    if inputs % group_size:
        problem = f"tensor {quoted(codes.name)} has {inputs} inputs"
        expected = f"a multiple of the {group_size} that share a scale of {called}"
        raise CheckpointError(codes.path, f"{problem}; expected {expected}")
    return inputs // group_size


def groups_of_inputs(index: StoredTensor, scales: StoredTensor, n_groups: int) -> Integer[np.ndarray, " inputs"]:
    """Read the group of each input, and require that each group of the scales occurs and no other."""
    groups = index.array()
    if not np.array_equal(np.unique(groups), np.arange(n_groups)):
        problem = f"tensor {quoted(index.name)} holds groups from {groups.min()} to {groups.max()}"
        expected = f"0 to {n_groups - 1}, all of them, as {quoted(scales.name)} has them"
        raise CheckpointError(index.path, f"{problem}; expected {expected}")
    return groups


def require(tensor: StoredTensor, shape: tuple[int, ...], dtypes: tuple[str, ...], called: str) -> None:
    if tensor.entry.shape != shape:
        raise ShapeError(tensor.path, tensor.name, tensor.entry.shape, shape, f"quantised with {called}")
    if tensor.entry.dtype not in dtypes:
        problem = f"tensor {quoted(tensor.name)} has element type {shown(tensor.entry.dtype)}"
        expected = f"{' or '.join(dtypes)}, as it is quantised with {called}"
        raise CheckpointError(tensor.path, f"{problem}; expected {expected}")
