"""The formats of compressed-tensors, which vLLM's tools write, with plain or packed codes.

    float-quantized   codes e4m3
    int-quantized     codes int8
    naive-quantized   either
    pack-quantized    codes of 2, 4 or 8 bits in words of 32 bits, each with half its range added

There is one scale, and unless the codes are symmetric one zero point, for the matrix, for each output, for each group
of inputs or for each block. The matrix has the type of the scales. ``weight_g_idx`` is the group of each input where
groups are of inputs in the order of their activations (act-order); older versions of the library wrote it.

Reference: the code of the library, whose results are reproduced to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np
from jaxtyping import Float32

from rmtbase.errors import CheckpointError
from rmtbase.models.files._tensor_file import DerivedTensor, StoredTensor
from rmtbase.models.formats import _dequantise as dequantise
from rmtbase.shown import quoted

_PLAIN = {"float-quantized": ("F8_E4M3",), "int-quantized": ("I8",), "naive-quantized": ("F8_E4M3", "I8")}
_PACKED = "pack-quantized"
_BY_GROUP = (True, "group", "dynamic")  # values of actorder with which groups are of inputs in another order


def compressed_tensors(settings: dequantise.Settings) -> dequantise.Format:
    scheme = _Scheme.of(settings)
    needed = (scheme.codes, ".weight_scale", ".weight_shape") if scheme.packs else (scheme.codes, ".weight_scale")
    marker = scheme.codes if scheme.packs else ".weight_scale"
    return dequantise.Format(
        scheme.called, marker, ".weight", needed, scheme.derive, (".weight_zero_point", ".weight_g_idx")
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

    @property
    def codes(self) -> str:
        return ".weight_packed" if self.packs else ".weight"

    def derive(self, parts: dequantise.Parts) -> DerivedTensor:
        codes, zeros = parts[self.codes], parts.get(".weight_zero_point")
        shape = dequantise.matrix_shape(codes, ("I32",) if self.packs else _PLAIN[self.stored], self.called)
        if self.packs:
            shape = self._unpacked_shape(codes, parts[".weight_shape"], *shape)
        block = self._block(codes, shape[1])
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

    def _block(self, codes: StoredTensor, inputs: int) -> tuple[int, int] | None:
        """Return the (outputs, inputs) that share a scale, or None if there is only one scale."""
        if self.strategy == "group":
            return 1, inputs // dequantise.number_of_groups(codes, inputs, self.group_size, self.called)
        return (1, inputs) if self.strategy == "channel" else self.block

    def _unpacked_shape(self, codes: StoredTensor, sizes: StoredTensor, rows: int, words: int) -> tuple[int, int]:
        dequantise.require(sizes, (2,), ("I64", "I32"), self.called)
        outputs, inputs = sizes.array().tolist()
        if outputs != rows or inputs < 1 or ceil(inputs * self.bits / 32) != words:
            raise CheckpointError(
                codes.path,
                f"tensor {quoted(sizes.name)} holds the shape {(outputs, inputs)} of codes of shape {(rows, words)}; "
                f"expected {rows} outputs, and inputs of {self.bits} bits that take {words} words of 32",
            )
        return outputs, inputs

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
