"""Formats of quantised matrices, each dequantised as in its own library, to the last bit.

    GPTQ                 s in half precision; groups of inputs, by ``g_idx``; version 1 stores z − 1
    AWQ                  the same in groups of consecutive inputs, eight outputs of a word in the order 0 2 4 6 1 3 5 7
    fp8                  codes e4m3; a scale for each block (such as 128 × 128) or for the matrix
    fbgemm fp8           codes e4m3; a scale for each output
    mxfp4                codes e2m1, two per byte; a power of two as scale for 32 inputs
    compressed-tensors   codes e4m3 or int8, or packed codes of 2, 4 or 8 bits with half their range added; a scale, and
                         unless the codes are symmetric a zero point, for the matrix, for each output, for each group of
                         inputs (of those of ``weight_g_idx`` in act-order) or for each block

References: Frantar et al. (2022), GPTQ, arXiv:2210.17323; Lin et al. (2023), AWQ, arXiv:2306.00978; DeepSeek-AI (2024),
DeepSeek-V3, arXiv:2412.19437; OCP Microscaling Formats (MX) 1.0; and the code of the libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, gcd, lcm, prod
from types import MappingProxyType

import numpy as np
from jaxtyping import Float32, UInt8

from rmtbase.errors import CheckpointError
from rmtbase.models.files._files import parse_json_object
from rmtbase.models.files._tensor_file import STORAGE, DerivedTensor, StoredTensor
from rmtbase.models.formats import _dequantise as dequantise
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


def bitsandbytes(settings: dequantise.Settings) -> dequantise.Format:
    words = {f"{start}load_in_{width}bit": width for width in (4, 8) for start in ("", "_")}
    bits = {width for word, width in words.items() if settings.one_of(word, (True, False), False)}
    if len(bits) != 1:
        raise settings.refused("load_in_4bit", settings.get("load_in_4bit"), "one of load_in_4bit and load_in_8bit")
    if bits == {4}:
        return _four_bit()
    # int8: steps of 1/127 of the largest magnitude of each output, ``SCB``, in float32
    called = "bitsandbytes (8 bit)"

    def derive(parts: dequantise.Parts) -> DerivedTensor:
        codes, largest, layout = parts[".weight"], parts[".SCB"], parts.get(".weight_format")
        outputs, inputs = dequantise.matrix_shape(codes, ("I8",), called)
        dequantise.require(largest, (outputs,), ("F32",), called)
        if layout is not None and (layout.entry.dtype != "U8" or layout.entry.size != 1 or layout.array().any()):
            raise CheckpointError(layout.path, f"tensor {quoted(layout.name)} is not 0; expected codes row by row")

        def make(start: int, stop: int) -> Float32[np.ndarray, "outputs inputs"]:
            values = codes.array(start, stop).astype(np.float32)
            dequantise.times(values, dequantise.factors(largest, start, stop)[:, None], largest)
            values *= _INT8_STEP
            return values

        return dequantise.derived("F32", (outputs, inputs), parts, make)

    return dequantise.Format(called, ".SCB", ".weight", (".weight", ".SCB"), derive, (".weight_format",))


def _four_bit() -> dequantise.Format:
    """Return the 4-bit format. The scales of blocks may be quantised too; ``quant_state`` names the matrix's type."""
    called = "bitsandbytes (4 bit)"
    states = {kind: f".quant_state.bitsandbytes__{kind}" for kind in _TABLES}

    def derive(parts: dequantise.Parts) -> DerivedTensor:
        codes, largest, own_table = parts[""], parts[".absmax"], parts[".quant_map"]
        kinds = [kind for kind in states if states[kind] in parts]
        if len(kinds) != 1:
            problem = f"tensor {quoted(codes.name)} has {len(kinds)} descriptions quant_state beside it"
            raise CheckpointError(codes.path, f"{problem}; expected one")
        state = _state(parts[states[kinds[0]]])
        table = _TABLES[state.one_of("quant_type", (kinds[0],))]
        shape, block = tuple(state.sizes("shape")), state.positive("blocksize")
        size, width, n_blocks = prod(shape), prod(shape[1:]), ceil(prod(shape) / block)
        dtype = _RESULTS[state.one_of("dtype", tuple(_RESULTS))]
        item_size = STORAGE[codes.entry.dtype].itemsize if codes.entry.dtype in STORAGE else 0
        n_bytes, in_item = codes.entry.size * item_size, 2 * item_size
        if n_bytes != ceil(size / 2):
            described = f"tensor {quoted(codes.name)} holds {n_bytes} bytes; expected {ceil(size / 2)}"
            more = f"of two codes each, for the shape {shown(shape)} of a matrix quantised with {called}"
            raise CheckpointError(codes.path, f"{described}, {more}")
        dequantise.require(own_table, (16,), ("F32",), called)
        nested, nested_table = parts.get(".nested_absmax"), parts.get(".nested_quant_map")
        dequantise.require(largest, (n_blocks,), ("F32",) if nested is None else ("U8",), called)
        scales = partial(dequantise.factors, largest)
        if nested is not None:
            scales = _nested(state, largest, nested, nested_table, called)

        def make(start: int, stop: int) -> Float32[np.ndarray, "..."]:
            if not np.allclose(dequantise.factors(own_table), table, rtol=0, atol=1e-6):
                problem = f"tensor {quoted(own_table.name)} is not the table of {kinds[0]}; expected that"
                raise CheckpointError(own_table.path, problem)
            begin, end = start * width, stop * width
            packed = np.ascontiguousarray(codes.read_bits(begin // in_item, ceil(end / in_item))).view(np.uint8)
            values = dequantise.nibbles(packed, table, low_first=False)[: end - begin]
            n_whole, block_scales = (end - begin) // block, scales(begin // block, ceil(end / block))
            dequantise.times(values[: n_whole * block].reshape(n_whole, block), block_scales[:n_whole, None], largest)
            dequantise.times(values[n_whole * block :], block_scales[n_whole:], largest)
            return values

        together = lcm(block, in_item)
        return dequantise.derived(dtype, shape, parts, make, together // gcd(together, width))

    optional = (".nested_absmax", ".nested_quant_map", *states.values())
    return dequantise.Format(called, ".absmax", "", ("", ".absmax", ".quant_map"), derive, optional)


def _nested(
    state: dequantise.Settings, largest: StoredTensor, nested: StoredTensor, table: StoredTensor | None, called: str
) -> Callable[[int, int], Float32[np.ndarray, " block"]]:
    """Return a function that dequantises the scales of blocks: codes into a table of 256, with scales of their own."""
    block, offset = state.positive("nested_blocksize"), np.float32(state.number("nested_offset"))
    if table is None:
        problem = f"tensor {quoted(nested.name)} is incomplete; expected its nested_quant_map beside it"
        raise CheckpointError(nested.path, problem)
    n_blocks = largest.entry.shape[0]
    dequantise.require(nested, (ceil(n_blocks / block),), ("F32",), called)
    dequantise.require(table, (256,), ("F32",), called)

    def scales(start: int, stop: int) -> Float32[np.ndarray, " block"]:
        of_blocks = dequantise.factors(nested)[np.arange(start, stop) // block]
        return dequantise.factors(table)[largest.array(start, stop)] * of_blocks + offset

    return scales


def _state(stored: StoredTensor) -> dequantise.Settings:
    if stored.entry.dtype != "U8" or not 0 < stored.entry.size <= _LONGEST_STATE:
        problem = f"tensor {quoted(stored.name)} of {stored.entry.size} {shown(stored.entry.dtype)}"
        raise CheckpointError(stored.path, f"{problem}; expected a description of at most {_LONGEST_STATE} bytes")
    noun = f"a description {quoted(stored.name)}"
    text = parse_json_object(stored.path, stored.array().tobytes(), noun, "one of bitsandbytes")
    return dequantise.Settings(stored.path, stored.name, text)


_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # positions of the eight outputs in a word


def gptq(settings: dequantise.Settings) -> dequantise.Format:
    """Return the GPTQ format: ``qweight`` packs inputs, ``qzeros`` outputs; ``g_idx`` is the group of each input."""
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
        is_uniform = symmetric and bool((zero_points == first).all())
        return {middle - 1: 1, middle: 0}.get(first, stated) if is_uniform else stated

    def look(parts: dequantise.Parts) -> str:
        zero_points = dequantise.unpacked(parts[".qzeros"].array(), bits, parts[".scales"].entry.shape[1])
        version_less_one = less_one(zero_points)
        if version_less_one != stated:
            read = f"version {2 - version_less_one}, though the settings say {version}"
            return f"zero points are all {zero_points.flat[0]}: {read}"
        certain = symmetric and (zero_points == middle - stated).all()
        return "" if certain else f"zero points are read as those of version {2 - stated}, which they do not show"

    def derive(parts: dequantise.Parts) -> DerivedTensor:
        codes, zeros, scales = parts[".qweight"], parts[".qzeros"], parts[".scales"]
        words, outputs = dequantise.matrix_shape(codes, ("I32",), called)
        inputs = words * 32 // bits
        size = inputs if group_size == -1 else group_size
        n_groups = ceil(inputs / size)
        dequantise.require(zeros, (n_groups, ceil(outputs * bits / 32)), ("I32",), called)
        dequantise.require(scales, (n_groups, outputs), dequantise.SCALES, called)
        index = parts.get(".g_idx")
        if index is not None:
            dequantise.require(index, (inputs,), ("I32", "I64"), called)
        elif ordered:
            raise settings.refused("desc_act", True, f"a g_idx beside {quoted(codes.name)}, the group of each input")

        def groups() -> np.ndarray:
            if index is None or not (ordered or index.array().any()):  # all zero: GPTQ-for-LLaMa, without an order
                return np.arange(inputs) // size
            return dequantise.groups_of_inputs(index, scales, n_groups)

        def offsets() -> Float32[np.ndarray, "outputs group"]:
            zero_points = dequantise.unpacked(zeros.array(), bits, outputs)
            offset = less_one(zero_points)
            if offset and (zero_points == 2**bits - 1).any():
                problem = f"tensor {quoted(zeros.name)} holds {2**bits - 1}, a zero point less one of {2**bits}"
                more = f"which some libraries read as 0; expected at most {2**bits - 2}, or checkpoint_format gptq_v2"
                raise CheckpointError(zeros.path, f"{problem}, {more}")
            return np.ascontiguousarray(zero_points.T) + np.float32(offset)

        def make(start: int, stop: int) -> Float32[np.ndarray, "outputs inputs"]:
            group = groups()
            words = np.ascontiguousarray(codes.array()[:, start:stop].T)
            values = dequantise.unpacked(words, bits, inputs).astype(np.float32)
            values -= offsets()[start:stop].take(group, axis=1)
            of_groups = np.ascontiguousarray(dequantise.factors(scales)[:, start:stop].T)
            return dequantise.times(values, of_groups.take(group, axis=1), scales)

        return dequantise.derived(scales.entry.dtype, (outputs, inputs), parts, make)

    return dequantise.Format(
        called, ".qweight", ".weight", (".qweight", ".qzeros", ".scales"), derive, (".g_idx",), look
    )


def awq(settings: dequantise.Settings) -> dequantise.Format:
    """Return the AWQ format: ``qweight`` and ``qzeros`` pack outputs, in the order of version "gemm"."""
    settings.one_of("bits", (4,), settings.get("w_bit"))
    group_size = settings.group_size("group_size", settings.get("q_group_size"))
    settings.one_of("version", ("gemm", "GEMM"), "gemm")
    settings.one_of("zero_point", (True,), True)
    called = "AWQ (4 bit)"

    def derive(parts: dequantise.Parts) -> DerivedTensor:
        codes, zeros, scales = parts[".qweight"], parts[".qzeros"], parts[".scales"]
        inputs, words = dequantise.matrix_shape(codes, ("I32",), called)
        outputs, n_groups = words * 8, dequantise.number_of_groups(codes, inputs, group_size, called)
        dequantise.require(zeros, (n_groups, words), ("I32",), called)
        dequantise.require(scales, (n_groups, outputs), dequantise.SCALES, called)

        def in_order(packed: StoredTensor, start: int, stop: int) -> UInt8[np.ndarray, "row outputs"]:
            codes = dequantise.unpacked(packed.array()[:, start // 8 : stop // 8], 4, stop - start)
            return codes.reshape(len(codes), -1, 8)[..., _AWQ_PLACES].reshape(-1, stop - start)

        def make(start: int, stop: int) -> Float32[np.ndarray, "outputs inputs"]:
            values = in_order(codes, start, stop).astype(np.float32).reshape(n_groups, -1, stop - start)
            values -= in_order(zeros, start, stop)[:, None]
            of_groups = dequantise.factors(scales)[:, None, start:stop]
            return dequantise.times(values, of_groups, scales).reshape(inputs, -1).T

        return dequantise.derived(scales.entry.dtype, (outputs, inputs), parts, make, 8)

    return dequantise.Format(called, ".qweight", ".weight", (".qweight", ".qzeros", ".scales"), derive)


def _plain(codes: StoredTensor) -> Callable[[int, int], Float32[np.ndarray, "..."]]:
    return lambda start, stop: codes.array(start, stop).astype(np.float32)


def fp8(settings: dequantise.Settings) -> dequantise.Format:
    """Return the FP8 format: codes are multiplied by ``_scale_inv``."""
    block = settings.block("weight_block_size", (128, 128))
    settings.one_of("fmt", ("e4m3",), "e4m3")

    def derive(parts: dequantise.Parts) -> DerivedTensor:
        codes, scales = parts[""], parts["_scale_inv"]
        shape = codes.entry.shape
        if len(shape) not in (2, 3):  # the experts of a layer may be in one tensor
            dequantise.matrix_shape(codes, ("F8_E4M3",), "FP8")
        dequantise.require(codes, shape, ("F8_E4M3",), "FP8")

        types = (*dequantise.SCALES, *dequantise.EXPONENTS)
        return dequantise.of_blocks(parts, shape, block, dequantise.Coded(_plain(codes), scales), "FP8", types)

    return dequantise.Format("FP8", "_scale_inv", "", ("", "_scale_inv"), derive)


def fbgemm_fp8(settings: dequantise.Settings) -> dequantise.Format:
    """Return the FP8 format of fbgemm, with a scale for each output; the matrix has the type of the scales."""
    called = "FP8 (fbgemm)"

    def derive(parts: dequantise.Parts) -> DerivedTensor:
        codes, scales = parts[".weight"], parts[".weight_scale"]
        shape = dequantise.matrix_shape(codes, ("F8_E4M3",), called)

        return dequantise.of_blocks(parts, shape, (1, shape[1]), dequantise.Coded(_plain(codes), scales), called)

    return dequantise.Format(called, ".weight_scale", ".weight", (".weight", ".weight_scale"), derive)


def mxfp4(settings: dequantise.Settings) -> dequantise.Format:
    """Return the MXFP4 format: (expert, output, group, 16 bytes) becomes (expert, input, output) in bfloat16."""

    def derive(parts: dequantise.Parts) -> DerivedTensor:
        codes, scales = parts["_blocks"], parts["_scales"]
        if len(codes.entry.shape) != 4 or codes.entry.shape[3] != 16 or not codes.entry.size:
            expected = "(experts, outputs, groups, 16)"
            described = f"tensor {quoted(codes.name)} has shape {shown(codes.entry.shape)}"
            raise CheckpointError(codes.path, f"{described}; expected {expected} of a matrix quantised with MXFP4")
        experts, outputs, n_groups, _ = codes.entry.shape
        dequantise.require(codes, codes.entry.shape, ("U8",), "MXFP4")
        dequantise.require(scales, (experts, outputs, n_groups), dequantise.EXPONENTS, "MXFP4")

        def make(start: int, stop: int) -> Float32[np.ndarray, "expert input output"]:
            values = dequantise.nibbles(codes.array(start, stop), _E2M1, low_first=True)
            dequantise.times(values, dequantise.factors(scales, start, stop)[..., None], scales)
            return values.reshape(stop - start, outputs, -1).transpose(0, 2, 1)

        return dequantise.derived("BF16", (experts, n_groups * 32, outputs), parts, make)

    return dequantise.Format("MXFP4", "_blocks", "", ("_blocks", "_scales"), derive)


_PLAIN = {"float-quantized": ("F8_E4M3",), "int-quantized": ("I8",), "naive-quantized": ("F8_E4M3", "I8")}
_PACKED = "pack-quantized"
_BY_GROUP = (True, "group", "dynamic")  # values of actorder with which groups are of inputs in another order


def compressed_tensors(settings: dequantise.Settings) -> dequantise.Format:
    scheme, optional = _Scheme.of(settings), (".weight_zero_point", ".weight_g_idx")
    needed = (".weight_packed", ".weight_scale", ".weight_shape") if scheme.packs else (".weight", ".weight_scale")
    return dequantise.Format(
        scheme.called, needed[0 if scheme.packs else 1], ".weight", needed, scheme.derive, optional
    )


@dataclass(frozen=True)
class _Scheme:
    stored: str  # the format
    bits: int  # bits of a code
    strategy: str  # what shares a scale: "tensor", "channel", "group" or "block"
    symmetric: bool  # whether there are no zero points
    group_size: int  # inputs in a group
    ordered: bool  # whether groups are of inputs in the order of their activations
    block: tuple[int, int] | None  # (outputs, inputs) of a block

    @classmethod
    def of(cls, settings: dequantise.Settings) -> _Scheme:
        settings.require_none("transform_config")
        sparsity = settings.get("sparsity_config", {})
        if not isinstance(sparsity, Mapping) or sparsity.get("format") not in (None, "dense"):
            raise settings.refused("sparsity_config", sparsity, "none, or one of the format dense")
        groups = settings.get("config_groups")
        group_settings = groups.values() if isinstance(groups, Mapping) else ()
        group_settings = [group for group in group_settings if isinstance(group, Mapping)]
        schemes = [(group.get("weights"), group.get("format") or settings.get("format")) for group in group_settings]
        weights, stored = schemes[0] if schemes else (None, None)
        if not isinstance(weights, Mapping) or any(scheme != schemes[0] for scheme in schemes):
            raise settings.refused("config_groups", groups, "groups of modules whose weights have one scheme")
        stored = settings.one_value("format", stored, (*_PLAIN, _PACKED))
        words = dequantise.Settings(settings.path, f"{settings.key}: config_groups: weights", weights)
        strategy = words.one_of("strategy", ("tensor", "channel", "group", "block"))
        block = words.block("block_structure", None) if strategy == "block" else None
        if strategy == "block" and block is None:
            raise words.refused("block_structure", None, "two positive integers")
        return cls(
            stored,
            words.one_of("num_bits", (2, 4, 8) if stored == _PACKED else (8,)),
            strategy,
            words.one_of("symmetric", (True, False), True),
            words.group_size("group_size") if strategy == "group" else -1,
            words.one_of("actorder", (True, False, "group", "dynamic", "weight", "static"), False) in _BY_GROUP,
            block,
        )

    @property
    def called(self) -> str:
        return f"compressed-tensors {self.stored} ({self.bits} bit)"

    @property
    def packs(self) -> bool:
        return self.stored == _PACKED

    def derive(self, parts: dequantise.Parts) -> DerivedTensor:
        codes, zeros = parts[".weight_packed" if self.packs else ".weight"], parts.get(".weight_zero_point")
        shape = dequantise.matrix_shape(codes, ("I32",) if self.packs else _PLAIN[self.stored], self.called)
        if self.packs:
            (rows, words), sizes = shape, parts[".weight_shape"]
            dequantise.require(sizes, (2,), ("I64", "I32"), self.called)
            shape = outputs, inputs = tuple(sizes.array().tolist())
            if outputs != rows or inputs < 1 or ceil(inputs * self.bits / 32) != words:
                raise CheckpointError(
                    codes.path,
                    f"tensor {quoted(sizes.name)} holds the shape {shape} of codes of shape {(rows, words)}; "
                    f"expected {rows} outputs, and inputs of {self.bits} bits that take {words} words of 32",
                )
        block = (1, shape[1]) if self.strategy == "channel" else self.block  # (outputs, inputs) that share a scale
        if self.strategy == "group":
            block = 1, shape[1] // dequantise.number_of_groups(codes, shape[1], self.group_size, self.called)
        if zeros is None and not self.symmetric:
            problem = f"tensor {quoted(codes.name)} is quantised with {self.called} and not symmetric"
            raise CheckpointError(codes.path, f"{problem}; expected its weight_zero_point beside it")
        offsets = None if zeros is None else self._offsets(codes, zeros, shape, block)
        values, scales = partial(self._values, codes, shape[1]), parts[".weight_scale"]
        groups = self._groups(codes, parts.get(".weight_g_idx"), scales, shape[1])
        return dequantise.of_blocks(parts, shape, block, dequantise.Coded(values, scales, offsets, groups), self.called)

    def _groups(
        self, codes: StoredTensor, index: StoredTensor | None, scales: StoredTensor, inputs: int
    ) -> Callable[[], np.ndarray | None] | None:
        """Return a function that reads the group of each input, or None where groups are of consecutive inputs."""
        if index is None and not self.ordered:
            return None
        if index is None or self.strategy != "group":
            lacking = "scales of groups of inputs" if index else "weight_g_idx beside it, the group of each input"
            problem = f"tensor {quoted((index or codes).name)} is quantised with {self.called} in act-order (actorder)"
            raise CheckpointError(codes.path, f"{problem}; expected {lacking}")
        dequantise.require(index, (inputs,), ("I32", "I64"), self.called)
        n_groups = dequantise.number_of_groups(codes, inputs, self.group_size, self.called)

        def groups() -> np.ndarray | None:  # the library leaves −1 where there is no order
            return None if (index.array() == -1).any() else dequantise.groups_of_inputs(index, scales, n_groups)

        return groups

    def _values(self, codes: StoredTensor, inputs: int, start: int, stop: int) -> Float32[np.ndarray, "outputs inputs"]:
        rows = codes.array(start, stop)
        if not self.packs:
            return rows.astype(np.float32)
        return dequantise.unpacked(rows, self.bits, inputs).astype(np.float32) - np.float32(2 ** (self.bits - 1))

    def _offsets(
        self, codes: StoredTensor, zeros: StoredTensor, shape: tuple[int, int], block: tuple[int, int] | None
    ) -> Callable[[int, int], Float32[np.ndarray, "..."]]:
        if block is None or not self.packs or self.strategy == "block":
            grid = (1,) if block is None else (ceil(shape[0] / block[0]), ceil(shape[1] / block[1]))
            dequantise.require(zeros, grid, (codes.entry.dtype if not self.packs else "I8",), self.called)
            return lambda start, stop: zeros.array(start, stop).astype(np.float32)
        dequantise.require(zeros, (ceil(shape[0] * self.bits / 32), shape[1] // block[1]), ("I32",), self.called)
        middle, in_word = np.float32(2 ** (self.bits - 1)), 32 // self.bits

        def offsets(start: int, stop: int) -> Float32[np.ndarray, "outputs group"]:
            first = start // in_word
            rows = dequantise.unpacked(zeros.array(first, ceil(stop / in_word)).T, self.bits, stop - first * in_word).T
            return rows[start - first * in_word :].astype(np.float32) - middle

        return offsets


METHODS: Mapping[str, Callable[[dequantise.Settings], dequantise.Format]] = MappingProxyType(
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
