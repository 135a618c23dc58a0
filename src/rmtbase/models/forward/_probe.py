"""Attention sites of a module, found by its own forward pass without knowledge of the model.

A site is a softmax of a product of linear maps of activations (or of chains of maps within one attention module) whose
weights multiply values. Others are unresolved, with the reason: queries or keys that are pooled, convolved or mixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from rmtbase.models.forward import _probe_events as events
from rmtbase.models.forward import _probe_rows as rows_of
from rmtbase.models.forward._probe_forward import ForwardPass, run
from rmtbase.models.forward._probe_places import NORM_KINDS, Met, is_within, module_of, notes_of
from rmtbase.models.layouts import _expressions
from rmtbase.models.layouts._expressions import Expression, Scaled, Stacked, take_rows
from rmtbase.models.layouts._sites import PLAIN, Norm, Place, Site

_CROSSED = re.compile(r"(cross|encoder|enc_dec)_?att", re.IGNORECASE)
"""Name of a module with cross-attention, which matters where it adds positions to its keys within the module."""


class _Leaf(NamedTuple):
    values: bytes
    born: int
    norm: Norm | None


@dataclass(frozen=True)
class Reading:
    """Passes of one module: plain, tagged, and with its real rotation, which also distinguishes norms."""

    plain: ForwardPass
    tagged: ForwardPass
    rotated: ForwardPass
    shapes: Mapping[str, tuple[int, ...]]
    inputs: Mapping[str, Any]
    norms: rows_of.Norms

    @classmethod
    def from_module(cls, module: nn.Module, inputs: Mapping[str, Any], prefix: str = "") -> Reading:
        """Run a module on inputs; if queries remain unresolved, also try all tokens at position zero."""
        first = cls._of(module, inputs, inputs, prefix)
        tokens = inputs.get("input_ids")
        if not first.sites[1] or tokens is None or "position_ids" not in signature(module.forward).parameters:
            return first
        still = cls._of(module, {**inputs, "position_ids": torch.zeros_like(tokens)}, inputs, prefix)
        return still if len(still.sites[1]) < len(first.sites[1]) else first

    @classmethod
    def _of(cls, module: nn.Module, still: Mapping[str, Any], inputs: Mapping[str, Any], prefix: str) -> Reading:
        numbers = events.Numbers()
        plain = run(module, still, numbers, events.PassKind(), prefix)
        chosen = {rows_of.content_product(plain.products, softmax) for softmax in plain.softmaxes.values()}
        tagged = run(module, still, numbers, events.PassKind(tagged=frozenset(filter(None, chosen))), prefix)
        origins = (origin for product in plain.products.values() for origin in product.origins)
        between = {mark.name for origin in origins for mark in origin.marks}
        real = events.PassKind(neutral=False, norms=events.NormOutputs(frozenset(between)))
        rotated = run(module, inputs, numbers, real, prefix)
        shapes = {prefix + name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
        modules = {(prefix + path).rstrip("."): submodule for path, submodule in module.named_modules()}
        return cls(plain, tagged, rotated, shapes, still, rows_of.Norms(modules, plain.norms, tagged.norms, rotated))

    @cached_property
    def sites(self) -> tuple[dict[str, Met], dict[str, str]]:
        """The sites by the key of their softmax, and by the name of a module the reason why it has none."""
        met: dict[str, Met] = {}
        unresolved: dict[str, str] = {}
        for key, softmax in self.plain.softmaxes.items():
            if not softmax.origin.products and not self.outputs_of(key):
                continue  # for instance the softmax of a router
            try:
                met[key] = self.site(key, rows_of.content_product(self.plain.products, softmax))
            except rows_of.NoReading as reason:
                unresolved.setdefault(softmax.modules[-1][0], str(reason))
        return met, unresolved

    @cached_property
    def _linears(self) -> list[tuple[str, events.Linear]]:
        return sorted(self.plain.linears.items(), key=lambda item: item[1].first)

    @cached_property
    def _firsts(self) -> np.ndarray:
        return np.array([linear.first for _, linear in self._linears])

    def outputs_of(self, softmax: str) -> list[str]:
        outputs = [(key, product.origins) for key, product in self.plain.outputs.items() if key in self.tagged.outputs]
        return [key for key, origins in outputs if any(softmax in origin.softmax for origin in origins)]

    def site(self, key: str, product: str | None) -> Met:
        softmax = self.plain.softmaxes[key]
        if product is None:
            n_products = len(softmax.origin.products)
            reason = f"scores are made of {n_products} products" if n_products else "scores are no product"
            raise rows_of.NoReading(reason)
        scale, keys_right = rows_of.scale_of(softmax, self.tagged.softmaxes.get(key))
        q_side, k_side = ("left", "right") if keys_right else ("right", "left")
        queries, key_heads = self._operand(product, q_side), self._operand(product, k_side)
        for mark in sorted((queries.marks | key_heads.marks), key=str):
            if mark.kind in ("tanh", "sigmoid"):  # treated as neutral, which is right only in gates and caps
                raise rows_of.NoReading(f"queries or keys go through {mark.kind}")
        heads = rows_of.pairs(queries.numbers, key_heads.numbers, self._stored)
        query_rows = np.array([query for query, _ in heads])
        served = [key_head for _, key_head in heads]
        key_rows, n_key_heads = rows_of.grouped(served)
        n_heads, d_head = query_rows.shape
        q_factor, q_of = rows_of.factors_of(queries, query_rows)
        k_factor, k_of = rows_of.factors_of(key_heads, key_rows)
        module = self._module(softmax, query_rows, key_rows)
        query, q_leaf, q_marks = self._expression(query_rows.ravel(), module, q_of.ravel())
        key_matrix, k_leaf, k_marks = self._expression(key_rows.ravel(), module, k_of.ravel())
        turned = (queries.turned, key_heads.turned)
        rotated = int(np.sum(turned[0] | turned[1])) if turned[0] is not None and turned[1] is not None else None
        shape_of = self.shapes.__getitem__
        entered = next(clock for path, clock in softmax.modules if path == module)
        by_first = {int(query[0]): number for number, (query, _) in enumerate(heads)}
        if len(by_first) < n_heads:
            raise rows_of.NoReading("query heads share rows")
        head = np.vectorize(by_first.get, otypes=[int])(queries.numbers[..., 0])
        value, v_norm, output, d_value = self._values(key, module, [key_head for _, key_head in heads], head, scale)
        from_elsewhere = k_leaf.born <= entered or _CROSSED.search(module.rpartition(".")[2]) is not None
        crossed = q_leaf.values != k_leaf.values and from_elsewhere
        k_norm = k_leaf.norm if value is None or v_norm == k_leaf.norm else None
        if crossed and k_norm == PLAIN:
            k_norm = None  # an input from elsewhere may have gone through a norm there
        d_key = key_matrix.shape(shape_of)[1]
        if value is not None and value.shape(shape_of)[1] != d_key:
            value = None
        other_names = [name for matrix in (value, output) if matrix is not None for name in matrix.tensors()]
        site = Site(
            place=Place("", 0),
            module=module_of(query.tensors(), key_matrix.tensors(), other_names),
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
            logit_scale=rows_of.rounded(scale * q_factor * k_factor),
            rotated=rotated,
            query_input_norm=q_leaf.norm,
            key_input_norm=k_norm,
            query_norm=self.norms.behind(queries.marks, q_marks, query_rows),
            key_norm=self.norms.behind(key_heads.marks, k_marks, key_rows),
            notes=notes_of(softmax, queries.marks | key_heads.marks, q_marks | k_marks, bool(rotated)),
        )
        return Met(site, crossed, product, head, keys_right, q_factor * k_factor)

    def _operand(self, product: str, side: str) -> rows_of.Heads:
        passes = self.plain, self.tagged
        plain, tagged = (getattr(forward_pass.products[product], side).numpy() for forward_pass in passes)
        numbers = rows_of.decode(plain, tagged)
        origin = self.plain.products[product].origins[0 if side == "left" else 1]
        turned = None
        if product in self.rotated.products:
            real = getattr(self.rotated.products[product], side).numpy()[:, : plain.shape[1]]
            turned = np.any(np.abs(real - plain) > 1e-9 * np.abs(plain), axis=(0, 1))
        values = self._row_values(numbers)
        return rows_of.Heads(numbers, plain / values, origin.marks, turned)

    def _row_values(self, numbers: np.ndarray) -> np.ndarray:
        if not self._linears:
            raise rows_of.NoReading("no linear map was met")
        at = np.clip(np.searchsorted(self._firsts, numbers, side="right") - 1, 0, None)
        result = np.ones(numbers.shape)
        for index in np.unique(at):
            linear = self._linears[index][1]
            local = numbers - linear.first
            in_linear = (at == index) & (local >= 0) & (local < len(linear.rows))
            result[in_linear] = linear.rows.numpy()[local[in_linear]]
            numbers[(at == index) & ~in_linear] = 0
        return result

    def _module(self, softmax: events.Softmax, *rows: np.ndarray) -> str:
        names = {self._linears[self._index(number)][1].weight.name for row in rows for number in row[0]}
        return [path for path, _ in softmax.modules if all(is_within(name, path) for name in names)][-1]

    def _stored(self, numbers: Iterable[int]) -> tuple[tuple[str, int], ...]:
        linears = [self._linears[self._index(number)][1] for number in numbers]
        weights = [(linear.weight, number - linear.first) for number, linear in zip(numbers, linears, strict=True)]
        return tuple((weight.name, int(weight.starts[row])) for weight, row in weights)

    def _index(self, number: int) -> int:
        return int(np.searchsorted(self._firsts, number, side="right")) - 1

    def _expression(
        self, numbers: Int[np.ndarray, " row"], module: str, factors: Float[np.ndarray, " row"] | None = None
    ) -> tuple[Expression, _Leaf, frozenset[events.Mark]]:
        factors = np.ones(len(numbers)) if factors is None else factors
        at = np.searchsorted(self._firsts, numbers, side="right") - 1
        sources: list[tuple[int, _expressions.Tensor, float, np.ndarray, np.ndarray]] = []
        for index in np.unique(at).tolist():
            linear = self._linears[index][1]
            for factor in np.unique(factors[at == index]).tolist():
                places = np.flatnonzero((at == index) & (factors == factor))
                outputs = numbers[places] - linear.first
                for tensor, among, rows in rows_of.stored_rows(linear.weight, outputs, self.shapes):
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
        if len({leaf.values for leaf in leaves}) != 1:
            raise rows_of.NoReading("rows of one matrix read different inputs")
        leaf = leaves[0] if len({leaf.norm for leaf in leaves}) == 1 else leaves[0]._replace(norm=None)
        stacked = parts[0] if len(parts) == 1 else Stacked(tuple(parts))
        in_order = np.array_equal(order, np.arange(len(order)))
        return stacked if in_order else take_rows(stacked, order.tolist()), leaf, marks

    def _rows_of(self, tensor: _expressions.Tensor, rows: np.ndarray) -> Expression:
        is_whole = np.array_equal(rows, np.arange(tensor.shape(self.shapes.__getitem__)[0]))
        return tensor if is_whole else take_rows(tensor, rows.tolist())

    def _part(
        self, index: int, tensor: _expressions.Tensor, rows: np.ndarray, module: str
    ) -> tuple[Expression, _Leaf, frozenset[events.Mark]]:
        key, linear = self._linears[index]
        part = self._rows_of(tensor, rows)
        before = self._before(key, linear, module)
        marks = linear.marks
        if before is None:
            values = linear.given.numpy().tobytes()
            convolutions = (mark for mark in linear.origin.marks if mark.kind == events.CONVOLUTION)
            convolved = {mark for mark in convolutions if is_within(mark.name, module)}
            return part, _Leaf(values, linear.origin.born, self.norms.before(key)), marks | convolved
        numbers, factor = before
        part = part if factor == 1.0 else Scaled(part, factor)
        inner, leaf, stepped = self._expression(numbers, module)
        factors = (part, *inner.of) if isinstance(inner, _expressions.Product) else (part, inner)
        between = {events.Mark("inner", mark.name) if mark.kind in NORM_KINDS else mark for mark in linear.origin.marks}
        return _expressions.Product(factors), leaf, marks | stepped | between

    def _before(self, key: str, linear: events.Linear, module: str) -> tuple[np.ndarray, float] | None:
        """Return the outputs within the module that are a map's inputs up to a common factor, or None."""
        if key not in self.tagged.linears:
            return None
        values_given = linear.given.numpy().reshape(-1, linear.given.shape[-1])
        numbers = rows_of.decode(values_given, self.tagged.linears[key].given.numpy().reshape(values_given.shape))
        values = self._row_values(numbers)
        if np.any(numbers == 0) or np.any(numbers != numbers[:1]):
            return None
        names = {self._linears[index][1].weight.name for index in map(self._index, numbers[0])}
        if not all(is_within(name, module) for name in names):
            return None
        factors = values_given / values
        if np.ptp(factors, axis=1).max() > 1e-12 * np.abs(factors).max():
            return None
        factor = rows_of.token_factor(np.unique(factors[:, 0]))
        return None if factor is None else (numbers[0], rows_of.rounded(factor))

    def _values(
        self, key: str, module: str, keys: list[tuple[int, ...]], head: Int[np.ndarray, "n token"], scale: float
    ) -> tuple[Expression | None, Norm | None, Expression | None, int | None]:
        outputs = self.outputs_of(key)
        if len(outputs) != 1:
            return None, None, None, None
        plain, tagged = self.plain.outputs[outputs[0]], self.tagged.outputs[outputs[0]]
        weights_left = key in plain.origins[0].softmax
        weights_of, values_of = ("left", "right") if weights_left else ("right", "left")
        seen = (getattr(tagged, weights_of) - getattr(plain, weights_of)).numpy() / scale  # (n, m, s)
        n_of = rows_of.batches(seen, len(head))
        if n_of is None:
            return None, None, None, None
        head = head[n_of]
        numbers = rows_of.decode(
            *(getattr(contraction, values_of).numpy().swapaxes(1, 2) for contraction in (plain, tagged))
        )  # (n, s, d_value)
        self._row_values(numbers)
        served: dict[int, tuple[int, ...]] = {}
        for of_heads, head_values in zip(head, numbers, strict=True):
            rows = {tuple(row) for row in head_values.tolist() if min(row) > 0}
            if len(rows) != 1 or any(
                served.setdefault(served_head, *rows) not in rows for served_head in of_heads.tolist()
            ):
                return None, None, None, None
        group = len(keys) // rows_of.grouped(keys)[1]
        differ = (served[served_head] != served.get(served_head // group * group) for served_head in served)
        if set(served) != set(range(len(keys))) or any(differ):
            return None, None, None, None
        value_rows = np.array([served[served_head] for served_head in range(0, len(keys), group)])
        try:
            value, leaf, v_marks = self._expression(value_rows.ravel(), module)
        except rows_of.NoReading:
            return None, None, None, None
        d_value = value_rows.shape[1]
        behind = self.norms.behind(plain.origins[1 if weights_left else 0].marks, v_marks, value_rows)
        norm = leaf.norm if behind == PLAIN else None  # a site cannot represent gains on values
        return value, norm, self._output(head, plain, d_value, len(keys), weights_left), d_value

    def _output(
        self, head: Int[np.ndarray, "n token"], met: events.Contraction, d_value: int, n_heads: int, weights_left: bool
    ) -> Expression | None:
        """Return the first map whose input is the outputs of all heads, head after head."""
        n_tokens = met.shape[1 if weights_left else 2]
        head = head[:, np.minimum(np.arange(n_tokens), head.shape[1] - 1)]  # all tokens belong to the same heads
        for key, linear in self.plain.linears.items():
            if linear.weight.n_inputs != n_heads * d_value or key not in self.tagged.linears:
                continue
            values_given = linear.given.numpy().reshape(-1, linear.given.shape[-1])
            tagged_given = self.tagged.linears[key].given.numpy().reshape(values_given.shape)
            numbers = rows_of.decode(values_given, tagged_given) - met.first
            if np.any(numbers < 0) or np.any(numbers >= prod(met.shape)):
                continue
            places = np.unravel_index(numbers, met.shape)
            of_head = head[places[0], places[1] if weights_left else places[2]]
            column = of_head * d_value + (places[2] if weights_left else places[1])
            if np.any(column != np.arange(n_heads * d_value)):
                return None
            outputs = np.arange(len(linear.rows))
            ((tensor, _, rows), *more_tensors) = rows_of.stored_rows(linear.weight, outputs, self.shapes)
            return None if more_tensors else self._rows_of(tensor, rows)
        return None
