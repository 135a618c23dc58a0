"""Super-weights: elements that stand apart from the tail of their own matrix, or are improbable under its body."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import log_ndtr, logsumexp

from rmtbase.models import MatrixName
from rmtbase.results.scores._element_scores import STATISTICS, Elements, ElementSummary
from rmtbase.results.scores._improbable_elements import improbable
from rmtbase.results.scores._largest_elements import LargestElements
from rmtbase.results.scores.schema import SUPER_WEIGHTS_SCHEMA
from rmtbase.tables import describe

LEVEL = 0.05
"""Probability that any element of a model is called a super-weight although none stands apart."""

_POOLS = {
    **dict.fromkeys(("attention_query", "attention_key"), "selection"),
    **dict.fromkeys(("attention_output", "mlp_in", "mlp_gate", "mlp_out"), "transmission"),
}
"""The classes of the Weibull framework, over all layers; any other component is pooled with itself."""


@dataclass(frozen=True)
class Tail:
    """Facts about a matrix that identify its super-weights."""

    name: MatrixName
    shape: tuple[int, int]  # (outputs, inputs)
    transposed: bool  # whether places count elements of the transpose
    largest: LargestElements
    core_sigma: float  # standard deviation of the normal law that is fitted to the core
    # weibull_shape, weibull_scale: parameters of the law that is fitted to the magnitudes of the body
    weibull_shape: float
    weibull_scale: float

    @classmethod
    def from_summary(
        cls, name: MatrixName, shape: tuple[int, int], transposed: bool, summary: ElementSummary, elements: Elements
    ) -> Tail:
        """Collect them from the summary of the elements, in the elements' own units."""
        statistics = dict(zip(STATISTICS, elements.statistics.tolist(), strict=True))
        return cls(
            name,
            shape,
            transposed,
            summary.largest,
            statistics["core_sigma"] * elements.sigma,
            statistics["weibull_shape"],
            statistics["weibull_scale"] * summary.sketch.sums.root_mean_square,
        )

    @property
    def pool(self) -> str:
        """Pool to which the matrix belongs."""
        return _POOLS.get(self.name.component, self.name.component)

    def place(self, place: int) -> tuple[int, int]:
        """Return (row, column) of an element, given its place in the order of reading."""
        outer, inner = divmod(place, self.shape[0 if self.transposed else 1])
        return (inner, outer) if self.transposed else (outer, inner)


class SearchedTails:
    """Search for the super-weights of a model, by two tests of each matrix that has a tail.

    Each test has half of ``level`` divided by the number of these matrices. One finds elements above a gap
    (:meth:`LargestElements.isolation`), whatever the tail; the other finds elements that are improbable under the body
    (:func:`improbable`), if the tail is that of a normal law: it is not for the matrices ``heavy``.
    """

    def __init__(self, tails: Sequence[Tail], level: float = LEVEL) -> None:
        self._tails = tails
        self.searched = [tail for tail in tails if not tail.largest.without_tail()]
        self._level = 0.5 * level / max(len(self.searched), 1)
        bodies = {tail.name: improbable(tail.largest, tail.core_sigma, self._level) for tail in self.searched}
        self._listed = {name: 0 if body.is_heavy else body.p_value.size for name, body in bodies.items()}
        self.heavy = [name for name, body in bodies.items() if body.is_heavy]

    def super_weights(self) -> xr.Dataset:
        """List the extremes of all matrices, at most 32 of each, those least probable under their Weibull body first.

        The tail probabilities are log₁₀ of the probability 1 - (1 - P(|w| ≥ x))^N that any of N independent elements is
        so large:

        * under the normal law of the matrix's own core, P = 2 Φ(-x/σ_core), where N is its number of elements;
        * under the Weibull law of its body, P = exp(-(x/λ)^k), extrapolated as in the source;
        * under the mixture of the core laws of all matrices of its pool that have one, P = Σ_c N_c/N 2 Φ(-x/σ_c). A
          pool of components with different σ has heavy tails without any training: the excess kurtosis of W_O and MLPs
          at step 0 is 1.08 in Pythia-70m and 3.47 in Pythia-410m.
        """
        rows = []
        for tail in self.searched:
            p_value = tail.largest.isolation()
            above_gap = int(np.flatnonzero(p_value <= self._level).max(initial=-1)) + 1
            pool = [other for other in self._tails if other.pool == tail.pool and other.core_sigma > 0]
            for rank in range(max(above_gap, self._listed[tail.name])):
                rows.append(_row(tail, rank, float(p_value[rank:].min(initial=1.0)), pool))
        rows.sort(key=lambda row: (math.isnan(row["log10_tail_probability"]), row["log10_tail_probability"]))
        variables = {
            name: (variable.dims, np.array([row[name] for row in rows], dtype=_dtype(variable.domain.kinds)))
            for name, variable in SUPER_WEIGHTS_SCHEMA.items()
        }
        return describe(xr.Dataset(variables), SUPER_WEIGHTS_SCHEMA)


def _row(tail: Tail, rank: int, p_value: float, pool: Sequence[Tail]) -> dict[str, Any]:
    """Describe an element by the names of its variables."""
    value, (row, column) = float(tail.largest.value[rank]), tail.place(int(tail.largest.place[rank]))
    counts = np.array([member.largest.count for member in pool], dtype=float)
    sigmas = np.array([member.core_sigma for member in pool])
    core, body = _log_normal_sf(value, tail.core_sigma), -((abs(value) / tail.weibull_scale) ** tail.weibull_shape)
    pooled = float(np.asarray(logsumexp(_log_normal_sf(value, sigmas) + np.log(counts / counts.sum()))))
    (stack, layer), component, expert = tail.name
    return {
        "layer": layer,
        "stack": stack,
        "component": component,
        "expert": -1 if expert is None else expert,
        "row": row,
        "column": column,
        "value": value,
        "magnitude_over_core": abs(value) / tail.core_sigma,
        "isolation_p_value": p_value,
        "log10_core_tail_probability": log10_of_any(float(core), tail.largest.count),
        "log10_tail_probability": log10_of_any(body, tail.largest.count),
        "pool": tail.pool,
        "log10_pooled_tail_probability": log10_of_any(pooled, counts.sum()),
    }


def _log_normal_sf(value: float, sigma: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
    """Return ln P(|w| ≥ |value|) of N(0, σ²)."""
    return math.log(2.0) + log_ndtr(-abs(value) / np.asarray(sigma))


def log10_of_any(log_probability: float, count: float) -> float:
    """Return log₁₀(1 - (1 - p)^N), given ln p: any of N independent events, each with probability p, occurs."""
    if log_probability + math.log(count) < -30.0:  # N p to rounding
        return (log_probability + math.log(count)) / math.log(10.0)
    probability = math.exp(log_probability)
    return 0.0 if probability >= 1.0 else math.log10(-math.expm1(count * math.log1p(-probability)))


def _dtype(kinds: str) -> type:
    return str if "U" in kinds else float if "f" in kinds else int
