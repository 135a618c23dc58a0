"""The formats of quantised matrices, each dequantised as its own library does it, to the last bit.

    GPTQ                 s in half precision; groups of inputs, by ``g_idx``; z is stored less one in version 1
    AWQ                  the same in groups of consecutive inputs, eight outputs of a word in the order 0 2 4 6 1 3 5 7
    fp8                  codes e4m3; a scale for a block of 128 × 128, say, or for the matrix
    fbgemm fp8           codes e4m3; a scale for each output
    compressed-tensors   codes e4m3, int8 or packed; a scale for the matrix, or an output, a group, a block
    mxfp4                codes e2m1, two to a byte; a power of two for 32 inputs

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
from rmtbase.models._bitsandbytes import bitsandbytes
from rmtbase.models._dequantise import (
    EXPONENTS,
    SCALES,
    Format,
    Parts,
    derived,
    factors,
    matrix_shape,
    nibbles,
    number_of_groups,
    of_blocks,
    require,
    times,
    unpacked,
)
from rmtbase.models._quantised_settings import Settings
from rmtbase.models._stored_tensor import DerivedTensor, StoredTensor
from rmtbase.shown import quoted, shown

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # of the eight outputs in a word
_PLAIN_CODES = {"float-quantized": ("F8_E4M3",), "int-quantized": ("I8",), "naive-quantized": ("F8_E4M3", "I8")}


def gptq(settings: Settings) -> Format:
    """``qweight`` packs inputs, ``qzeros`` outputs; ``g_idx`` is the group of each input. The type is the scales'."""
    bits = settings.one_of("bits", (2, 3, 4, 8))
    group_size = settings.group_size("group_size")
    versions = ("gptq", "gptq_v2")
    version = settings.one_of("checkpoint_format", versions, settings.one_of("format", versions, "gptq"))
    settings.one_of("pack_dtype", ("int32",), "int32")
    settings.require_none("dynamic", "is_marlin_format")
    less_one, called = np.float32(version == "gptq"), f"GPTQ ({bits} bit)"

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

        def groups() -> np.ndarray:
            if index is None:
                return np.arange(inputs) // size
            found = index.array()
            if found.min() < 0 or found.max() >= n_groups:
                raise CheckpointError(
                    index.path,
                    f"tensor {quoted(index.name)} holds groups from {found.min()} to {found.max()}; expected 0 to "
                    f"{n_groups - 1}, as {quoted(scales.name)} has them",
                )
            return found

        def offsets() -> Float32[np.ndarray, "outputs group"]:
            found = unpacked(zeros.array(), bits, outputs)
            if less_one and (found == 2**bits - 1).any():
                raise CheckpointError(
                    zeros.path,
                    f"tensor {quoted(zeros.name)} holds {2**bits - 1}, a zero point less one of {2**bits}, which some "
                    f"libraries read as 0; expected at most {2**bits - 2}, or checkpoint_format gptq_v2",
                )
            return found.T.astype(np.float32) + less_one

        def make() -> Float32[np.ndarray, "outputs inputs"]:
            group = groups()
            values = unpacked(codes.array().T, bits, inputs).astype(np.float32)
            values -= offsets()[:, group]
            return times(values, factors(scales).T[:, group], scales)

        return derived(scales.entry.dtype, (outputs, inputs), parts, make)

    return Format(called, ".qweight", ".weight", (".qweight", ".qzeros", ".scales"), derive, (".g_idx",))


def awq(settings: Settings) -> Format:
    """``qweight`` and ``qzeros`` pack outputs, in the order of version "gemm". The type is the scales'."""
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

        def in_order(packed: StoredTensor) -> UInt8[np.ndarray, "row outputs"]:
            found = unpacked(packed.array(), 4, outputs)
            return found.reshape(-1, words, 8)[..., _AWQ_PLACES].reshape(-1, outputs)

        def make() -> Float32[np.ndarray, "outputs inputs"]:
            values = in_order(codes).astype(np.float32).reshape(n_groups, -1, outputs)
            values -= in_order(zeros)[:, None]
            return times(values, factors(scales)[:, None], scales).reshape(inputs, outputs).T

        return derived(scales.entry.dtype, (outputs, inputs), parts, make)

    return Format(called, ".qweight", ".weight", (".qweight", ".qzeros", ".scales"), derive)


def fp8(settings: Settings) -> Format:
    """What ``_scale_inv`` holds multiplies. The type is that of the scales, bfloat16 where these are exponents."""
    block = settings.block("weight_block_size", (128, 128))
    settings.one_of("fmt", ("e4m3",), "e4m3")

    def derive(parts: Parts) -> DerivedTensor:
        codes, scales = parts[""], parts["_scale_inv"]
        shape = codes.entry.shape
        if len(shape) not in (2, 3):  # the experts of a layer may be in one
            matrix_shape(codes, ("F8_E4M3",), "FP8")
        require(codes, shape, ("F8_E4M3",), "FP8")
        return of_blocks(parts, shape, block, lambda: codes.array().astype(np.float32), scales, called="FP8")

    return Format("FP8", "_scale_inv", "", ("", "_scale_inv"), derive)


def fbgemm_fp8(settings: Settings) -> Format:
    """A scale for each output, which gives the type."""
    called = "FP8 (fbgemm)"

    def derive(parts: Parts) -> DerivedTensor:
        codes, scales = parts[".weight"], parts[".weight_scale"]
        shape = matrix_shape(codes, ("F8_E4M3",), called)
        return of_blocks(parts, shape, (1, shape[1]), lambda: codes.array().astype(np.float32), scales, called=called)

    return Format(called, ".weight_scale", ".weight", (".weight", ".weight_scale"), derive)


def compressed_tensors(settings: Settings) -> Format:
    """One scheme for all matrices that are quantised. The type is the scales'."""
    settings.require_none("sparsity_config", "transform_config")
    groups = settings.get("config_groups")
    each = [one for one in groups.values() if isinstance(one, Mapping)] if isinstance(groups, Mapping) else []
    schemes = [(one.get("weights"), one.get("format") or settings.get("format")) for one in each]
    if not schemes or not isinstance(schemes[0][0], Mapping) or any(one != schemes[0] for one in schemes):
        raise settings.refused("config_groups", groups, "groups of modules whose weights have one scheme")
    weights, stored = schemes[0]
    settings.one_value("format", stored, (*_PLAIN_CODES, "pack-quantized"))
    packs = stored == "pack-quantized"
    scheme = Settings(settings.path, f"{settings.key}: config_groups: weights", weights)
    bits = scheme.one_of("num_bits", (2, 4, 8) if packs else (8,))
    strategy = scheme.one_of("strategy", ("tensor", "channel", "group", "block"))
    symmetric = scheme.one_of("symmetric", (True, False), True)
    group_size = scheme.group_size("group_size") if strategy == "group" else -1
    block_structure = scheme.block("block_structure", None) if strategy == "block" else None
    if strategy == "block" and block_structure is None:
        raise scheme.refused("block_structure", None, "two positive integers")
    packs_zeros = packs and strategy in ("group", "channel")
    called, middle = f"compressed-tensors {stored} ({bits} bit)", np.float32(2 ** (bits - 1))
    codes_in = ".weight_packed" if packs else ".weight"

    def derive(parts: Parts) -> DerivedTensor:
        codes, scales, zeros = parts[codes_in], parts[".weight_scale"], parts.get(".weight_zero_point")
        rows, columns = matrix_shape(codes, ("I32",) if packs else _PLAIN_CODES[stored], called)
        shape = _packed_shape(codes, parts[".weight_shape"], rows, columns, bits, called) if packs else (rows, columns)
        inputs = shape[1]
        block = {"tensor": None, "channel": (1, inputs), "block": block_structure}.get(strategy)
        if strategy == "group":
            block = (1, inputs // number_of_groups(codes, inputs, group_size, called))
        grid = (1,) if block is None else (ceil(rows / block[0]), ceil(inputs / block[1]))
        if zeros is None and not symmetric:
            raise CheckpointError(
                codes.path,
                f"tensor {quoted(codes.name)} is quantised with {called} and not symmetric; expected its "
                "weight_zero_point beside it",
            )
        if zeros is not None:
            expected = (ceil(grid[0] * bits / 32), grid[1]) if packs_zeros else grid
            types = ("I32",) if packs_zeros else ("I8",) if codes.entry.dtype != "F8_E4M3" else ("F8_E4M3",)
            require(zeros, expected, types, called)

        def values() -> Float32[np.ndarray, "outputs inputs"]:
            if packs:
                return unpacked(codes.array(), bits, inputs).astype(np.float32) - middle
            return codes.array().astype(np.float32)

        def offsets() -> Float32[np.ndarray, "..."]:
            assert zeros is not None
            if packs_zeros:
                return unpacked(zeros.array().T, bits, grid[0]).T.astype(np.float32) - middle
            return zeros.array().astype(np.float32)

        return of_blocks(parts, shape, block, values, scales, None if zeros is None else offsets, called=called)

    needed = (codes_in, ".weight_scale", ".weight_shape") if packs else (codes_in, ".weight_scale")
    marker = codes_in if packs else ".weight_scale"
    return Format(called, marker, ".weight", needed, derive, (".weight_zero_point",))


def _packed_shape(
    codes: StoredTensor, sizes: StoredTensor, rows: int, words: int, bits: int, called: str
) -> tuple[int, int]:
    require(sizes, (2,), ("I64", "I32"), called)
    outputs, inputs = sizes.array().tolist()
    if outputs != rows or inputs < 1 or ceil(inputs * bits / 32) != words:
        raise CheckpointError(
            codes.path,
            f"tensor {quoted(sizes.name)} holds the shape {(outputs, inputs)} of codes of shape {(rows, words)}; "
            f"expected {rows} outputs, and inputs of {bits} bits that take {words} words of 32",
        )
    return outputs, inputs


def mxfp4(settings: Settings) -> Format:
    """(expert, output, group, 16 bytes) is (expert, input, output) in bfloat16."""

    def derive(parts: Parts) -> DerivedTensor:
        codes, scales = parts["_blocks"], parts["_scales"]
        if len(codes.entry.shape) != 4 or codes.entry.shape[3] != 16 or not codes.entry.size:
            expected = "(experts, outputs, groups, 16)"
            found = f"tensor {quoted(codes.name)} has shape {shown(codes.entry.shape)}"
            raise CheckpointError(codes.path, f"{found}; expected {expected} of what is quantised with MXFP4")
        experts, outputs, n_groups, _ = codes.entry.shape
        require(codes, codes.entry.shape, ("U8",), "MXFP4")
        require(scales, (experts, outputs, n_groups), EXPONENTS, "MXFP4")

        def make() -> Float32[np.ndarray, "expert input output"]:
            values = nibbles(codes.array(), _E2M1, low_first=True)
            times(values, factors(scales)[..., None], scales)
            return values.reshape(experts, outputs, -1).transpose(0, 2, 1)

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
