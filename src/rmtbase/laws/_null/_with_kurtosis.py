"""The nulls of a chain whose entries are not normal: moved and widened by their fourth cumulant, to first order."""

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
from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._edge._extreme_eigenvalues import largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._null._linear import EXPANSIONS, POWERS, SECOND, summands, sums

_POWERS = {"largest_eigenvalue": 1.0, "smallest_eigenvalue": 1.0, "trace": 1.0, "trace_of_square": 2.0}


class Change(NamedTuple):
    """What K = Σ_l κ_l / (n_{l-1} n_l) does to a statistic, per unit of it: see ``_fourth_cumulant``.

    Attributes:
        ratio: d ln E T / d K of a positive statistic without an upper bound, 0 of others.
        shift: d E T / d K of the others.
        scale: d T / d ln of the scale of the eigenvalues, whose variance grows by K; 0 where it is taken out.
    """

    ratio: float
    shift: float
    scale: float


@dataclass(frozen=True)
class MovedLaw(Distribution):
    """The law of mean + (T - mean) · stretch for T of another law, ``centre`` its new mean."""

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

    def var(self) -> float:
        return self.std() ** 2

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.law.cdf(self._from(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        return self.law.sf(self._from(x))

    def _pdf(self, x: FloatArray) -> FloatArray:
        return self.law.pdf(self._from(x)) / self.stretch

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self._to(self.law.ppf(q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return self._to(self.law.isf(q))

    def _to(self, x: FloatArray | float) -> FloatArray:
        return self.centre + (x - self.law.mean()) * self.stretch  # type: ignore[return-value]

    def _from(self, x: FloatArray) -> FloatArray:
        return self.law.mean() + (x - self.centre) / self.stretch


def with_kurtosis(
    law: Distribution, statistic: str, dims: tuple[int, ...], self_normalized: bool, kurtosis: float
) -> MovedLaw:
    """The null of a statistic with K = ``kurtosis`` from that of normal entries."""
    change = change_of(statistic, dims)
    mean, std = law.mean(), law.std()
    times = math.exp(kurtosis * change.ratio)
    degree = change.scale if statistic == "log_determinant" else change.scale * mean
    grown = 1.0 if self_normalized else math.sqrt(max(1.0 + kurtosis * (degree / std) ** 2, 0.0))
    return MovedLaw(law, mean * times + kurtosis * change.shift, times * grown)


@lru_cache(maxsize=1024)
def change_of(statistic: str, dims: tuple[int, ...]) -> Change:
    """The change of a statistic of a chain: of sums by theirs, of an extreme eigenvalue by that at its mean."""
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
    of = "participation_ratio" if "participation_ratio" in statistic else "entropy"
    chosen = [0, SECOND[of]]
    expansion = EXPANSIONS[of](*totals[chosen])  # of the entropy, or ln of the participation ratio
    shift = float(expansion.gradient @ by[chosen])
    if "entropy" not in statistic:
        shift *= math.exp(expansion.value)
    return Change(0.0, shift / rank if statistic.startswith("normalized") else shift, 0.0)


@lru_cache(maxsize=256)
def _change_of_sums(dims: tuple[int, ...], convention: str) -> tuple[FloatArray, FloatArray]:
    """The means of the sums of normal entries, and what K adds to them per unit."""
    normal = sums(dims, convention).mean
    return normal, linear_statistics_of_map(chain_map(dims), summands(convention), 1.0).mean - normal


@lru_cache(maxsize=256)
def _at_mean(edge: Callable[..., Distribution], dims: tuple[int, ...]) -> float:
    """R Re ψ where an extreme eigenvalue lies on average; nan where it has no law."""
    try:
        mean = edge(dims=dims, normalization="none").mean()
    except ParameterError:  # too few eigenvalues
        return math.nan
    chain = chain_map(dims)
    return float(chain.rank * chain.real_psi(np.log(np.array([mean / chain_scale(chain, Fraction(1))])))[0])
