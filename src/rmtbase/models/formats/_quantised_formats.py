"""Formats of quantised matrices, each dequantised as in its own library, to the last bit.

    GPTQ                 s in half precision; groups of inputs, by ``g_idx``; version 1 stores z − 1
    AWQ                  the same in groups of consecutive inputs, eight outputs of a word in the order 0 2 4 6 1 3 5 7
    fp8                  codes e4m3; a scale for each block (such as 128 × 128) or for the matrix
    fbgemm fp8           codes e4m3; a scale for each output
    mxfp4                codes e2m1, two per byte; a power of two as scale for 32 inputs

References: Frantar et al. (2022), GPTQ, arXiv:2210.17323; Lin et al. (2023), AWQ, arXiv:2306.00978; DeepSeek-AI (2024),
DeepSeek-V3, arXiv:2412.19437; OCP Microscaling Formats (MX) 1.0; and the code of the libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from types import MappingProxyType

import numpy as np
from jaxtyping import Float32, UInt8

from rmtbase.errors import CheckpointError
from rmtbase.models.files._stored_tensor import DerivedTensor, StoredTensor
from rmtbase.models.formats._bitsandbytes import bitsandbytes
from rmtbase.models.formats._compressed_tensors import compressed_tensors
from rmtbase.models.formats._dequantise import (
    EXPONENTS,
    SCALES,
    Format,
    Parts,
    derived,
    factors,
    groups_of_inputs,
    matrix_shape,
    nibbles,
    number_of_groups,
    of_blocks,
    require,
    times,
    unpacked,
)
from rmtbase.models.formats._quantised_settings import Settings
from rmtbase.shown import quoted, shown

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # positions of the eight outputs in a word


def gptq(settings: Settings) -> Format:
    """Return the GPTQ format: ``qweight`` packs inputs, ``qzeros`` outputs; ``g_idx`` is the group of each input.

    The matrix has the type of the scales.
    """
    bits = settings.one_of("bits", (2, 3, 4, 8))
    group_size = settings.group_size("group_size")
    versions = ("gptq", "gptq_v2")
    version = settings.one_of("checkpoint_format", versions, settings.one_of("format", versions, "gptq"))
    settings.one_of("pack_dtype", ("int32",), "int32")
    settings.require_none("dynamic", "is_marlin_format")
    ordered = settings.one_of("desc_act", (True, False), False) and group_size != -1
    symmetric = settings.one_of("sym", (True, False), True)
    called, middle = f"GPTQ ({bits} bit)", 2 ** (bits - 1)
    stated = int(version == "gptq")

    def less_one(zero_points: UInt8[np.ndarray, "..."]) -> int:
        """Return 1 for version 1 and 0 for version 2: symmetric zero points, all in the middle, show it themselves."""
        first = int(zero_points.flat[0])
        alike = symmetric and bool((zero_points == first).all())
        return {middle - 1: 1, middle: 0}.get(first, stated) if alike else stated

    def look(parts: Parts) -> str:
        zero_points = unpacked(parts[".qzeros"].array(), bits, parts[".scales"].entry.shape[1])
        version_less_one = less_one(zero_points)
        if version_less_one != stated:
            read = f"version {2 - version_less_one}, though the settings say {version}"
            return f"zero points are all {zero_points.flat[0]}: {read}"
        certain = symmetric and (zero_points == middle - stated).all()
        return "" if certain else f"zero points are read as those of version {2 - stated}, which they do not show"

    def derive(parts: Parts) -> DerivedTensor:
        codes, zeros, scales = parts[".qweight"], parts[".qzeros"], parts[".scales"]
        words, outputs = matrix_shape(codes, ("I32",), called)
        inputs = words * 32 // bits
        size = inputs if group_size == -1 else group_size
        n_groups = ceil(inputs / size)
        require(zeros, (n_groups, ceil(outputs * bits / 32)), ("I32",), called)
        require(scales, (n_groups, outputs), SCALES, called)
        index = parts.get(".g_idx")
        if index is not None:
            require(index, (inputs,), ("I32", "I64"), called)
        elif ordered:
            raise settings.refused("desc_act", True, f"a g_idx beside {quoted(codes.name)}, the group of each input")

        def groups() -> np.ndarray:
            if index is None or not (ordered or index.array().any()):  # all zero: GPTQ-for-LLaMa, without an order
                return np.arange(inputs) // size
            return groups_of_inputs(index, scales, n_groups)

        def offsets() -> Float32[np.ndarray, "outputs group"]:
            zero_points = unpacked(zeros.array(), bits, outputs)
            more = less_one(zero_points)
            if more and (zero_points == 2**bits - 1).any():
                raise CheckpointError(
                    zeros.path,
                    f"tensor {quoted(zeros.name)} holds {2**bits - 1}, a zero point less one of {2**bits}, which some "
                    f"libraries read as 0; expected at most {2**bits - 2}, or checkpoint_format gptq_v2",
                )
            return np.ascontiguousarray(zero_points.T) + np.float32(more)

        def make(start: int, stop: int) -> Float32[np.ndarray, "outputs inputs"]:
            group = groups()
            values = unpacked(np.ascontiguousarray(codes.array()[:, start:stop].T), bits, inputs).astype(np.float32)
            values -= offsets()[start:stop].take(group, axis=1)
            return times(values, np.ascontiguousarray(factors(scales)[:, start:stop].T).take(group, axis=1), scales)

        return derived(scales.entry.dtype, (outputs, inputs), parts, make)

    return Format(called, ".qweight", ".weight", (".qweight", ".qzeros", ".scales"), derive, (".g_idx",), look)


def awq(settings: Settings) -> Format:
    """Return the AWQ format: ``qweight`` and ``qzeros`` pack outputs, in the order of version "gemm".

    The matrix has the type of the scales.
    """
    settings.one_of("bits", (4,), settings.get("w_bit"))
    group_size = settings.group_size("group_size", settings.get("q_group_size"))
    settings.one_of("version", ("gemm", "GEMM"), "gemm")
    settings.one_of("zero_point", (True,), True)
    called = "AWQ (4 bit)"

    def derive(parts: Parts) -> DerivedTensor:
        codes, zeros, scales = parts[".qweight"], parts[".qzeros"], parts[".scales"]
        inputs, words = matrix_shape(codes, ("I32",), called)
        outputs, n_groups = words * 8, number_of_groups(codes, inputs, group_size, called)
        require(zeros, (n_groups, words), ("I32",), called)
        require(scales, (n_groups, outputs), SCALES, called)

        def in_order(packed: StoredTensor, start: int, stop: int) -> UInt8[np.ndarray, "row outputs"]:
            found = unpacked(packed.array()[:, start // 8 : stop // 8], 4, stop - start)
            return found.reshape(len(found), -1, 8)[..., _AWQ_PLACES].reshape(-1, stop - start)

        def make(start: int, stop: int) -> Float32[np.ndarray, "outputs inputs"]:
            values = in_order(codes, start, stop).astype(np.float32).reshape(n_groups, -1, stop - start)
            values -= in_order(zeros, start, stop)[:, None]
            return times(values, factors(scales)[:, None, start:stop], scales).reshape(inputs, -1).T

        return derived(scales.entry.dtype, (outputs, inputs), parts, make, 8)

    return Format(called, ".qweight", ".weight", (".qweight", ".qzeros", ".scales"), derive)


def fp8(settings: Settings) -> Format:
    """Return the FP8 format: codes are multiplied by ``_scale_inv``.

    The matrix has the type of the scales, or bfloat16 where these are exponents.
    """
    block = settings.block("weight_block_size", (128, 128))
    settings.one_of("fmt", ("e4m3",), "e4m3")

    def derive(parts: Parts) -> DerivedTensor:
        codes, scales = parts[""], parts["_scale_inv"]
        shape = codes.entry.shape
        if len(shape) not in (2, 3):  # the experts of a layer may be in one tensor
            matrix_shape(codes, ("F8_E4M3",), "FP8")
        require(codes, shape, ("F8_E4M3",), "FP8")

        def values(start: int, stop: int) -> Float32[np.ndarray, "..."]:
            return codes.array(start, stop).astype(np.float32)

        return of_blocks(parts, shape, block, values, scales, called="FP8", types=(*SCALES, *EXPONENTS))

    return Format("FP8", "_scale_inv", "", ("", "_scale_inv"), derive)


def fbgemm_fp8(settings: Settings) -> Format:
    """Return the FP8 format of fbgemm, with a scale for each output; the matrix has the type of the scales."""
    called = "FP8 (fbgemm)"

    def derive(parts: Parts) -> DerivedTensor:
        codes, scales = parts[".weight"], parts[".weight_scale"]
        shape = matrix_shape(codes, ("F8_E4M3",), called)

        def values(start: int, stop: int) -> Float32[np.ndarray, "outputs inputs"]:
            return codes.array(start, stop).astype(np.float32)

        return of_blocks(parts, shape, (1, shape[1]), values, scales, called=called)

    return Format(called, ".weight_scale", ".weight", (".weight", ".weight_scale"), derive)


def mxfp4(settings: Settings) -> Format:
    """Return the MXFP4 format: (expert, output, group, 16 bytes) becomes (expert, input, output) in bfloat16."""

    def derive(parts: Parts) -> DerivedTensor:
        codes, scales = parts["_blocks"], parts["_scales"]
        if len(codes.entry.shape) != 4 or codes.entry.shape[3] != 16 or not codes.entry.size:
            expected = "(experts, outputs, groups, 16)"
            found = f"tensor {quoted(codes.name)} has shape {shown(codes.entry.shape)}"
            raise CheckpointError(codes.path, f"{found}; expected {expected} of a matrix quantised with MXFP4")
        experts, outputs, n_groups, _ = codes.entry.shape
        require(codes, codes.entry.shape, ("U8",), "MXFP4")
        require(scales, (experts, outputs, n_groups), EXPONENTS, "MXFP4")

        def make(start: int, stop: int) -> Float32[np.ndarray, "expert input output"]:
            values = nibbles(codes.array(start, stop), _E2M1, low_first=True)
            times(values, factors(scales, start, stop)[..., None], scales)
            return values.reshape(stop - start, outputs, -1).transpose(0, 2, 1)

        return derived("BF16", (experts, n_groups * 32, outputs), parts, make)

    return Format("MXFP4", "_blocks", "", ("_blocks", "_scales"), derive)


METHODS: Mapping[str, Callable[[Settings], Format]] = MappingProxyType(
    {
        "gptq": gptq,
        "awq": awq,
        "fp8": fp8,
        "fbgemm_fp8": fbgemm_fp8,
        "compressed-tensors": compressed_tensors,
        "mxfp4": mxfp4,
        "bitsandbytes": bitsandbytes,
    }
)
"""Format by the ``quant_method`` of a configuration."""
