"""The two formats of bitsandbytes: int8 with a scale for each output, and 4-bit codes with a scale for each block.

A scale is the largest magnitude of its output or block.

References: Dettmers et al. (2022), LLM.int8(), arXiv:2208.07339; (2023), QLoRA, arXiv:2305.14314; and the code of the
library, whose results are reproduced to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil, gcd, lcm, prod

import numpy as np
from jaxtyping import Float32

from rmtbase.errors import CheckpointError
from rmtbase.models.files._files import parse_json_object
from rmtbase.models.files._stored_tensor import DerivedTensor, StoredTensor
from rmtbase.models.files._tensor_file import STORAGE
from rmtbase.models.formats._dequantise import Format, Parts, derived, factors, matrix_shape, nibbles, require, times
from rmtbase.models.formats._quantised_settings import Settings
from rmtbase.shown import quoted, shown

_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
_FP4 = tuple(sign * size / 12 for sign in (1, -1) for size in (0, 0.0625, 8, 12, 4, 6, 2, 3))
_TABLES = {"nf4": _NF4, "fp4": _FP4}
_RESULTS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_INT8_STEP = np.float32(7.874015718698502e-3)  # 1/127 as bitsandbytes writes it
_LONGEST_STATE = 1 << 16  # bytes of bitsandbytes' description of one matrix


def bitsandbytes(settings: Settings) -> Format:
    """Choose between int8 and 4-bit codes according to the configuration."""
    bits = {
        width
        for width in (4, 8)
        for word in (f"load_in_{width}bit", f"_load_in_{width}bit")
        if settings.one_of(word, (True, False), False)
    }
    if len(bits) != 1:
        raise settings.refused("load_in_4bit", settings.get("load_in_4bit"), "one of load_in_4bit and load_in_8bit")
    return _int8() if bits == {8} else _four_bit()


def _int8() -> Format:
    """Return the int8 format: steps of 1/127 of the largest magnitude of each output, ``SCB``, in float32."""
    called = "bitsandbytes (8 bit)"

    def derive(parts: Parts) -> DerivedTensor:
        codes, largest, layout = parts[".weight"], parts[".SCB"], parts.get(".weight_format")
        outputs, inputs = matrix_shape(codes, ("I8",), called)
        require(largest, (outputs,), ("F32",), called)
        if layout is not None and (layout.entry.dtype != "U8" or layout.entry.size != 1 or layout.array().any()):
            raise CheckpointError(layout.path, f"tensor {quoted(layout.name)} is not 0; expected codes row by row")

        def make(start: int, stop: int) -> Float32[np.ndarray, "outputs inputs"]:
            values = codes.array(start, stop).astype(np.float32)
            times(values, factors(largest, start, stop)[:, None], largest)
            values *= _INT8_STEP
            return values

        return derived("F32", (outputs, inputs), parts, make)

    return Format(called, ".SCB", ".weight", (".weight", ".SCB"), derive, (".weight_format",))


def _four_bit() -> Format:
    """Return the 4-bit format. The scales of blocks may be quantised too; ``quant_state`` names the matrix's type."""
    called = "bitsandbytes (4 bit)"
    states = {kind: f".quant_state.bitsandbytes__{kind}" for kind in _TABLES}

    def derive(parts: Parts) -> DerivedTensor:
        codes, largest, own_table = parts[""], parts[".absmax"], parts[".quant_map"]
        held = [kind for kind in states if states[kind] in parts]
        if len(held) != 1:
            raise CheckpointError(
                codes.path,
                f"tensor {quoted(codes.name)} has {len(held)} descriptions quant_state beside it; expected one",
            )
        state = _state(parts[states[held[0]]])
        table = _TABLES[state.one_of("quant_type", (held[0],))]
        shape, block = tuple(state.sizes("shape")), state.positive("blocksize")
        size, width, n_blocks = prod(shape), prod(shape[1:]), ceil(prod(shape) / block)
        dtype = _RESULTS[state.one_of("dtype", tuple(_RESULTS))]
        item_size = STORAGE[codes.entry.dtype].itemsize if codes.entry.dtype in STORAGE else 0
        n_bytes, in_item = codes.entry.size * item_size, 2 * item_size
        if n_bytes != ceil(size / 2):
            raise CheckpointError(
                codes.path,
                f"tensor {quoted(codes.name)} holds {n_bytes} bytes; expected {ceil(size / 2)}, of two codes each, for "
                f"the shape {shown(shape)} of a matrix quantised with {called}",
            )
        require(own_table, (16,), ("F32",), called)
        nested, nested_table = parts.get(".nested_absmax"), parts.get(".nested_quant_map")
        require(largest, (n_blocks,), ("F32",) if nested is None else ("U8",), called)
        scales = partial(factors, largest)
        if nested is not None:
            scales = _nested(state, largest, nested, nested_table, called)

        def make(start: int, stop: int) -> Float32[np.ndarray, "..."]:
            if not np.allclose(factors(own_table), table, rtol=0, atol=1e-6):
                raise CheckpointError(
                    own_table.path, f"tensor {quoted(own_table.name)} is not the table of {held[0]}; expected that"
                )
            begin, end = start * width, stop * width
            packed = np.ascontiguousarray(codes.read_bits(begin // in_item, ceil(end / in_item))).view(np.uint8)
            values = nibbles(packed, table, low_first=False)[: end - begin]
            whole, each = (end - begin) // block, scales(begin // block, ceil(end / block))
            times(values[: whole * block].reshape(whole, block), each[:whole, None], largest)
            times(values[whole * block :], each[whole:], largest)
            return values

        together = lcm(block, in_item)
        return derived(dtype, shape, parts, make, together // gcd(together, width))

    optional = (".nested_absmax", ".nested_quant_map", *states.values())
    return Format(called, ".absmax", "", ("", ".absmax", ".quant_map"), derive, optional)


def _nested(
    state: Settings, largest: StoredTensor, nested: StoredTensor, table: StoredTensor | None, called: str
) -> Callable[[int, int], Float32[np.ndarray, " block"]]:
    """Return a function that dequantises the scales of blocks: codes into a table of 256, with scales of their own."""
    block, offset = state.positive("nested_blocksize"), np.float32(state.number("nested_offset"))
    if table is None:
        raise CheckpointError(
            nested.path, f"tensor {quoted(nested.name)} is incomplete; expected its nested_quant_map beside it"
        )
    n_blocks = largest.entry.shape[0]
    require(nested, (ceil(n_blocks / block),), ("F32",), called)
    require(table, (256,), ("F32",), called)

    def scales(start: int, stop: int) -> Float32[np.ndarray, " block"]:
        of_blocks = factors(nested)[np.arange(start, stop) // block]
        return factors(table)[largest.array(start, stop)] * of_blocks + offset

    return scales


def _state(stored: StoredTensor) -> Settings:
    """Read bitsandbytes' description of one matrix, which is JSON in a tensor of bytes."""
    if stored.entry.dtype != "U8" or not 0 < stored.entry.size <= _LONGEST_STATE:
        raise CheckpointError(
            stored.path,
            f"tensor {quoted(stored.name)} of {stored.entry.size} {shown(stored.entry.dtype)}; expected a description "
            f"of at most {_LONGEST_STATE} bytes",
        )
    what = f"a description {quoted(stored.name)}"
    text = parse_json_object(stored.path, stored.array().tobytes(), what, "one of bitsandbytes")
    return Settings(stored.path, stored.name, text)
