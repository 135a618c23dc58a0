"""Statistics of the elements of a matrix, and their distances from a null."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.laws import element_null
from rmtbase.nulls import SMALLEST_P_VALUE
from rmtbase.reasons import Reason
from rmtbase.results.scores._largest_elements import LargestElements, largest_elements
from rmtbase.statistics import (
    ELEMENT_STATISTICS,
    FEWEST_ELEMENTS,
    MOMENT_STATISTICS,
    ElementSketch,
    element_sketch,
    element_statistics,
    normal_score,
    reason_against,
)
from rmtbase.words import listing

FIELDS = ("observed", "null_mean", "null_std", "z_score", "p_value")
STATISTICS = tuple(ELEMENT_STATISTICS)

BINS = np.linspace(-8.0, 8.0, 161)
"""Edges of the histogram of (w - w̄)/s."""
MAGNITUDE_BINS = np.linspace(-12.0, 4.0, 161)
"""Edges of the histogram of log₁₀ |w|."""

_SPAN = 1 << 21  # elements summarized at a time
_NAMED = 3  # missing statistics that are named; the file lists all
_FEWEST_OF_MOMENTS = 20  # elements from which on the null of the moments is known

Law = Any
"""Law of a statistic: ``mean()``, ``std()``, ``p_value(observed)``."""


@dataclass(frozen=True)
class ElementSummary:
    """Summary of the elements read so far; the summaries of two parts can be merged."""

    sketch: ElementSketch
    largest: LargestElements

    def merged(self, other: ElementSummary) -> ElementSummary:
        """Merge with the summary of the elements that follow these."""
        return ElementSummary(self.sketch.merged(other.sketch), self.largest.merged(other.largest))


def summarized(
    block: Shaped[np.ndarray, "row column"], map_spans: Callable[..., Iterable[ElementSummary]] = map
) -> ElementSummary:
    """Summarize a block of a matrix; ``map_spans`` can spread its spans of 2^21 elements over threads."""
    flat = np.ascontiguousarray(block).reshape(-1)
    spans = [flat[start : start + _SPAN] for start in range(0, flat.size, _SPAN)]
    return reduce(ElementSummary.merged, map_spans(_summarized_span, spans))


def _summarized_span(numbers: Shaped[np.ndarray, " number"]) -> ElementSummary:
    return ElementSummary(element_sketch([numbers]), largest_elements(numbers))


@dataclass(frozen=True)
class Elements:
    """Facts about the elements of one matrix that a file keeps."""

    count: int  # number of elements
    sigma: float  # standard deviation
    # values in the order of :data:`STATISTICS`; NaN if the sample does not allow one
    statistics: Float[np.ndarray, " statistic"]
    histogram: Float[np.ndarray, " bin"]  # density of (w - w̄)/s in :data:`BINS`; NaN for a constant matrix
    log_magnitude_histogram: Float[np.ndarray, " magnitude_bin"]  # density of log₁₀ |w| in :data:`MAGNITUDE_BINS`
    reason: Reason  # why statistics are missing


def elements_of(sketch: ElementSketch) -> Elements:
    """Return the facts about a sketch; moments are kept even if it has too few elements for other statistics."""
    moments, statistics = sketch.moments(), element_statistics(sketch)
    n, std = moments.count, moments.std
    if std > 0:
        by_moments = (moments.mean / std, moments.skewness, moments.excess_kurtosis, moments.largest_magnitude)
        statistics[: len(MOMENT_STATISTICS)] = by_moments
    centred = sketch.histogram(moments.mean + std * BINS) if std > 0 else np.full(len(BINS) - 1, math.nan)
    edges = 10.0**MAGNITUDE_BINS
    magnitudes = sketch.histogram(edges) + sketch.histogram(-edges[::-1])[::-1]
    width = BINS[1] - BINS[0]
    return Elements(n, std, statistics, centred / (n * width), magnitudes / (n * width), _reason(sketch, statistics))


def _reason(sketch: ElementSketch, statistics: Float[np.ndarray, " statistic"]) -> Reason:
    """Give the reasons why statistics are missing, and the statistics missing for each."""
    if sketch.moments().std == 0:
        return Reason("constant")
    missing: dict[Reason, list[str]] = {}
    for name in np.array(STATISTICS)[np.isnan(statistics)].tolist():
        missing.setdefault(reason_against(sketch, name) or Reason("no_number"), []).append(name)
    return Reason.join(
        *(
            Reason(reason.code, {**reason.details, "statistics": listing(names, _NAMED)})
            for reason, names in missing.items()
        )
    )


def missing_lines(reasons: Iterable[tuple[str, Reason]]) -> list[str]:
    """List the matrices that lack statistics, with one line for each reason; others differ only in their values."""
    groups: dict[tuple[str, ...], list[tuple[str, Reason]]] = {}
    for name, reason in reasons:
        if reason:
            groups.setdefault(reason.codes, []).append((name, reason))
    return [
        f"{name}{f' and {len(group) - 1} more' if len(group) > 1 else ''}: {reason.words}"
        for group in groups.values()
        for name, reason in group[:1]
    ]


def element_law(initialization: str, count: int) -> Callable[[str], Law | None]:
    """Return the law of each statistic of ``count`` independent elements; it is None if there are too few."""

    def law(name: str) -> Law | None:
        of_moments = name in MOMENT_STATISTICS and initialization == "normal"
        if count < (_FEWEST_OF_MOMENTS if of_moments else FEWEST_ELEMENTS):
            return None
        return element_null(name, count, initialization)

    return law


def against_null(
    observed: Float[np.ndarray, "... statistic"], law_of: Callable[[str], Law | None]
) -> Float[np.ndarray, "... statistic field"]:
    """Return :data:`FIELDS` for the statistics of matrices that share one null."""
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
        z_score = (value - mean) / std if std > 0 else normal_score(p_value, value > law.ppf(0.5))
        for field, column in enumerate((mean, std, z_score, p_value), 1):
            scores[..., k, field] = column
    return scores


def bin_coordinates() -> dict[str, Float[np.ndarray, " bin"]]:
    """Return the centres of the bins of both histograms."""
    bins = {"bin": BINS, "magnitude_bin": MAGNITUDE_BINS}
    return {name: 0.5 * (edges[1:] + edges[:-1]) for name, edges in bins.items()}
