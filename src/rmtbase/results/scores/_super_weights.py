"""Super-weights: elements that stand apart from the tail of their own matrix, or are improbable under its body.

If σ is the width of the normal law fitted to the core, an element at distance x has the tail probability
u(x) = 2 Φ(-x/σ), and any of N independent elements is so large with probability 1 - (1 - u)^N. The law is fitted to the
core, so the tail must first be shown to fall off as that of a normal law, or faster: N u(x₍ₘ₎) ~ Gamma(m) of the m-th
largest element, and given it, u(x₍ₖ₎)/u(x₍ₘ₎) is Beta(k, m - k). Heavier bodies have larger elements there; if one of
the two p-values is below 0.01, only a gap can separate elements from the tail (:meth:`LargestElements.isolation`).
σ is raised, if necessary, until the m-th largest element is at its expected place.

Measured by studies/element_nulls/improbable.py on 150 matrices of 4 096 elements at a level of 2.5 %: an element is
listed in 1.3 ± 0.9 % of normal matrices, in none with uniform, logistic, Laplace, Student t₃ or t₁₀ elements, and in 5
to 6 ± 2 % if the tail is only slightly heavier (t₂₀, t₅₀, or two scales with ratio 1.2). One element of 7 to 12 σ among
16 384 normal ones is listed in 94 to 100 % of 50 matrices; the others are reported as undecided.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import log_ndtr, logsumexp
from scipy.stats import beta, gamma, norm

from rmtbase.models import MatrixName
from rmtbase.results.scores._element_scores import LargestElements
from rmtbase.results.scores.schema import SUPER_WEIGHTS_SCHEMA
from rmtbase.tables import describe

LEVEL = 0.05
"""Probability that any element of a model is called a super-weight although none stands apart."""

_TAIL, _SHARE, _FEWEST = 64, 64, 16  # largest elements used; at most one element in so many; fewest that decide
_INNER = 8  # elements below the listed ones, which show the shape of the tail
_HEAVY = 0.01  # p-value below which a tail is not that of a normal law

_POOLS = {
    **dict.fromkeys(("attention_query", "attention_key"), "selection"),
    **dict.fromkeys(("attention_output", "mlp_in", "mlp_gate", "mlp_out"), "transmission"),
}
"""The classes of the Weibull framework, over all layers; any other component is pooled with itself."""


@dataclass(frozen=True)
class Tail:
    name: MatrixName
    shape: tuple[int, int]  # (outputs, inputs)
    transposed: bool  # whether places count elements of the transpose
    largest: LargestElements
    core_sigma: float  # standard deviation of the normal law that is fitted to the core
    weibull_shape: float  # of the law that is fitted to the magnitudes of the body
    weibull_scale: float

    @property
    def pool(self) -> str:
        return _POOLS.get(self.name.component, self.name.component)

    def place(self, place: int) -> tuple[int, int]:
        """Return (row, column) of an element, given its place in the order of reading."""
        outer, inner = divmod(place, self.shape[0 if self.transposed else 1])
        return (inner, outer) if self.transposed else (outer, inner)


class Improbable(NamedTuple):
    p_value: Float[np.ndarray, " rank"]  # of the listed elements, in descending order; that any of N is so large
    is_heavy: bool  # whether the tail is heavier than the body's, so that these elements cannot be judged


def improbable(largest: LargestElements, core_sigma: float, level: float) -> Improbable:
    """Find the largest elements that any of N would reach with a probability of at most ``level``."""
    count, m = largest.count, min(_TAIL, largest.count // _SHARE, len(largest.value) - 1)
    if m < _FEWEST or not core_sigma > 0 or not abs(largest.value[m]) > 0:
        return Improbable(np.empty(0), False)
    magnitude = np.abs(largest.value[: m + 1])
    if not np.any(_of_any(_log_normal_sf(magnitude[:1], core_sigma), count) <= level):
        return Improbable(np.empty(0), False)
    sigma = max(core_sigma, magnitude[m - 1] / float(norm.isf(0.5 * m / count)))
    p_value = _of_any(_log_normal_sf(magnitude, sigma), count)
    listed = int(np.searchsorted(p_value, level, side="right"))  # p-values ascend
    if listed > m // 2:
        return Improbable(p_value[:listed], True)
    left = m - listed
    log_u = _log_normal_sf(magnitude, core_sigma)
    place = gamma.cdf(count * np.exp(log_u[m - 1]), left)
    course = beta.cdf(np.exp(log_u[listed + _INNER - 1] - log_u[m - 1]), _INNER, left - _INNER)
    is_heavy = bool(min(place, course) < _HEAVY)
    return Improbable(p_value[: max(listed, int(is_heavy))], is_heavy)


class Search(NamedTuple):
    super_weights: xr.Dataset  # ``/super_weights``: at most 32 extremes of each matrix
    heavy: list[MatrixName]  # matrices in which only elements above a gap could be found
    searched: int  # number of matrices with a tail


def search(tails: Sequence[Tail], level: float = LEVEL) -> Search:
    """Search for the super-weights of a model, those least probable under their Weibull body first.

    Each matrix that has a tail has two tests, each with half of ``level`` divided by the number of these matrices. One
    finds elements above a gap (:meth:`LargestElements.isolation`), whatever the tail; the other finds elements that are
    improbable under the body (:func:`improbable`), if the tail is that of a normal law.
    """
    searched = [tail for tail in tails if not tail.largest.without_tail()]
    level, heavy, rows = 0.5 * level / max(len(searched), 1), [], []
    for tail in searched:
        body, p_value = improbable(tail.largest, tail.core_sigma, level), tail.largest.isolation()
        heavy += [tail.name] if body.is_heavy else []
        above_gap = int(np.flatnonzero(p_value <= level).max(initial=-1)) + 1
        pool = [other for other in tails if other.pool == tail.pool and other.core_sigma > 0]
        for rank in range(max(above_gap, 0 if body.is_heavy else body.p_value.size)):
            rows.append(_row(tail, rank, float(p_value[rank:].min(initial=1.0)), pool))
    rows.sort(key=lambda row: (math.isnan(row["log10_tail_probability"]), row["log10_tail_probability"]))
    variables = {}
    for name, variable in SUPER_WEIGHTS_SCHEMA.items():
        kinds = variable.domain.kinds
        dtype = str if "U" in kinds else float if "f" in kinds else int
        variables[name] = variable.dims, np.array([row[name] for row in rows], dtype=dtype)
    return Search(describe(xr.Dataset(variables), SUPER_WEIGHTS_SCHEMA), heavy, len(searched))


def _row(tail: Tail, rank: int, p_value: float, pool: Sequence[Tail]) -> dict[str, Any]:
    """Describe one extreme; its tail probabilities are those that any of N independent elements is so large.

    P(|w| ≥ x) is 2 Φ(-x/σ_core) under the matrix's core, exp(-(x/λ)^k) under its body, and Σ_c N_c/N 2 Φ(-x/σ_c) under
    the cores of its pool. A pool of components with different σ has heavy tails without any training: the excess
    kurtosis of W_O and MLPs at step 0 is 1.08 in Pythia-70m and 3.47 in Pythia-410m.
    """
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


def _log_normal_sf(value: Float[np.ndarray, "..."] | float, sigma: Float[np.ndarray, "..."] | float) -> np.ndarray:
    """Return ln P(|w| ≥ |value|) of N(0, σ²)."""
    return math.log(2.0) + log_ndtr(-np.abs(value) / np.asarray(sigma))


def _of_any(log_probability: Float[np.ndarray, "..."], count: int) -> Float[np.ndarray, "..."]:
    with np.errstate(divide="ignore"):
        return -np.expm1(count * np.log1p(-np.exp(log_probability)))


def log10_of_any(log_probability: float, count: float) -> float:
    """Return log₁₀(1 - (1 - p)^N), given ln p: any of N independent events, each with probability p, occurs."""
    if log_probability + math.log(count) < -30.0:  # N p to rounding
        return (log_probability + math.log(count)) / math.log(10.0)
    probability = math.exp(log_probability)
    return 0.0 if probability >= 1.0 else math.log10(-math.expm1(count * math.log1p(-probability)))
