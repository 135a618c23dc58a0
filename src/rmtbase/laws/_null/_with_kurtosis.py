"""Nulls of a chain whose entries are not normal: shifted and widened to first order in their fourth cumulant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import chain_map, chain_scale
from rmtbase.laws._chain._linear_statistics import linear_statistics_of_map
from rmtbase.laws._distribution import Distribution, FloatArray, KnownSpread, TransformedLaw
from rmtbase.laws._edge._extreme_eigenvalues import largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._null._linear import EXPANSIONS, POWERS, SECOND, summands, sums

_POWERS = {"largest_eigenvalue": 1.0, "smallest_eigenvalue": 1.0, "trace": 1.0, "trace_of_square": 2.0}


class Change(NamedTuple):
    """Change of a statistic T per unit of K = Σ_l κ_l / (n_{l-1} n_l); see ``_fourth_cumulant``."""

    ratio: float  # d ln E T / d K for a positive statistic without an upper bound, 0 for others
    shift: float  # d E T / d K for the others
    # d ln T / d ln c (d T / d ln c for the log-determinant), with c the scale of the eigenvalues; the variance of ln c
    # grows by K. It is 0 for scale-free statistics.
    scale: float


@dataclass(frozen=True)
class MovedLaw(TransformedLaw, KnownSpread):
    """Law of ``centre`` + (T - E T) · ``stretch``, where T has another law; ``centre`` is its mean."""

    law: Distribution
    centre: float
    stretch: float

    @property
    def support(self) -> tuple[float, float]:
        low, high = self.law.support
        return float(self._to(low)), float(self._to(high))

    def mean(self) -> float:
        return self.centre

    def std(self) -> float:
        return self.stretch * self.law.std()

    def _pdf(self, x: FloatArray) -> FloatArray:
        return self.law.pdf(self._from(x)) / self.stretch

    def _to(self, x: FloatArray | float) -> FloatArray:
        return self.centre + (x - self.law.mean()) * self.stretch  # type: ignore[return-value]

    def _from(self, x: FloatArray) -> FloatArray:
        return self.law.mean() + (x - self.centre) / self.stretch


def with_kurtosis(
    law: Distribution, statistic: str, dims: tuple[int, ...], self_normalized: bool, kurtosis: float
) -> MovedLaw:
    change = change_of(statistic, dims)
    mean, std = law.mean(), law.std()
    times = math.exp(kurtosis * change.ratio)
    degree = change.scale if statistic == "log_determinant" else change.scale * mean
    grown = 1.0 if self_normalized else math.sqrt(max(1.0 + kurtosis * (degree / std) ** 2, 0.0))
    return MovedLaw(law, mean * times + kurtosis * change.shift, times * grown)


@lru_cache(maxsize=1024)
def change_of(statistic: str, dims: tuple[int, ...]) -> Change:
    rank, scale = min(dims), _POWERS.get(statistic, 0.0)
    if statistic == "trace":
        return Change(0.0, 0.0, scale)
    if statistic == "log_determinant":
        return Change(0.0, -0.5 * rank**2, float(rank))
    if statistic == "largest_eigenvalue":
        return Change(_at_mean(largest_eigenvalue, dims), 0.0, scale)
    if statistic == "smallest_eigenvalue":
        return Change(_at_mean(smallest_eigenvalue, dims), 0.0, scale)
    convention = "singular" if statistic.endswith("_singular") or statistic == "effective_rank" else "eigenvalue"
    power = POWERS[convention]
    if statistic.startswith("condition_number"):
        return Change(power * (_at_mean(largest_eigenvalue, dims) - _at_mean(smallest_eigenvalue, dims)), 0.0, 0.0)
    totals, by = _change_of_sums(dims, convention)
    if statistic == "trace_of_square":
        return Change(float(by[2] / totals[2]), 0.0, scale)
    if statistic.startswith("stable_rank"):
        stable = float(totals[0]) / math.exp(power * chain_map(dims).log_upper)
        return Change(0.0, stable * (float(by[0] / totals[0]) - power * _at_mean(largest_eigenvalue, dims)), 0.0)
    summed = "participation_ratio" if "participation_ratio" in statistic else "entropy"
    chosen = [0, SECOND[summed]]
    expansion = EXPANSIONS[summed](*totals[chosen])  # the entropy, or ln of the participation ratio
    shift = float(expansion.gradient @ by[chosen])
    if "entropy" not in statistic:
        shift *= math.exp(expansion.value)
    return Change(0.0, shift / rank if statistic.startswith("normalized") else shift, 0.0)


@lru_cache(maxsize=256)
def _change_of_sums(dims: tuple[int, ...], convention: str) -> tuple[FloatArray, FloatArray]:
    """Return the means of the sums for normal entries, and their changes per unit of K."""
    normal = sums(dims, convention).mean
    return normal, linear_statistics_of_map(chain_map(dims), summands(convention), 1.0).mean - normal


@lru_cache(maxsize=256)
def _at_mean(edge: Callable[..., Distribution], dims: tuple[int, ...]) -> float:
    """Return r Re ψ at the mean of an extreme eigenvalue; nan if it has no law."""
    try:
        mean = edge(dims=dims, normalization="none").mean()
    except ParameterError:  # too few eigenvalues
        return math.nan
    chain = chain_map(dims)
    return float(chain.rank * chain.real_psi(np.log(np.array([mean / chain_scale(chain, Fraction(1))])))[0])
