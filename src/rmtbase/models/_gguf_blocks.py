"""The blocks of GGUF files as numbers: ggml's quantisations, in the float32 arithmetic of its reference code.

A block of n weights is a few bytes: codes q, a scale d in half precision, and for some a least value m. W = d·q, or
d·q + m; in blocks of 256, each part of 16 or 32 has a scale of its own, of four to eight bits, in steps of d.

    Q4_0 Q5_0 Q8_0 IQ4_NL      d·(q − 8), d·(q − 16), d·q, d·table(q)        n = 32
    Q4_1 Q5_1                  d·q + m                                       n = 32
    Q2_K Q4_K Q5_K             (d·s)·q − (d_min·t), s and t of each part     n = 256
    Q3_K Q6_K IQ4_XS           (d·s)·(q − 4), (d·s)·(q − 32), (d·s)·table(q) n = 256
    MXFP4                      2^(e − 127)·e2m1(q)                           n = 32

Reference: ggml, ``ggml-quants.c`` and ``ggml-common.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8

Blocks = UInt8[np.ndarray, "block byte"]
Numbers = Float32[np.ndarray, "block weight"]

_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
_E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


class BlockType(NamedTuple):
    """How a type of GGUF stores weights.

    Attributes:
        name: ggml's.
        weights: in a block.
        size: of a block, in bytes.
        numbers: those of blocks; None of a type that is not read.
    """

    name: str
    weights: int
    size: int
    numbers: Callable[[Blocks], Numbers] | None


def _half(blocks: Blocks, begin: int) -> Float32[np.ndarray, "block 1"]:
    return np.ascontiguousarray(blocks[:, begin : begin + 2]).view("<f2").astype(np.float32)


def _fields(packed: UInt8[np.ndarray, "block byte"], bits: int, run: int) -> UInt8[np.ndarray, "block code"]:
    """Codes of as many bits: of each run of bytes the lowest bits of all, then the next."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    codes = (packed.reshape(len(packed), -1, 1, run) >> shifts) & np.uint8(2**bits - 1)
    return codes.reshape(len(packed), -1)


def _q4_0(blocks: Blocks) -> Numbers:
    return _half(blocks, 0) * (_fields(blocks[:, 2:], 4, 16).astype(np.float32) - 8)


def _q4_1(blocks: Blocks) -> Numbers:
    return _half(blocks, 0) * _fields(blocks[:, 4:], 4, 16).astype(np.float32) + _half(blocks, 2)


def _with_fifth_bit(low: UInt8[np.ndarray, "block 16"], high: UInt8[np.ndarray, "block 4"]) -> Numbers:
    fifth = np.unpackbits(high, axis=1, bitorder="little")
    return (_fields(low, 4, 16) | (fifth << np.uint8(4))).astype(np.float32)


def _q5_0(blocks: Blocks) -> Numbers:
    return _half(blocks, 0) * (_with_fifth_bit(blocks[:, 6:], blocks[:, 2:6]) - 16)


def _q5_1(blocks: Blocks) -> Numbers:
    return _half(blocks, 0) * _with_fifth_bit(blocks[:, 8:], blocks[:, 4:8]) + _half(blocks, 2)


def _q8_0(blocks: Blocks) -> Numbers:
    return _half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


def _parts(values: Numbers, n_parts: int) -> Float32[np.ndarray, "block part weight"]:
    return values.reshape(len(values), n_parts, -1)


def _q2_k(blocks: Blocks) -> Numbers:
    steps, codes = blocks[:, :16], _fields(blocks[:, 16:80], 2, 32).astype(np.float32)
    scale, least = _half(blocks, 80) * (steps & 15), _half(blocks, 82) * (steps >> 4)
    return (scale[..., None] * _parts(codes, 16) - least[..., None]).reshape(len(blocks), 256)


def _q3_k(blocks: Blocks) -> Numbers:
    low, high = _fields(blocks[:, 32:96], 2, 32), _fields(blocks[:, :32], 1, 32)
    codes = low.astype(np.float32) - np.float32(4) * (high == 0)
    steps = _fields(blocks[:, 96:104], 4, 8) | (_fields(blocks[:, 104:108], 2, 4) << np.uint8(4))
    scale = _half(blocks, 108) * (steps.astype(np.float32) - 32)
    return (scale[..., None] * _parts(codes, 16)).reshape(len(blocks), 256)


def _six_bits(packed: UInt8[np.ndarray, "block 12"]) -> tuple[np.ndarray, np.ndarray]:
    """Eight scales and eight least values of six bits each: the last four of both have their high bits elsewhere."""
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (rest & 15) | ((first >> 6) << np.uint8(4))], axis=1)
    least = np.concatenate([second & 63, (rest >> 4) | ((second >> 6) << np.uint8(4))], axis=1)
    return scales.astype(np.float32), least.astype(np.float32)


def _of_eight(blocks: Blocks, codes: UInt8[np.ndarray, "block code"]) -> Numbers:
    scales, least = _six_bits(blocks[:, 4:16])
    scale, offset = _half(blocks, 0) * scales, _half(blocks, 2) * least
    return (scale[..., None] * _parts(codes.astype(np.float32), 8) - offset[..., None]).reshape(len(blocks), 256)


def _q4_k(blocks: Blocks) -> Numbers:
    return _of_eight(blocks, _fields(blocks[:, 16:], 4, 32))


def _q5_k(blocks: Blocks) -> Numbers:
    return _of_eight(blocks, _fields(blocks[:, 48:], 4, 32) | (_fields(blocks[:, 16:48], 1, 32) << np.uint8(4)))


def _q6_k(blocks: Blocks) -> Numbers:
    codes = _fields(blocks[:, :128], 4, 64) | (_fields(blocks[:, 128:192], 2, 32) << np.uint8(4))
    scale = _half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    return (scale[..., None] * _parts(codes.astype(np.float32) - 32, 16)).reshape(len(blocks), 256)


def _iq4_nl(blocks: Blocks) -> Numbers:
    return _half(blocks, 0) * _IQ4[_fields(blocks[:, 2:], 4, 16)]


def _iq4_xs(blocks: Blocks) -> Numbers:
    high = np.ascontiguousarray(blocks[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16)
    steps = _fields(blocks[:, 4:8], 4, 1) | ((high & 3).astype(np.uint8) << np.uint8(4))
    scale = _half(blocks, 0) * (steps.astype(np.float32) - 32)
    return (scale[..., None] * _parts(_IQ4[_fields(blocks[:, 8:], 4, 16)], 8)).reshape(len(blocks), 256)


def _mxfp4(blocks: Blocks) -> Numbers:
    half_scale = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    return half_scale.astype(np.float32) * _E2M1_DOUBLED[_fields(blocks[:, 1:], 4, 16)]


PLAIN: Mapping[int, str] = MappingProxyType({0: "F32", 1: "F16", 28: "F64", 30: "BF16"})
"""The types of GGUF that store numbers as they are, by their safetensors names."""

BLOCKS: Mapping[int, BlockType] = MappingProxyType(
    {
        2: BlockType("Q4_0", 32, 18, _q4_0),
        3: BlockType("Q4_1", 32, 20, _q4_1),
        6: BlockType("Q5_0", 32, 22, _q5_0),
        7: BlockType("Q5_1", 32, 24, _q5_1),
        8: BlockType("Q8_0", 32, 34, _q8_0),
        9: BlockType("Q8_1", 32, 40, None),
        10: BlockType("Q2_K", 256, 84, _q2_k),
        11: BlockType("Q3_K", 256, 110, _q3_k),
        12: BlockType("Q4_K", 256, 144, _q4_k),
        13: BlockType("Q5_K", 256, 176, _q5_k),
        14: BlockType("Q6_K", 256, 210, _q6_k),
        15: BlockType("Q8_K", 256, 292, None),
        16: BlockType("IQ2_XXS", 256, 66, None),
        17: BlockType("IQ2_XS", 256, 74, None),
        18: BlockType("IQ3_XXS", 256, 98, None),
        19: BlockType("IQ1_S", 256, 50, None),
        20: BlockType("IQ4_NL", 32, 18, _iq4_nl),
        21: BlockType("IQ3_S", 256, 110, None),
        22: BlockType("IQ2_S", 256, 82, None),
        23: BlockType("IQ4_XS", 256, 136, _iq4_xs),
        24: BlockType("I8", 1, 1, None),
        25: BlockType("I16", 1, 2, None),
        26: BlockType("I32", 1, 4, None),
        27: BlockType("I64", 1, 8, None),
        29: BlockType("IQ1_M", 256, 56, None),
        34: BlockType("TQ1_0", 256, 54, None),
        35: BlockType("TQ2_0", 256, 66, None),
        39: BlockType("MXFP4", 32, 17, _mxfp4),
        40: BlockType("NVFP4", 64, 36, None),
        41: BlockType("Q1_0", 128, 18, None),
    }
)
"""The other types by ggml's number."""
