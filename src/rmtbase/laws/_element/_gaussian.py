"""Entropy of a normal law, and the Kullback–Leibler divergence between two."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws._arrays import FloatArray

_SERIES_TERMS = 9  # of 2 atanh(s), |s| < 0.1: the first one left out is below 1e-18 of the sum


def normal_entropy(sigma: ArrayLike) -> FloatArray:
    """Return the differential entropy -<ln p> = ln(2 π e σ²)/2 of N(mean, σ²), in nats; exact, same shape.

    The largest of all laws with that standard deviation: a law p falls short of it by D_KL(p || matched normal)
    (Cover & Thomas 2006, section 8.6).

    Raises:
        ParameterError: for a σ that is not positive and finite.
    """
    return 0.5 * math.log(2.0 * math.pi * math.e) + np.log(_positive("sigma", sigma))


def normal_kl(sigma: ArrayLike, sigma0: ArrayLike, mean: ArrayLike = 0.0, mean0: ArrayLike = 0.0) -> FloatArray:
    """Return D_KL(N(mean, σ²) || N(mean0, sigma0²)) in nats, broadcast over all four.

        ln(sigma0/σ) + (σ² + (mean - mean0)²) / (2 sigma0²) - 1/2

    (Kullback & Leibler 1951). Exact, without cancellation where the two laws are close: relative error below 1e-14. Not
    symmetric: the average is over the first law.

    Raises:
        ParameterError: for a σ that is not positive and finite, or a mean that is not finite.
    """
    width, reference = _positive("sigma", sigma), _positive("sigma0", sigma0)
    shift = (_finite("mean", mean) - _finite("mean0", mean0)) / reference
    excess = (width - reference) / reference * (width / reference + 1.0)  # σ²/sigma0² - 1
    return 0.5 * (_minus_log1p(excess, width / reference) + shift**2)


def _minus_log1p(x: FloatArray, root: FloatArray) -> FloatArray:
    """Return x - ln(1 + x), 1 + x = root²; for small x as x s - 2 (atanh(s) - s), s = x/(2 + x)."""
    s = x / (2.0 + x)
    small = np.abs(s) < 0.1
    near = np.where(small, s, 0.0)
    series = np.polynomial.polynomial.polyval(near**2, [0.0, *(2.0 / (2 * k + 1) for k in range(1, _SERIES_TERMS))])
    return np.where(small, near * (x - series), x - 2.0 * np.log(root))


def _positive(name: str, value: ArrayLike) -> FloatArray:
    array = _finite(name, value)
    if not (array > 0.0).all():
        raise ParameterError(name, value, "finite positive numbers")
    return array


def _finite(name: str, value: ArrayLike) -> FloatArray:
    raw = np.asarray(value)
    if raw.dtype.kind not in "iuf" or not np.isfinite(raw).all():
        raise ParameterError(name, value, "finite numbers")
    return raw.astype(np.float64)
