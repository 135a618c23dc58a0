"""Attention sites of a module, found by its own forward pass with no knowledge of the model.

Covered: every softmax of a product of linear maps of activations (or of chains of them within one attention module)
whose weights multiply values: grouped, fused, transposed, latent and cross-attention, several stacks. Listed as
unresolved, with the reason: queries or keys that are pooled, convolved, mixed over tokens or summed of several maps,
and attention modules without a softmax. State-space and linear-attention layers hold no softmax and are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rmtbase.models import _sites
from rmtbase.models._probe_forward import (
    TAG,
    Contraction,
    ForwardPass,
    Linear,
    Mark,
    Numbers,
    RealMaps,
    Softmax,
    Weight,
    running,
    tokens,
)
from rmtbase.models._sites import STACKS, Expression, Place, Scaled, Site, Stacked, take_rows

CONTENT_PART = "rotary: W_QK is the content part at zero relative position"
NORMS = "query/key norm present: recorded, not folded in"
BIASES = "biases present: recorded, not folded in"
_INNER_NORMS = "norm between the factors of queries or keys: recorded, not folded in"
_GAINS = "gains of queries or keys: recorded, not folded in"
_SOFT_CAP = "soft cap on q·k: not in W_QK"
_POSITIONS = "products with positions are added to q·k: not in W_QK"


class Unresolved(NamedTuple):
    """An attention module that could not be read: which, and why."""

    module: str
    reason: str


class Found(NamedTuple):
    """What a forward pass showed: sites in order of stack and layer, and what stayed unresolved."""

    sites: tuple[Site, ...]
    unresolved: tuple[Unresolved, ...]


class _NoReading(Exception):  # noqa: N818
    """Why a softmax cannot be read as attention of stored queries and keys."""


def find_sites(module: nn.Module, inputs: Mapping[str, Any]) -> Found:
    """The attention sites of a module, and the softmaxes of products that could not be read.

    Args:
        module: on any device, meta too, and of any dtype. Its parameters are not looked at, and not changed.
        inputs: of its forward, by name, of at least two tokens.

    Raises:
        Whatever the module's forward raises for these inputs.
    """
    return placed([Reading.of(module, inputs)])


def placed(readings: Sequence[Reading]) -> Found:
    """The sites of parts of one model, in order of stack and layer, and what stayed unresolved."""
    found: dict[tuple[Expression | None, Expression | None], Met] = {}
    for reading in readings:
        for met in reading.met.values():
            found.setdefault((met.site.query, met.site.key), met)
    unresolved = (Unresolved(*one) for reading in readings for one in reading.unresolved.items())
    return Found(_placed(list(found.values())), tuple(unresolved))


def run(
    module: nn.Module,
    inputs: Mapping[str, Any],
    numbers: Numbers,
    *,
    tagged: frozenset[str] | None = None,
    neutral: bool = True,
    real: RealMaps | None = None,
    prefix: str = "",
) -> ForwardPass:
    """One pass with meta tensors in place of the parameters; the module is as it was afterwards, whatever happens.

    Names of parameters and modules are given with the prefix.
    """
    stand_ins, names = {}, {}
    for name, parameter in module.named_parameters():
        dtype = torch.float64 if parameter.is_floating_point() else parameter.dtype
        stand_ins[name] = nn.Parameter(torch.empty(parameter.shape, dtype=dtype, device="meta"), False)
        names[stand_ins[name].untyped_storage()._cdata] = prefix + name
    taken = ForwardPass(names, numbers, tagged=tagged, neutral=neutral, real=real)
    given = {name: one.clone() if isinstance(one, Tensor) else one for name, one in inputs.items()}
    for tensor in given.values():
        if isinstance(tensor, Tensor):
            taken.declare_input(tensor)
    training = [one for one in module.modules() if one.training]
    for one in training:
        one.training = False
    try:
        with running(module, taken, prefix):
            torch.func.functional_call(module, stand_ins, (), given)
    finally:
        for one in training:
            one.training = True
    return taken


def _chosen(plain: ForwardPass, softmax: Softmax) -> str | None:
    """Of the products that scores are made of, that of contents, where there is one such alone."""
    each = {key: plain.products[key].origins for key in softmax.origin.products}
    for kind in ("content", "linear"):
        fitting = [key for key, (left, right) in each.items() if getattr(left, kind) and getattr(right, kind)]
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return None


class Met(NamedTuple):
    """A site without its place.

    Attributes:
        site: but for its place.
        crossed: whether its queries and keys read different inputs.
        product: of its queries and keys, by key.
        heads: the number of the head of each of its queries.
        queries_left: whether queries are the left operand.
        factor: what the operands' product has over that of the matrices.
    """

    site: Site
    crossed: bool
    product: str
    heads: Int[np.ndarray, "n token"]
    queries_left: bool
    factor: float


class _Heads(NamedTuple):
    """Query or key operands: the number and the factor of each coordinate, (n, token, d), and the tokens' u[t]."""

    numbers: Int[np.ndarray, "n token d"]
    factors: Float[np.ndarray, "n token d"]
    marks: frozenset[Mark]
    turned: Bool[np.ndarray, " d"] | None


@dataclass(frozen=True)
class Reading:
    """The passes of one module: plain, tagged, and rotated as it is; its parameters' shapes, the inputs."""

    plain: ForwardPass
    tagged: ForwardPass
    rotated: ForwardPass
    shapes: Mapping[str, tuple[int, ...]]
    inputs: Mapping[str, Any]

    @classmethod
    def of(cls, module: nn.Module, inputs: Mapping[str, Any], prefix: str = "") -> Reading:
        """Of a module for inputs; where that leaves queries unresolved, with all tokens at position zero too."""
        first = cls._of(module, inputs, inputs, prefix)
        tokens = inputs.get("input_ids")
        if not first.unresolved or tokens is None or "position_ids" not in signature(module.forward).parameters:
            return first
        still = cls._of(module, {**inputs, "position_ids": torch.zeros_like(tokens)}, inputs, prefix)
        return still if len(still.unresolved) < len(first.unresolved) else first

    @classmethod
    def _of(cls, module: nn.Module, still: Mapping[str, Any], inputs: Mapping[str, Any], prefix: str) -> Reading:
        numbers = Numbers()
        plain = run(module, still, numbers, prefix=prefix)
        chosen = {_chosen(plain, one) for one in plain.softmaxes.values()}
        tagged = run(module, still, numbers, tagged=frozenset(one for one in chosen if one), prefix=prefix)
        rotated = run(module, inputs, numbers, neutral=False, prefix=prefix)
        shapes = {prefix + name: tuple(one.shape) for name, one in module.named_parameters()}
        return cls(plain, tagged, rotated, shapes, still)

    @cached_property
    def _read(self) -> tuple[dict[str, Met], dict[str, str]]:
        met: dict[str, Met] = {}
        unresolved: dict[str, str] = {}
        for key, softmax in self.plain.softmaxes.items():
            if not softmax.origin.products and not self.outputs_of(key):
                continue  # a router's, say
            try:
                met[key] = self.site(key, _chosen(self.plain, softmax))
            except _NoReading as reason:
                unresolved.setdefault(softmax.modules[-1][0], str(reason))
        return met, unresolved

    @property
    def met(self) -> dict[str, Met]:
        """The sites, by the key of their softmax."""
        return self._read[0]

    @property
    def unresolved(self) -> dict[str, str]:
        """Why a module could not be read, by its name."""
        return self._read[1]

    @cached_property
    def _linears(self) -> list[tuple[str, Linear]]:
        return sorted(self.plain.linears.items(), key=lambda item: item[1].first)

    @cached_property
    def _firsts(self) -> np.ndarray:
        return np.array([one.first for _, one in self._linears])

    def outputs_of(self, softmax: str) -> list[str]:
        """The products of a softmax's weights and values."""
        return [
            key
            for key, one in self.plain.outputs.items()
            if any(softmax in origin.softmax for origin in one.origins) and key in self.tagged.outputs
        ]

    def site(self, key: str, product: str | None) -> Met:
        """The attention of one softmax."""
        softmax = self.plain.softmaxes[key]
        if product is None:
            n_products = len(softmax.origin.products)
            raise _NoReading(f"scores are the sum of {n_products} products" if n_products else "scores are no product")
        scale, keys_right, _ = self._scores(key)
        q_side, k_side = ("left", "right") if keys_right else ("right", "left")
        queries, key_heads = self._operand(product, q_side), self._operand(product, k_side)
        heads = _pairs(queries.numbers, key_heads.numbers)
        query_rows = np.array([query for query, _ in heads])
        served = [one for _, one in heads]
        key_rows, n_key_heads = _grouped(served)
        n_heads, d_head = query_rows.shape
        q_factor, q_of = _factors(queries, query_rows)
        k_factor, k_of = _factors(key_heads, key_rows)
        module = self._module(softmax, query_rows, key_rows)
        query, q_leaf, q_marks = self._expression(query_rows.ravel(), module, q_of.ravel())
        key_matrix, k_leaf, k_marks = self._expression(key_rows.ravel(), module, k_of.ravel())
        turned = (queries.turned, key_heads.turned)
        rotated = int(np.sum(turned[0] | turned[1])) if turned[0] is not None and turned[1] is not None else None
        shape_of = self.shapes.__getitem__
        entered = next(clock for path, clock in softmax.modules if path == module)
        by_first = {int(query[0]): number for number, (query, _) in enumerate(heads)}
        if len(by_first) < n_heads:
            raise _NoReading("query heads share rows")
        head = np.vectorize(by_first.get, otypes=[int])(queries.numbers[..., 0])
        value, output, d_value = self._values(key, module, [one for _, one in heads], head, scale)
        d_key = key_matrix.shape(shape_of)[1]
        if value is not None and value.shape(shape_of)[1] != d_key:
            value = None
        tensors = [name for one in (query, key_matrix, value, output) if one is not None for name in one.tensors()]
        site = Site(
            place=Place("", 0),
            module=common_module(tensors),
            n_heads=n_heads,
            n_key_heads=n_key_heads,
            d_head=d_head,
            d_query=query.shape(shape_of)[1],
            d_key=d_key,
            d_value=d_value if value is not None else None,
            d_output=None if output is None else output.shape(shape_of)[0],
            query=query,
            key=key_matrix,
            value=value,
            output=output,
            logit_scale=_rounded(scale * q_factor * k_factor),
            rotated=rotated,
            notes=_notes(
                queries.marks | key_heads.marks,
                q_marks | k_marks,
                softmax.origin.marks,
                len(softmax.origin.products) > 1,
                bool(rotated),
            ),
        )
        crossed = q_leaf[0] != k_leaf[0] and k_leaf[1] <= entered
        return Met(site, crossed, product, head, keys_right, q_factor * k_factor)

    # -- scores -----------------------------------------------------------------------------------------------------

    def _scores(self, key: str) -> tuple[float, bool, np.ndarray]:
        """What q·k is multiplied by, whether the keys are the right operand, and the seen product over the scores."""
        plain = self.plain.softmaxes[key]
        if key not in self.tagged.softmaxes or self.tagged.softmaxes[key].scores.shape != plain.scores.shape:
            raise _NoReading("its course depends on the values")
        scores = np.moveaxis(plain.scores.numpy(), plain.axis, -1)
        with np.errstate(invalid="ignore", over="ignore"):
            seen = np.moveaxis(self.tagged.softmaxes[key].scores.numpy(), plain.axis, -1) - scores
        seen = np.where(np.abs(scores) < 1e30, seen, np.nan)
        seen = np.where(np.abs(seen) > 1e-12, seen, np.nan)  # what is no product: sinks, say
        if np.all(np.isnan(seen)):
            raise _NoReading("scores do not depend on the product of queries and keys")
        scale = float(np.nanmin(np.abs(seen)))
        row = np.where(np.isnan(seen), np.nanmax(seen, axis=-1, keepdims=True), seen)
        keys_right = bool(np.nanmax(np.ptp(row, axis=-1)) < 0.9 * scale)
        return scale, keys_right, seen / scale

    def _operand(self, product: str, side: str) -> _Heads:
        """An operand of a product, decoded."""
        plain, tagged = (getattr(one.products[product], side).numpy() for one in (self.plain, self.tagged))
        numbers = decode(plain, tagged)
        origin = self.plain.products[product].origins[0 if side == "left" else 1]
        turned = None
        if product in self.rotated.products:
            real = getattr(self.rotated.products[product], side).numpy()[:, : plain.shape[1]]
            turned = np.any(np.abs(real - plain) > 1e-9 * np.abs(plain), axis=(0, 1))
        values = self._row_values(numbers)
        return _Heads(numbers, plain / values, origin.marks, turned)

    def _row_values(self, numbers: np.ndarray) -> np.ndarray:
        """v[r] of each number, and 1 where there is none."""
        if not self._linears:
            raise _NoReading("no linear map was met")
        at = np.clip(np.searchsorted(self._firsts, numbers, side="right") - 1, 0, None)
        result = np.ones(numbers.shape)
        for index in np.unique(at):
            linear = self._linears[index][1]
            local = numbers - linear.first
            here = (at == index) & (local >= 0) & (local < len(linear.rows))
            result[here] = linear.rows.numpy()[local[here]]
            numbers[(at == index) & ~here] = 0
        return result

    # -- expressions ------------------------------------------------------------------------------------------------

    def _module(self, softmax: Softmax, *rows: np.ndarray) -> str:
        """The innermost module under way that holds the maps of queries and keys."""
        names = {self._linears[self._index(number)][1].weight.name for each in rows for number in each[0]}
        holding = [
            path for path, _ in softmax.modules if all(name.startswith(f"{path}." if path else "") for name in names)
        ]
        return holding[-1]

    def _index(self, number: int) -> int:
        return int(np.searchsorted(self._firsts, number, side="right")) - 1

    def _expression(
        self, numbers: Int[np.ndarray, " row"], module: str, factors: Float[np.ndarray, " row"] | None = None
    ) -> tuple[Expression, tuple[bytes, int], frozenset[Mark]]:
        """The matrix with these rows; the input that it reads, and when that was born; and what it stepped over."""
        factors = np.ones(len(numbers)) if factors is None else factors
        at = np.searchsorted(self._firsts, numbers, side="right") - 1
        sources: list[tuple[int, _sites.Tensor, float, np.ndarray, np.ndarray]] = []
        for index in np.unique(at).tolist():
            linear = self._linears[index][1]
            for factor in np.unique(factors[at == index]).tolist():
                places = np.flatnonzero((at == index) & (factors == factor))
                for tensor, among, rows in stored_rows(linear.weight, numbers[places] - linear.first, self.shapes):
                    sources.append((index, tensor, factor, places[among], rows))
        sources.sort(key=lambda source: source[3][0])
        parts, leaves, marks, order = [], [], frozenset(), np.zeros(len(numbers), int)
        before = 0
        for index, tensor, factor, places, rows in sources:
            used = rows if len(sources) == 1 else np.unique(rows)
            order[places] = before + (np.arange(len(used)) if len(sources) == 1 else np.searchsorted(used, rows))
            before += len(used)
            part, leaf, stepped = self._part(index, tensor, used, module)
            parts.append(part if factor == 1.0 else Scaled(part, factor))
            leaves.append(leaf)
            marks |= stepped
        if len({leaf for leaf, _ in leaves}) != 1:
            raise _NoReading("rows of one matrix read different inputs")
        whole = parts[0] if len(parts) == 1 else Stacked(tuple(parts))
        in_order = np.array_equal(order, np.arange(len(order)))
        return whole if in_order else take_rows(whole, order.tolist()), leaves[0], marks

    def _rows_of(self, tensor: _sites.Tensor, rows: np.ndarray) -> Expression:
        whole = np.array_equal(rows, np.arange(tensor.shape(self.shapes.__getitem__)[0]))
        return tensor if whole else take_rows(tensor, rows.tolist())

    def _part(
        self, index: int, tensor: _sites.Tensor, rows: np.ndarray, module: str
    ) -> tuple[Expression, tuple[bytes, int], frozenset[Mark]]:
        """Rows of one map, and the maps before it within the module."""
        key, linear = self._linears[index]
        part = self._rows_of(tensor, rows)
        before = self._before(key, linear, module)
        marks = linear.marks
        if before is None:
            return part, (linear.given.numpy().tobytes(), linear.origin.born), marks
        inner, leaf, stepped = self._expression(before, module)
        of = (part, *inner.of) if isinstance(inner, _sites.Product) else (part, inner)
        between = {Mark("inner", one.name) if one.kind in _NORM_KINDS else one for one in linear.origin.marks}
        return _sites.Product(of), leaf, marks | stepped | between

    def _before(self, key: str, linear: Linear, module: str) -> np.ndarray | None:
        """The outputs, within the module, of which a map's inputs are one by one; None where they are none."""
        if key not in self.tagged.linears:
            return None
        given = linear.given.numpy().reshape(-1, linear.given.shape[-1])
        numbers = decode(given, self.tagged.linears[key].given.numpy().reshape(given.shape))
        values = self._row_values(numbers)
        if np.any(numbers == 0) or np.any(numbers != numbers[:1]):
            return None
        names = {self._linears[index][1].weight.name for index in map(self._index, numbers[0])}
        if not all(name.startswith(f"{module}.") for name in names):
            return None
        factors = given / values
        return numbers[0] if np.ptp(factors, axis=1).max() < 1e-12 * np.abs(factors).max() else None

    # -- values and output ------------------------------------------------------------------------------------------

    def _values(
        self, key: str, module: str, keys: list[tuple[int, ...]], head: Int[np.ndarray, "n token"], scale: float
    ) -> tuple[Expression | None, Expression | None, int | None]:
        """W_V, W_O and d_value, where they can be read: of key heads by query head, and the head of each query."""
        outputs = self.outputs_of(key)
        if len(outputs) != 1:
            return None, None, None
        plain, tagged = self.plain.outputs[outputs[0]], self.tagged.outputs[outputs[0]]
        weights_left = key in plain.origins[0].softmax
        weights_of, values_of = ("left", "right") if weights_left else ("right", "left")
        seen = (getattr(tagged, weights_of) - getattr(plain, weights_of)).numpy() / scale  # (n, m, s)
        n_of = _batches(seen, len(head))
        if n_of is None:
            return None, None, None
        head = head[n_of]
        numbers = decode(
            *(getattr(one, values_of).numpy().swapaxes(1, 2) for one in (plain, tagged))
        )  # (n, s, d_value)
        self._row_values(numbers)
        served: dict[int, tuple[int, ...]] = {}
        for of_heads, each in zip(head, numbers, strict=True):
            rows = {tuple(row) for row in each.tolist() if min(row) > 0}
            if len(rows) != 1 or any(served.setdefault(one, *rows) not in rows for one in of_heads.tolist()):
                return None, None, None
        group = len(keys) // _grouped(keys)[1]
        if set(served) != set(range(len(keys))):
            return None, None, None
        if any(served[one] != served[one // group * group] for one in served):
            return None, None, None
        value_rows = np.array([served[one] for one in range(0, len(keys), group)])
        try:
            value, _, _ = self._expression(value_rows.ravel(), module)
        except _NoReading:
            return None, None, None
        d_value = value_rows.shape[1]
        return value, self._output(head, plain, d_value, len(keys), weights_left), d_value

    def _output(
        self, head: Int[np.ndarray, "n token"], met: Contraction, d_value: int, n_heads: int, weights_left: bool
    ) -> Expression | None:
        """The first map that reads the outputs of all heads, head after head."""
        n_tokens = met.shape[1 if weights_left else 2]
        head = np.pad(head, ((0, 0), (0, n_tokens - head.shape[1])), mode="edge")  # the others are of the same heads
        for key, linear in self.plain.linears.items():
            if linear.weight.n_inputs != n_heads * d_value or key not in self.tagged.linears:
                continue
            given = linear.given.numpy().reshape(-1, linear.given.shape[-1])
            numbers = decode(given, self.tagged.linears[key].given.numpy().reshape(given.shape)) - met.first
            if np.any(numbers < 0) or np.any(numbers >= prod(met.shape)):
                continue
            places = np.unravel_index(numbers, met.shape)
            of_head = head[places[0], places[1] if weights_left else places[2]]
            column = of_head * d_value + (places[2] if weights_left else places[1])
            if np.any(column != np.arange(n_heads * d_value)):
                return None
            ((tensor, _, rows), *others) = stored_rows(linear.weight, np.arange(len(linear.rows)), self.shapes)
            return None if others else self._rows_of(tensor, rows)
        return None


_NORM_KINDS = ("norm", "rsqrt", "linalg_vector_norm", "native_layer_norm", "native_group_norm", "_fused_rms_norm")


def decode(plain: np.ndarray, tagged: np.ndarray) -> np.ndarray:
    """The number i of the output from which each value came: tagged = plain · (1 + i · 2⁻³⁶); 0 where there is none."""
    with np.errstate(all="ignore"):
        raw = (tagged / plain - 1) / TAG
        numbers = np.rint(raw)
        known = np.isfinite(raw) & (np.abs(raw - numbers) < 1e-3) & (numbers > 0) & (numbers < 2**36)
    return np.where(known, numbers, 0).astype(np.int64)


def _batches(seen: Float[np.ndarray, "n m s"], n_batches: int) -> list[int] | None:
    """Which batch of the scores each batch of weights comes from, as m + 1 + n / (2 · n_batches) says."""
    part = (seen - np.floor(seen + 1e-9)) * 2 * n_batches
    result = []
    for one, inside in zip(part, np.abs(seen) > 1e-12, strict=True):
        if not inside.any():
            return None
        each = one[inside]
        n = round(float(each[0]))
        if np.abs(each - n).max() > 1e-6 or not 0 <= n < n_batches:
            return None
        result.append(n)
    return result


def _pairs(queries: np.ndarray, keys: np.ndarray) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The query heads in their order, each with the key head that it meets, by the numbers of their rows."""
    met: dict[tuple[int, ...], tuple[int, ...]] = {}
    for of_queries, of_keys in zip(queries, keys, strict=True):
        known = {row for row in _distinct(of_keys) if min(row) > 0}
        if not known:
            raise _NoReading("keys are no outputs of linear maps")
        if len(known) > 1:
            raise _NoReading("keys differ from token to token")
        (key,) = known
        for row in _distinct(of_queries):
            if min(row) <= 0:
                raise _NoReading("queries are no outputs of linear maps")
            if met.setdefault(row, key) != key:
                raise _NoReading("a query head meets several key heads")
    return list(met.items())


def _distinct(rows: np.ndarray) -> list[tuple[int, ...]]:
    """The distinct rows, in their order."""
    return list(dict.fromkeys(map(tuple, (rows[:1] if (rows == rows[:1]).all() else rows).tolist())))


def _grouped(served: list[tuple[int, ...]]) -> tuple[np.ndarray, int]:
    """The key heads, so that query head i meets key head i // (n_heads / n_key_heads)."""
    runs = [key for key, _ in groupby(served)]
    group = len(served) // len(runs)
    regular = len(served) % len(runs) == 0 and all(key == runs[i // group] for i, key in enumerate(served))
    rows = np.array(runs if regular else served)  # else one key head for each query head
    return rows, len(rows)


def _factors(operand: _Heads, rows: np.ndarray) -> tuple[float, np.ndarray]:
    """The factor of the first coordinate, and each coordinate's over it, (head, d)."""
    first = {tuple(row): None for row in rows.tolist()}
    relative: dict[tuple[int, ...], np.ndarray] = {}
    scales = []
    for numbers, factors in zip(operand.numbers, operand.factors, strict=True):
        for row, factor in zip(map(tuple, numbers.tolist()), factors, strict=True):
            if row in first:
                relative.setdefault(row, factor / factor[0])
                if np.abs(factor / factor[0] - relative[row]).max() > 1e-9 * np.abs(relative[row]).max():
                    raise _NoReading("factors of queries or keys differ from token to token")
                scales.append(factor[0])
    known = np.sort(tokens(1 << 16).numpy())

    def far(factors: np.ndarray) -> np.ndarray:
        """How far from any u[t]."""
        at = np.clip(np.searchsorted(known, factors), 1, len(known) - 1)
        return np.minimum(np.abs(known[at] - factors), np.abs(known[at - 1] - factors))

    found = np.unique(scales)
    candidates = found[0] / tokens(1 << 16).numpy()
    for factor in found[1:]:
        candidates = candidates[far(factor / candidates) < 1e-11]
    if len(candidates):
        return float(candidates[0]), np.array([[*map(_rounded, relative[tuple(row)])] for row in rows.tolist()])
    raise _NoReading("queries or keys are mixed over tokens")


def stored_rows(
    weight: Weight, outputs: Int[np.ndarray, " output"], shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[_sites.Tensor, np.ndarray, np.ndarray]]:
    """The stored tensors as matrices in which outputs of a map have their weights: which of them, and in which rows."""
    shape = list(shapes[weight.name])
    while len(shape) > 2 and shape[-1] == 1:
        shape.pop()
    at = weight.starts.numpy()[outputs]
    for axes in range(1, len(shape)):
        if weight.step == 1 and prod(shape[-axes:]) == weight.n_inputs and not np.any(at % weight.n_inputs):
            return [(_sites.Tensor(weight.name, n_inputs=axes), np.arange(len(at)), at // weight.n_inputs)]
    for skipped in (0, 1):
        one = shape[skipped:]
        index, within = np.divmod(at, prod(one))
        for axes in range(1, len(one)):
            if weight.step == prod(one[axes:]) and prod(one[:axes]) == weight.n_inputs and np.all(within < weight.step):
                each = ((number, np.flatnonzero(index == number)) for number in np.unique(index).tolist())
                return [
                    (_sites.Tensor(weight.name, True, number if skipped else None, axes), among, within[among])
                    for number, among in each
                ]
    raise _NoReading(f"rows of {weight.name} lie across it")


def _rounded(factor: float) -> float:
    """To twelve digits, as far as it is known."""
    return float(f"{factor:.12g}")


def common_module(names: Iterable[str]) -> str:
    """The modules that all names begin with."""
    same = []
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        same.append(parts[0])
    return ".".join(same)


def _notes(
    operands: frozenset[Mark], maps: frozenset[Mark], scores: frozenset[Mark], summed: bool, rotated: bool
) -> tuple[str, ...]:
    kinds = {mark.kind for mark in operands}
    added = sorted(mark.name for mark in scores if mark.kind in ("bias", "gain"))
    found = {
        CONTENT_PART: rotated,
        NORMS: not kinds.isdisjoint(_NORM_KINDS),
        BIASES: any(mark.kind == "bias" for mark in operands | maps),
        _INNER_NORMS: any(mark.kind == "inner" for mark in maps),
        _GAINS: "gain" in kinds,
        _SOFT_CAP: any(mark.kind == "tanh" for mark in scores),
        _POSITIONS: summed,
        f"{', '.join(added)} in the scores: not in W_QK": bool(added),
    }
    return tuple(note for note, holds in found.items() if holds)


_WORDS: Mapping[str, tuple[str, ...]] = {
    "vision": ("vision", "visual", "image", "vit", "vpm", "pixel"),
    "audio": ("audio", "speech", "acoustic"),
    "text": ("text", "language", "lm", "llm"),
    "encoder": ("encoder",),
    "decoder": ("decoder",),
}


def _placed(met: list[Met]) -> tuple[Site, ...]:
    """The sites in order of stack and layer, by the words and numbers of their modules' names."""
    labels = [_label(one) for one in met]
    if len(set(labels)) == 1 and labels[0] != "cross":
        labels = [""] * len(met)
    elif "" in labels:
        other = "text" if {"vision", "audio"} & set(labels) else "decoder"
        labels = [label or other for label in labels]
    placed = []
    for stack in STACKS:
        sites = [one.site for one, label in zip(met, labels, strict=True) if label == stack]
        numbers = [[int(part) for part in site.module.split(".") if part.isdigit()] for site in sites]
        layers = [each[0] if each else 0 for each in numbers]
        if len(set(layers)) < len(layers):
            layers = list(range(len(sites)))
        placed += [replace(site, place=Place(stack, layer)) for site, layer in zip(sites, layers, strict=True)]
    return tuple(sorted(placed, key=lambda site: (STACKS.index(site.place.stack), site.place.layer)))


def _label(met: Met) -> str:
    if met.crossed:
        return "cross"
    words = met.site.module.lower().replace("_", ".").split(".")
    found = (name for name, each in _WORDS.items() if any(word.startswith(each) for word in words))
    return next(found, "")
