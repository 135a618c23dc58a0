"""Statistics of the elements of matrices, of each head's matrices and of its W_QK, and their distances from a null."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Float, Int, Shaped

from rmtbase import statistics
from rmtbase.errors import ParameterError
from rmtbase.heads.factors import holds_product
from rmtbase.laws import element_null, product_element_null
from rmtbase.models import Site
from rmtbase.nulls import SMALLEST_P_VALUE
from rmtbase.reasons import Reason
from rmtbase.results.filled import Entries, filled
from rmtbase.results.scores._heads import layer_coordinates
from rmtbase.results.scores.schema import head_elements_schema
from rmtbase.tables import CIRCUITS, Circuit, Factor, Schema, describe
from rmtbase.words import listing

_TAIL = 64  # spacings of the upper tail that are used
_SHARE = 64  # at most one element in so many belongs to the tail
_FEWEST = 8  # spacings needed to describe a tail
_STRIDE, _RANK = 256, 16  # stride of the sample, and the rank in it that bounds the tail
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
FIELDS = ("observed", "null_mean", "null_std", "z_score", "p_value")
STATISTICS = tuple(statistics.ELEMENT_STATISTICS)
BINS = np.linspace(-8.0, 8.0, 161)  # edges of the histogram of (w - w̄)/s
MAGNITUDE_BINS = np.linspace(-12.0, 4.0, 161)  # of that of log₁₀ |w|
_SPAN = 1 << 21  # elements summarized at a time
_NAMED = 3  # missing statistics that are named; the file lists all
_FEWEST_OF_MOMENTS = 20  # elements from which on the null of the moments is known
Law = Any  # law of a statistic: ``mean()``, ``std()``, ``p_value(observed)``


@dataclass(frozen=True)
class LargestElements:
    """The 65 elements of largest magnitude, descending; the first come first among equal ones."""

    count: int  # number of all elements
    place: Int[np.ndarray, " element"]  # place of each among all elements, from 0
    value: Float[np.ndarray, " element"]  # value of each

    def merged(self, other: LargestElements) -> LargestElements:
        place = np.concatenate([self.place, other.place + self.count])
        value = np.concatenate([self.value, other.value])
        first = np.argsort(-np.abs(value), kind="stable")[: _TAIL + 1]
        return LargestElements(self.count + other.count, place[first], value[first])

    def isolation(self) -> Float[np.ndarray, " rank"]:
        """Return p-values of the gaps below the largest element, the second, …, to find how many stand apart.

        In a tail that falls off as a power or faster, D_k = k (ln x₍ₖ₎ - ln x₍ₖ₊₁₎), k = 1, …, m, are independent and
        exponential, with one mean or with a mean that grows with k. Then P(D_k / Σ_{j > k} D_j ≥ r) ≤ (1 + r)^-(m - k).
        The gaps k ≤ m/2 are tested, with p-values multiplied by their number. The smallest step between numbers in the
        tail, which rounding makes, is subtracted from each gap. Empty if fewer than 8 spacings are free of ties.

        Source: A. Rényi, Acta Math. Acad. Sci. Hung. 4, 191 (1953); V. F. Pisarenko and D. Sornette, Eur. Phys. J.
            Spec. Top. 205, 95 (2012).
        """
        m, magnitude = self._tail()
        if self.without_tail():
            return np.empty(0)
        rank, gap = np.arange(1, m + 1), -np.diff(np.log(magnitude))
        below = np.cumsum((rank * gap)[::-1])[::-1] - rank * gap
        tested = slice(m // 2)
        wide = rank[tested] * np.maximum(gap[tested] - gap[gap > 0].min(), 0.0)
        below, left = below[tested], m - rank[tested]
        with np.errstate(divide="ignore"):
            log_p = np.where(wide > 0, -left * (np.log(below + wide) - np.log(below)), 0.0)
        return np.minimum(1.0, len(left) * np.exp(log_p))

    def without_tail(self) -> Reason:
        _, magnitude = self._tail()
        if self.count < _FEWEST * _SHARE:
            return Reason("few_elements", {"count": int(self.count), "needed": _FEWEST * _SHARE})
        if len(np.unique(magnitude[magnitude > 0])) <= _FEWEST or not magnitude[-1] > 0:
            return Reason("no_spacings")
        return Reason()

    def _tail(self) -> tuple[int, Float[np.ndarray, " element"]]:
        m = min(_TAIL, self.count // _SHARE, len(self.value) - 1)
        return m, np.abs(self.value[: m + 1])


def largest_elements(numbers: Shaped[np.ndarray, " number"]) -> LargestElements:
    """Find the largest of a flat array of floats, whose bits without the sign sort as their magnitudes do."""
    kind = _BITS[numbers.dtype.itemsize]
    bits = numbers.view(kind) & kind(np.iinfo(kind).max >> 1)
    count = min(_TAIL + 1, numbers.size)
    sample = bits[::_STRIDE]
    rank = min(sample.size, _RANK)
    places = np.flatnonzero(bits >= np.partition(sample, sample.size - rank)[sample.size - rank])
    if places.size < count:
        places = np.arange(numbers.size)
    if places.size > 8 * count:
        least = np.partition(bits[places], places.size - count)[places.size - count]
        places = places[bits[places] >= least]
    first = places[np.argsort(~bits[places], kind="stable")[:count]]
    return LargestElements(numbers.size, first, numbers[first].astype(np.float64))


@dataclass(frozen=True)
class ElementSummary:
    sketch: statistics.ElementSketch
    largest: LargestElements

    def merged(self, other: ElementSummary) -> ElementSummary:
        return ElementSummary(self.sketch.merged(other.sketch), self.largest.merged(other.largest))


def summarized(
    block: Shaped[np.ndarray, "row column"], map_spans: Callable[..., Iterable[ElementSummary]] = map
) -> ElementSummary:
    """Summarize a block of a matrix; ``map_spans`` can spread its spans of 2^21 elements over threads."""
    flat = np.ascontiguousarray(block).reshape(-1)
    spans = [flat[start : start + _SPAN] for start in range(0, flat.size, _SPAN)]

    def summary(numbers: Shaped[np.ndarray, " number"]) -> ElementSummary:
        return ElementSummary(statistics.element_sketch([numbers]), largest_elements(numbers))

    return reduce(ElementSummary.merged, map_spans(summary, spans))


@dataclass(frozen=True)
class Elements:
    count: int  # number of elements
    sigma: float  # standard deviation
    # values in the order of :data:`STATISTICS`; NaN if the sample does not allow one
    statistics: Float[np.ndarray, " statistic"]
    histogram: Float[np.ndarray, " bin"]  # density of (w - w̄)/s in :data:`BINS`; NaN for a constant matrix
    log_magnitude_histogram: Float[np.ndarray, " magnitude_bin"]  # density of log₁₀ |w| in :data:`MAGNITUDE_BINS`
    reason: Reason  # why statistics are missing

    def entry(
        self, shape: tuple[int, int], scores: Float[np.ndarray, "statistic field"], reasons: Iterable[Reason]
    ) -> dict[str, Any]:
        """Return the values of the matrix by the names of their variables; ``reasons`` are further ones."""
        return {
            **dict(zip(FIELDS, scores.T, strict=True)),
            "sigma": self.sigma,
            "n_rows": shape[0],
            "n_columns": shape[1],
            "histogram": self.histogram,
            "log_magnitude_histogram": self.log_magnitude_histogram,
            "reason": str(Reason.join(self.reason, *reasons)),
        }


def elements_of(sketch: statistics.ElementSketch) -> Elements:
    """Return the facts about a sketch; moments are kept even if it has too few elements for other statistics."""
    moments, values = sketch.moments(), statistics.element_statistics(sketch)
    n, std = moments.count, moments.std
    if std > 0:
        by_moments = (moments.mean / std, moments.skewness, moments.excess_kurtosis, moments.largest_magnitude)
        values[: len(statistics.MOMENT_STATISTICS)] = by_moments
    centred = sketch.histogram(moments.mean + std * BINS) if std > 0 else np.full(len(BINS) - 1, math.nan)
    edges = 10.0**MAGNITUDE_BINS
    magnitudes = sketch.histogram(edges) + sketch.histogram(-edges[::-1])[::-1]
    width = BINS[1] - BINS[0]
    return Elements(n, std, values, centred / (n * width), magnitudes / (n * width), _reason(sketch, values))


def _reason(sketch: statistics.ElementSketch, values: Float[np.ndarray, " statistic"]) -> Reason:
    if sketch.moments().std == 0:
        return Reason("constant")
    missing: dict[Reason, list[str]] = {}
    for name in np.array(STATISTICS)[np.isnan(values)].tolist():
        missing.setdefault(statistics.reason_against(sketch, name) or Reason("no_number"), []).append(name)
    named = ((reason, {"statistics": listing(names, _NAMED)}) for reason, names in missing.items())
    return Reason.join(*(Reason(reason.code, {**reason.details, **names}) for reason, names in named))


def missing_lines(reasons: Iterable[tuple[str, Reason]]) -> list[str]:
    """List the matrices that lack statistics, with one line for each reason; others differ only in their values."""
    groups: dict[tuple[str, ...], list[tuple[str, Reason]]] = {}
    for name, reason in reasons:
        if reason:
            groups.setdefault(reason.codes, []).append((name, reason))
    return [f"{listing([name for name, _ in group], 1)}: {group[0][1].words}" for group in groups.values()]


def element_law(initialization: str, count: int) -> Callable[[str], Law | None]:
    """Return the law of each statistic of ``count`` independent elements; it is None if there are too few."""

    def law(name: str) -> Law | None:
        of_moments = name in statistics.MOMENT_STATISTICS and initialization == "normal"
        if count < (_FEWEST_OF_MOMENTS if of_moments else statistics.FEWEST_ELEMENTS):
            return None
        return element_null(name, count, initialization)

    return law


def against_null(
    observed: Float[np.ndarray, "... statistic"], law_of: Callable[[str], Law | None]
) -> Float[np.ndarray, "... statistic field"]:
    scores = np.full((*observed.shape, len(FIELDS)), np.nan)
    scores[..., 0] = observed
    for k, name in enumerate(STATISTICS):
        law = law_of(name)
        if law is None:
            continue
        value = observed[..., k]
        mean, std, known = float(law.mean()), float(law.std()), ~np.isnan(value)
        p_value = np.full(value.shape, np.nan)
        p_value[known] = np.maximum(law.p_value(value[known]), SMALLEST_P_VALUE)
        z_score = (value - mean) / std if std > 0 else statistics.normal_score(p_value, value > law.ppf(0.5))
        for field, column in enumerate((mean, std, z_score, p_value), 1):
            scores[..., k, field] = column
    return scores


def element_table(
    schema: Schema, coordinates: Mapping[str, Any], entries: Entries, families: Iterable[Any]
) -> xr.Dataset:
    """Make the group of these entries, with q-values of each statistic over each family of components."""
    bins = {"bin": BINS, "magnitude_bin": MAGNITUDE_BINS}
    coordinates = {**coordinates, **{name: 0.5 * (edges[1:] + edges[:-1]) for name, edges in bins.items()}}
    table = filled(schema, coordinates, entries, [name for name in schema if name not in coordinates])
    for family in families:
        p_value = table["p_value"].values[..., family, :]
        q_value = statistics.benjamini_hochberg(p_value.reshape(-1, p_value.shape[-1]), axis=0)
        table["q_value"].values[..., family, :] = q_value.reshape(p_value.shape)
    texts = {name: table[name].astype(str) for name in ("reason", "tail_reason") if name in table}
    return describe(table.assign(texts), schema)


ElementMode = Literal["matrices", "factors", "heads"]
ELEMENT_MODES = ("matrices", "factors", "heads")

_BLOCK = 1 << 20  # elements of W_QK computed at a time
_CIRCUITS = (*(CIRCUITS[name] for name in ("query", "key", "value", "output")), CIRCUITS["qk"])


class HeadElements:
    """Scorer of the elements of each head's W_Q, W_K, W_V and W_O, if a site has them, and of its W_QK."""

    def __init__(self, sites: Sequence[Site], products: bool, initialization: str) -> None:
        self._sites, self._initialization = sites, initialization
        self._circuits = _CIRCUITS if products else _CIRCUITS[:-1]
        self._elements: dict[tuple[int, Circuit], list[Elements]] = {}

    def submit(
        self, site: int, factors: Mapping[Factor, Shaped[np.ndarray, "factor_head rank width"]], pool: Executor
    ) -> dict[Circuit, list[Future[Elements]]]:
        def summary(*matrices: Shaped[np.ndarray, "rank width"]) -> Elements:
            return elements_of(reduce(ElementSummary.merged, map(summarized, element_blocks(*matrices))).sketch)

        submitted: dict[Circuit, list[Future[Elements]]] = {}
        for circuit in self._circuits:
            if set(circuit.factors) <= set(factors):
                matrices = [factors[factor] for factor in circuit.factors]
                n_heads = len(matrices[0])
                pairs = ([matrix[head * len(matrix) // n_heads] for matrix in matrices] for head in range(n_heads))
                submitted[circuit] = [pool.submit(summary, *pair) for pair in pairs]
        return submitted

    def keep(self, site: int, submitted: Mapping[Circuit, Sequence[Future[Elements]]]) -> None:
        for circuit, heads in submitted.items():
            self._elements[site, circuit] = [head.result() for head in heads]

    def missing(self) -> list[str]:
        return missing_lines(
            (
                f"{self._sites[site].place} {circuit.noun} {head}, {circuit.symbol}",
                Reason.join(elements.reason, _law(self._sites[site], circuit, self._initialization)[1]),
            )
            for (site, circuit), heads in self._elements.items()
            for head, elements in enumerate(heads)
        )

    def dataset(self) -> xr.Dataset:
        circuits = [circuit for circuit in self._circuits if any(key[1] == circuit for key in self._elements)]
        entries: Entries = {}
        for (index, circuit), heads in self._elements.items():
            site = self._sites[index]
            law_of, without_null = _law(site, circuit, self._initialization)
            scores = against_null(np.array([elements.statistics for elements in heads]), law_of)
            for head, elements in enumerate(heads):
                entry = elements.entry(_shape(site, circuit), scores[head], [without_null])
                entries[index, head, circuits.index(circuit)] = entry
        coordinates = {
            **layer_coordinates([site.place for site in self._sites]),
            "head": np.arange(max(site.n_heads for site in self._sites)),
            "component": [circuit.symbol for circuit in circuits],
            "element_statistic": list(STATISTICS),
        }
        families = [[component] for component in range(len(circuits))]
        return element_table(head_elements_schema(), coordinates, entries, families)


def element_blocks(*factors: Shaped[np.ndarray, "rank width"]) -> Iterator[Shaped[np.ndarray, "row column"]]:
    """Yield one matrix, or the product AᵀB of two in blocks of its rows, in float32.

    That changes a statistic of 16.8 million elements by less than 0.02 of its standard error (benchmarks/inventory.py).
    """
    if len(factors) == 1:
        yield from factors
        return
    left, right = (np.asarray(factor, dtype=np.float32) for factor in factors)
    height = max(1, _BLOCK // right.shape[1])
    yield from (left[:, start : start + height].T @ right for start in range(0, left.shape[1], height))


def _shape(site: Site, circuit: Circuit) -> tuple[int, int]:
    sizes = [getattr(site, name) for name in circuit.dims]
    return sizes[0], sizes[-1]


def _law(site: Site, circuit: Circuit, initialization: str) -> tuple[Callable[[str], Law | None], Reason]:
    """Return the law of each statistic of a head's matrix, and the reason if there is no law."""
    if any(holds_product(getattr(site, factor.name)) for factor in circuit.factors):
        return lambda _: None, Reason("product_of_matrices")
    rows, columns = _shape(site, circuit)
    if len(circuit.factors) == 1:
        return element_law(initialization, rows * columns), Reason()
    dims: Any = tuple(getattr(site, name) for name in circuit.dims)
    try:
        product_element_null(STATISTICS[0], *dims, distribution=initialization)
    except ParameterError as error:
        return lambda _: None, Reason("unknown_null", {"error": str(error)})
    return lambda name: product_element_null(name, *dims, distribution=initialization), Reason()
