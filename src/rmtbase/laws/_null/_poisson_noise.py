"""Noise of cell counts in an entropy beyond first order: moments of functions of Poisson counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.interpolate import CubicSpline

from rmtbase.laws._distribution import FloatArray

_FEW = 16  # from this count on Grassberger's G(N) is taken as ψ(N)
_RANGE = (math.log(1e-6), math.log(400.0))


class CountNoise(NamedTuple):
    """Moments of f(N) for a Poisson count N of mean μ, as functions of μ."""

    bias: FloatArray  # E f(N) − μ ln μ
    slope: FloatArray  # Cov(f, N)/μ, which is ln μ + 1 for large μ
    # variance, third: second and third cumulant of f minus its linear regression on N
    variance: FloatArray
    third: FloatArray


def plain(count: FloatArray) -> FloatArray:
    """Return N ln N."""
    return special.xlogy(count, count)


def corrected(count: FloatArray) -> FloatArray:
    """N G(N), whose mean is μ ln μ; G(N) = ψ(N) + (−1)^N (ψ((N + 1)/2) − ψ(N/2))/2 for N < 16 (Grassberger 2003)."""
    at = np.maximum(count, 1.0)
    few = np.minimum(at, _FEW)
    parity = np.where(at < _FEW, 0.5 - few % 2, 0.0)
    g = special.digamma(at) + parity * (special.digamma((few + 1) / 2) - special.digamma(few / 2))
    return count * g


_LIMITS = {plain: (0.5, 0.0, 0.5, 1.0), corrected: (0.0, 0.0, 0.5, 1.0)}
"""Bias, slope minus (ln μ + 1), variance and third cumulant for large counts, where the nonlinear part of f is Z²/2."""


def noise(function: Callable[..., FloatArray], mean: FloatArray) -> CountNoise:
    table = _table(function)
    log_mean = np.log(np.maximum(mean, 1e-300))
    inside = np.clip(log_mean, *_RANGE)
    bias, slope, variance, third = table(inside).T
    low, high = log_mean < _RANGE[0], log_mean > _RANGE[1]
    limits = _LIMITS[function]
    share = np.where(low, np.exp(np.minimum(log_mean - _RANGE[0], 0.0)), 1.0)  # below, all but the slope are ~ μ
    return CountNoise(
        np.where(high, limits[0], bias) * share,
        np.where(high, limits[1], slope) + log_mean + 1.0,
        np.where(high, limits[2], variance) * share,
        np.where(high, limits[3], third) * share,
    )


@cache
def _table(function: Callable[..., FloatArray]) -> CubicSpline:
    """Return bias, slope minus (ln μ + 1), variance and third cumulant as functions of ln μ."""
    log_mean = np.linspace(*_RANGE, 140)
    return CubicSpline(log_mean, np.array([_moments(function, math.exp(mean)) for mean in log_mean]))


def _moments(function: Callable[..., FloatArray], mean: float) -> tuple[float, float, float, float]:
    reach = 9.0 * math.sqrt(mean)
    count = np.arange(math.floor(max(mean - reach, 0.0)), math.ceil(mean + reach) + 12.0)
    mass = np.exp(special.xlogy(count, mean) - mean - special.gammaln(count + 1.0))
    value = function(count)
    first_moment = float(np.sum(mass * value))
    slope = float(np.sum(mass * (value - first_moment) * (count - mean))) / mean
    rest = value - first_moment - slope * (count - mean)
    rest -= float(np.sum(mass * rest))
    excess = first_moment - float(special.xlogy(mean, mean))
    return excess, slope - math.log(mean) - 1.0, float(np.sum(mass * rest**2)), float(np.sum(mass * rest**3))
