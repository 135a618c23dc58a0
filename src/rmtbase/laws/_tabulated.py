"""Tabulated laws of a positive number: a table of normal scores replaces a slow distribution function."""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import cache, cached_property
from typing import ClassVar

import numpy as np
from scipy import special
from scipy.interpolate import BSpline, PchipInterpolator, make_interp_spline

from rmtbase.laws._distribution import FloatArray, ScoredLaw

FINE = 192  # nodes for the parts of a mixture
_REACH = 7.0
_STEEPER = 1e-9
_FINEST = 1024
_TINY = 1e-300


@cache
def normal_rule(count: int = 48) -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    score = _REACH * nodes
    weight = _REACH * weights * np.exp(-0.5 * score**2)
    return score, weight / weight.sum()


def beta_rule(a: float, b: float, count: int = 48) -> tuple[FloatArray, FloatArray]:
    score, weight = normal_rule(count)
    return special.betainccinv(a, b, special.ndtr(-score)), weight


Table = tuple[FloatArray, FloatArray, BSpline, PchipInterpolator]
"""ln x and score at the points where the score rises, and each as a function of the other."""


class Tabulated(ScoredLaw):
    """Law of X > 0, given by the normal score of P(X ≤ x) as a quintic spline in ln x, linear beyond its table."""

    furthest: ClassVar[float] = 12.0

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    @abstractmethod
    def _points(self) -> FloatArray: ...

    @abstractmethod
    def _tails(self, x: FloatArray) -> tuple[FloatArray, FloatArray]: ...

    @cached_property
    def table(self) -> Table:
        return score_table(self._points(), self._tails, self.furthest)

    def _score(self, x: FloatArray) -> FloatArray:
        log_points, _, forward, _ = self.table
        log_x = np.log(np.maximum(x, _TINY))
        inside = np.clip(log_x, log_points[0], log_points[-1])
        beyond = log_x - inside
        slope = np.where(beyond < 0.0, forward(log_points[0], 1), forward(log_points[-1], 1))
        return forward(inside) + slope * beyond

    @cached_property
    def rule(self) -> tuple[FloatArray, FloatArray]:
        return log_rule(self.table)

    def mean(self) -> float:
        log_x, weight = self.rule
        return float(weight @ np.exp(log_x))

    def var(self) -> float:
        log_x, weight = self.rule
        return float(weight @ (np.exp(log_x) - self.mean()) ** 2)


def score_table(x: FloatArray, tails: Callable[[FloatArray], tuple[FloatArray, FloatArray]], furthest: float) -> Table:
    cdf, sf = (np.clip(tail, _TINY, 1.0) for tail in tails(x))
    score = np.where(cdf < 0.5, special.ndtri(cdf), -special.ndtri(sf))
    steep = np.append(True, np.diff(np.maximum.accumulate(score)) > _STEEPER) & (np.abs(score) < furthest)
    log_x, score = np.log(x[steep]), score[steep]
    forward = make_interp_spline(log_x, score, k=5)
    fine = np.linspace(log_x[0], log_x[-1], _FINEST)
    rising = np.maximum.accumulate(forward(fine))
    steep = np.append(True, np.diff(rising) > _STEEPER)
    return log_x, score, forward, PchipInterpolator(rising[steep], fine[steep])


def log_rule(table: Table) -> tuple[FloatArray, FloatArray]:
    _, score, _, backward = table
    nodes, weight = normal_rule(FINE)
    return backward(np.clip(nodes, score[0], score[-1])), weight
