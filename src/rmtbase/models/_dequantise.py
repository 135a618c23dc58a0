"""From codes to numbers: the steps that the formats of quantised matrices share.

W = round((q − z) · s): codes q, zero points z, scales s. The product is formed in float32, and rounded to the type in
which a format's library gives the matrix (:class:`~rmtbase.models._stored_tensor.DerivedTensor`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
from jaxtyping import Float32, Shaped, UInt8

from rmtbase.errors import CheckpointError, ShapeError
from rmtbase.models._stored_tensor import DerivedTensor, StoredTensor
from rmtbase.models._tensor_file import NARROW_FLOATS, TensorEntry, require_finite
from rmtbase.shown import quoted, shown

SCALES = ("F32", "F16", "BF16")
"""The element types of scales that are numbers."""
EXPONENTS = ("U8", "F8_E8M0")
"""Those of scales that are powers of two: the exponent and 127."""

Parts = Mapping[str, StoredTensor]
"""The tensors that make one matrix, by the endings of their names."""


@dataclass(frozen=True)
class Format:
    """How a quantised matrix is stored: as what tensors, called what, and how they make it.

    The name of each begins alike, with the matrix's base, and has an ending of its own.

    Attributes:
        called: the format, for people: "GPTQ (4 bit)".
        marker: the ending by which a matrix is known.
        weight: the ending of the matrix's own name.
        needed: the endings of the tensors that it is made of, that of its codes first.
        optional: the endings of those that may be missing.
        derive: the matrix. Checks types and shapes, and reads no more than says what these are.
    """

    called: str
    marker: str
    weight: str
    needed: tuple[str, ...]
    derive: Callable[[Parts], DerivedTensor]
    optional: tuple[str, ...] = ()


def unpacked(words: Shaped[np.ndarray, "... word"], bits: int, count: int) -> UInt8[np.ndarray, "... count"]:
    """Codes of as many bits from words of 32, the lowest bits first; one may lie in two words."""
    words = words.view(np.uint32)
    in_period, period = (32 // bits, 1) if 32 % bits == 0 else (32, bits)
    lacking = -words.shape[-1] % period
    if lacking:
        words = np.concatenate([words, np.zeros((*words.shape[:-1], lacking), np.uint32)], axis=-1)
    codes = np.empty((*words.shape[:-1], words.shape[-1] // period * in_period), np.uint8)
    for place in range(in_period):
        word, begin = divmod(place * bits, 32)
        found = words[..., word::period] >> np.uint32(begin)
        if begin + bits > 32:
            found |= words[..., word + 1 :: period] << np.uint32(32 - begin)
        codes[..., place::in_period] = found & np.uint32(2**bits - 1)
    return codes[..., :count]


def nibbles(
    packed: UInt8[np.ndarray, "..."], table: tuple[float, ...], *, low_first: bool
) -> Float32[np.ndarray, "..."]:
    """Numbers of a table of sixteen, two to a byte, along the last axis."""
    numbers = np.array(table, np.float32)
    values = np.empty((*packed.shape, 2), np.float32)
    values[..., 0 if low_first else 1] = numbers[packed & 15]
    values[..., 1 if low_first else 0] = numbers[packed >> 4]
    return values.reshape(*packed.shape[:-1], -1)


def times(
    values: Float32[np.ndarray, "..."], scales: Float32[np.ndarray, "..."], of: StoredTensor
) -> Float32[np.ndarray, "..."]:
    """Multiply in place by scales, which spread over the values.

    Raises:
        CheckpointError: one is zero where the codes are not: what they stood for is lost.
    """
    if not scales.all() and ((scales == 0) & (values != 0)).any():
        raise CheckpointError(
            of.path,
            f"tensor {quoted(of.name)} holds scales that are zero where the codes are not; expected the scales that "
            "these were made with",
        )
    values *= scales
    return values


def factors(scales: StoredTensor, start: int = 0, stop: int | None = None) -> Float32[np.ndarray, "..."]:
    """Scales, or rows of them, as numbers: as they are, or two to the power of the exponents that they are.

    Raises:
        NonFiniteError: one is no finite number.
    """
    if scales.entry.dtype != "U8":
        return scales.numbers(start, stop)
    values = scales.array(start, stop).view(NARROW_FLOATS["F8_E8M0"]).astype(np.float32)
    require_finite(scales.path, scales.name, values)
    return values


def of_blocks(
    parts: Parts,
    shape: tuple[int, ...],
    block: tuple[int, int] | None,
    codes: Callable[[int, int], Float32[np.ndarray, "..."]],
    scales: StoredTensor,
    zeros: Callable[[int, int], Float32[np.ndarray, "..."]] | None = None,
    *,
    called: str,
    types: tuple[str, ...] = SCALES,
) -> DerivedTensor:
    """A matrix, or several, in blocks of (outputs, inputs) with a scale each; in one block where that is None.

    Blocks at the edges may be smaller. Scales that are numbers give the matrix their type, exponents bfloat16.
    ``codes`` gives rows of the codes, ``zeros`` those of the zero points, of which there are as many as scales.

    Raises:
        ShapeError: there are not as many scales as blocks.
        CheckpointError: their type is none of ``types``.
    """
    inputs = shape[-1]
    if block is None:
        expected = scales.entry.shape if scales.entry.size == 1 else (1,)
    else:
        expected = (*shape[:-2], ceil(shape[-2] / block[0]), ceil(inputs / block[1]))
    require(scales, expected, types, called)
    together = 1 if block is None or len(shape) > 2 else block[0]

    def make(start: int, stop: int) -> Float32[np.ndarray, "..."]:
        values = codes(start, stop)
        if block is None:
            offset = np.float32(0) if zeros is None else zeros(0, 1).reshape(())
            values -= offset
            return times(values, factors(scales).reshape(()), scales)
        height, width = block
        rows = start // together, ceil(stop / together)
        each, offsets = factors(scales, *rows), None if zeros is None else zeros(*rows)
        if height == 1 and inputs % width == 0:
            grouped = values.reshape(*values.shape[:-1], -1, width)
            if offsets is not None:
                grouped -= offsets[..., None]
            times(grouped, each[..., None], scales)
            return values
        for row in range(each.shape[-2]):
            of_row = values[..., row * height : (row + 1) * height, :]
            if offsets is not None:
                of_row -= np.repeat(offsets[..., row : row + 1, :], width, axis=-1)[..., :inputs]
            times(of_row, np.repeat(each[..., row : row + 1, :], width, axis=-1)[..., :inputs], scales)
        return values

    return derived(scales.entry.dtype if scales.entry.dtype in SCALES else "BF16", shape, parts, make, together)


def derived(
    dtype: str,
    shape: tuple[int, ...],
    parts: Parts,
    make: Callable[[int, int], Float32[np.ndarray, "..."]],
    rows_together: int = 1,
) -> DerivedTensor:
    """The matrix, or the stack of them, that is made of these tensors."""
    return DerivedTensor(TensorEntry(dtype, shape), tuple(parts.values()), make, rows_together)


def matrix_shape(codes: StoredTensor, dtypes: tuple[str, ...], called: str) -> tuple[int, int]:
    """The two sizes of a tensor of codes.

    Raises:
        CheckpointError: it has not two, or none, or is of a type that is not one of these.
    """
    shape = codes.entry.shape
    if len(shape) != 2 or not all(shape):
        raise CheckpointError(
            codes.path, f"tensor {quoted(codes.name)} has shape {shown(shape)}; expected a matrix of codes of {called}"
        )
    require(codes, shape, dtypes, called)
    return shape[0], shape[1]


def number_of_groups(codes: StoredTensor, inputs: int, group_size: int, called: str) -> int:
    """How many groups of inputs there are, each of one size; −1 is that of all.

    Raises:
        CheckpointError: the last one would be smaller.
    """
    if group_size == -1:
        return 1
    if inputs % group_size:
        raise CheckpointError(
            codes.path,
            f"tensor {quoted(codes.name)} has {inputs} inputs; expected a multiple of the {group_size} that share a "
            f"scale of {called}",
        )
    return inputs // group_size


def require(tensor: StoredTensor, shape: tuple[int, ...], dtypes: tuple[str, ...], called: str) -> None:
    """Raise unless a tensor that is part of a quantised matrix has this shape and one of these types.

    Raises:
        ShapeError: it has another shape.
        CheckpointError: it has another type.
    """
    if tensor.entry.shape != shape:
        raise ShapeError(tensor.path, tensor.name, tensor.entry.shape, shape, f"quantised with {called}")
    if tensor.entry.dtype not in dtypes:
        raise CheckpointError(
            tensor.path,
            f"tensor {quoted(tensor.name)} has element type {shown(tensor.entry.dtype)}; expected "
            f"{' or '.join(dtypes)}, as it is quantised with {called}",
        )
