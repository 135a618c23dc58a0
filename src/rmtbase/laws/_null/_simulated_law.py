"""Laws of statistics of few weights: expansions that are corrected by simulated quantiles."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special
from scipy.interpolate import CubicSpline, PchipInterpolator

from rmtbase.laws._distribution import Distribution, FloatArray, InvertedScore
from rmtbase.laws._element.parents import PARENTS, Parent
from rmtbase.laws._tabulated import normal_rule

_FAR, _RISING = 30.0, 1e-3
_STEPS, _SETTLED = 60, 1e-15
_CHECKED = 1_000  # points at which the slope of a spline is checked

Quantiles = dict[int, FloatArray]
"""n ↦ quantiles of a statistic at the normal scores of the table."""


@dataclass(frozen=True)
class MendedLaw(InvertedScore):
    """Law of T whose normal score is a monotone function, given by a table, of the score under another law."""

    law: Distribution  # the other law
    plain: FloatArray  # scores of T under that law, ascending, (place,)
    score: FloatArray  # and under this one
    # mean and standard deviation of T if they are known exactly; otherwise they follow by quadrature
    moments: tuple[float, float] | None = None

    @property
    def support(self) -> tuple[float, float]:
        return self.law.support

    @cached_property
    def _forward(self) -> _Monotone:
        return _Monotone(self.plain, self.score)

    def _score(self, x: FloatArray) -> FloatArray:
        return self._forward(normal_scores(self.law, x))

    def at_score(self, z: FloatArray) -> FloatArray:
        plain = np.clip(self._forward.inverse(z), -_FAR, _FAR)
        lower = special.ndtr(-np.abs(plain))
        return np.where(plain < 0.0, self.law.ppf(lower), self.law.isf(lower))

    @cached_property
    def _mean_and_variance(self) -> tuple[float, float]:
        if self.moments is not None:
            return self.moments[0], self.moments[1] ** 2
        score, weight = normal_rule()
        nodes = self.at_score(score)
        finite = nodes[np.isfinite(nodes)]  # an approximate law may have some mass at its end, which can be infinite
        nodes = np.clip(nodes, finite.min(), finite.max())
        mean = float(weight @ nodes)
        return mean, float(weight @ (nodes - mean) ** 2)

    def mean(self) -> float:
        return self._mean_and_variance[0]

    def var(self) -> float:
        return self._mean_and_variance[1]

    def std(self) -> float:
        return float(np.sqrt(self.var()))


def normal_scores(law: Distribution, x: FloatArray) -> FloatArray:
    below, above = law.cdf(x), law.sf(x)
    return np.clip(np.where(below < above, special.ndtri(below), -special.ndtri(above)), -_FAR, _FAR)


class _Monotone:
    """Monotone interpolant, linear beyond its ends: a natural spline, or a monotone cubic if that falls."""

    def __init__(self, x: FloatArray, y: FloatArray) -> None:
        self.x, self.y = x, y
        self.inner: CubicSpline | PchipInterpolator = CubicSpline(x, y, bc_type="natural")
        if (self.inner(np.linspace(x[0], x[-1], _CHECKED), 1) <= 0.0).any():
            self.inner = PchipInterpolator(x, y)
        self.slopes = self.inner(x[[0, -1]], 1)

    def __call__(self, at: FloatArray) -> FloatArray:
        beyond = at - np.clip(at, *self.x[[0, -1]])
        return self.inner(at - beyond) + beyond * np.where(beyond < 0.0, *self.slopes)

    def inverse(self, value: FloatArray) -> FloatArray:
        target = np.clip(value, *self.y[[0, -1]])
        right = np.clip(np.searchsorted(self.y, target), 1, self.y.size - 1)
        low, high = self.x[right - 1], self.x[right]
        at = np.interp(target, self.y, self.x)
        for _ in range(_STEPS):
            before, excess, slope = at, self.inner(at) - target, self.inner(at, 1)
            low, high = np.where(excess < 0.0, at, low), np.where(excess < 0.0, high, at)
            with np.errstate(divide="ignore", invalid="ignore"):
                newton = at - excess / slope
            at = np.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
            if (np.abs(at - before) < _SETTLED).all():
                break
        return at + (value - target) / np.where(value < target, *self.slopes)


@cache
def _table() -> Any:
    return json.loads(Path(__file__).with_name("simulated_quantiles.json").read_text(encoding="utf-8"))


def simulated_quantiles(statistic: str, parent: Parent) -> Quantiles | None:
    """Return the quantiles of a statistic of independent weights of a parent, at any σ; None if not simulated."""
    asked: Any = parent  # each class of PARENTS has a σ
    for name, table in _table()["quantile"].items():
        simulated: Any = PARENTS[name]
        if type(asked) is type(simulated) and replace(asked, sigma=simulated.sigma) == simulated:
            return {int(n): np.array(values) for n, values in table[statistic].items()} if statistic in table else None
    return None


def mended(
    quantiles: Quantiles, at: Callable[[int], Distribution], n: int, exact_moments: bool = False
) -> Distribution:
    """Return the law at n weights, corrected by quantiles at the nearest n; exact moments of the law are kept."""
    sizes = np.array(list(quantiles))
    if n > sizes[-1]:
        return at(n)
    high = int(np.searchsorted(sizes, n))
    near = sizes[[max(high - 1, 0), high]].tolist()
    scores = np.array([normal_scores(at(size), quantiles[size]) for size in near])
    share = np.log(n / near[0]) / np.log(near[1] / near[0]) if near[1] > near[0] else 0.0
    plain = scores[0] + share * (scores[1] - scores[0])
    plain = np.maximum.accumulate(plain) + _RISING * np.arange(plain.size)
    law = at(n)
    moments = (law.mean(), law.std()) if exact_moments else None
    return MendedLaw(law, plain, np.array(_table()["score"]), moments)
