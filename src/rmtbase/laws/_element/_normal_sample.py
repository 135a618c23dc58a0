"""Entropy and divergence of normal laws, and laws of the statistics of a normal sample (the null of raw weights)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray, KnownSpread
from rmtbase.parameters import require_finite_numbers

_SERIES_TERMS = 9  # of 2 atanh(s), |s| < 0.1: the first neglected one is below 1e-18 of the sum
_SMALLEST = 20  # below this number the null of the fourth moment has no useful normal transform


def normal_entropy(sigma: ArrayLike) -> FloatArray:
    """Return the differential entropy -<ln p> = ln(2 π e σ²)/2 of N(mean, σ²), in nats; exact, same shape.

    It is the largest entropy of all laws with that standard deviation: the entropy of a law p is smaller by
    D_KL(p || matched normal) (Cover & Thomas 2006, section 8.6). σ must be positive and finite.
    """
    return 0.5 * math.log(2.0 * math.pi * math.e) + np.log(_positive("sigma", sigma))


def normal_kl(sigma: ArrayLike, sigma0: ArrayLike, mean: ArrayLike = 0.0, mean0: ArrayLike = 0.0) -> FloatArray:
    """Return D_KL(N(mean, σ²) || N(mean0, sigma0²)) in nats, broadcast over all four.

        ln(sigma0/σ) + (σ² + (mean - mean0)²) / (2 sigma0²) - 1/2

    (Kullback & Leibler 1951). It is exact and does not cancel where the two laws are close: the relative error is below
    1e-14. The average is over the first law. The σ must be positive and finite, the means finite.
    """
    width, reference = _positive("sigma", sigma), _positive("sigma0", sigma0)
    shift = (require_finite_numbers("mean", mean) - require_finite_numbers("mean0", mean0)) / reference
    with np.errstate(over="ignore"):  # the divergence may be too large for a double
        excess = (width - reference) / reference * (width / reference + 1.0)  # σ²/sigma0² - 1
        far = np.isinf(excess)
        # x - ln(1 + x) for 1 + x = root²; for small x as x s - 2 (atanh(s) - s) with s = x/(2 + x).
        x, root = np.where(far, 0.0, excess), np.where(far, 1.0, width / reference)
        s = x / (2.0 + x)
        near = np.where(np.abs(s) < 0.1, s, 0.0)
        series = np.polynomial.polynomial.polyval(near**2, [0.0, *(2.0 / (2 * k + 1) for k in range(1, _SERIES_TERMS))])
        rise = np.where(np.abs(s) < 0.1, near * (x - series), x - 2.0 * np.log(root))
        return np.where(far, np.inf, 0.5 * (rise + shift**2))[()]


def _positive(name: str, value: ArrayLike) -> FloatArray:
    array = require_finite_numbers(name, value)
    if not (array > 0.0).all():
        raise ParameterError(name, value, "finite positive numbers")
    return array


@dataclass(frozen=True)
class SampleStatisticLaw(KnownSpread):
    """Law of one statistic of n i.i.d. normal numbers; that of the mean is exact (Student's t).

    Skewness and kurtosis have D'Agostino's (1970) and Anscombe and Glynn's (1983) transforms, with errors of 1/n. For
    the largest magnitude, deviations of Thompson's law (1935) are taken as independent: the lower size at 0.05 is 0.035
    at n = 200.
    """

    # ``"mean"`` (of the numbers, in units of their sample standard deviation), ``"skewness"``, ``"excess_kurtosis"`` or
    # ``"largest_magnitude"`` (max |w - w̄| / s)
    statistic: str
    count: int  # the number n

    @property
    def support(self) -> tuple[float, float]:
        if self.statistic == "largest_magnitude":
            return 0.0, (self.count - 1) / math.sqrt(self.count)
        if self.statistic == "excess_kurtosis":
            a, std = _kurtosis_shape(self.count)
            return float(-6.0 / (self.count + 1) - std * math.sqrt((a - 4.0) / 2.0)), math.inf
        return -math.inf, math.inf

    def mean(self) -> float:
        n = self.count
        if self.statistic == "excess_kurtosis":
            return -6.0 / (n + 1)
        if self.statistic == "largest_magnitude":
            return self._largest_moments[0]
        return 0.0

    def std(self) -> float:
        """Return the standard deviation, exact for the moments (R. A. Fisher, Proc. R. Soc. A 130, 16 (1930))."""
        n = self.count
        if self.statistic == "mean":
            return float(np.sqrt((n - 1) / (n * (n - 3))))  # w̄/s = t/√n, Var t = (n-1)/(n-3)
        if self.statistic == "skewness":
            return float(np.sqrt(6.0 * (n - 2) / ((n + 1) * (n + 3))))
        if self.statistic == "excess_kurtosis":
            return float(np.sqrt(24.0 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))))
        return self._largest_moments[1]

    def _cdf(self, x: FloatArray) -> FloatArray:
        n = self.count
        if self.statistic == "mean":
            return special.stdtr(n - 1, x * np.sqrt(n))
        return np.exp(self._log_cdf(x)) if self.statistic == "largest_magnitude" else special.ndtr(self._score(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        if self.statistic == "largest_magnitude":
            return -np.expm1(self._log_cdf(x))
        return self._cdf(-x) if self.statistic == "mean" else special.ndtr(-self._score(x))

    def _score(self, x: FloatArray) -> FloatArray:
        n = self.count
        if self.statistic == "excess_kurtosis":
            a, std = _kurtosis_shape(n)
            ratio = (1.0 - 2.0 / a) / (1.0 + (x + 6.0 / (n + 1)) / std * np.sqrt(2.0 / (a - 4.0)))
            return (1.0 - 2.0 / (9.0 * a) - np.cbrt(ratio)) / np.sqrt(2.0 / (9.0 * a))
        y = x * np.sqrt((n + 1) * (n + 3) / (6.0 * (n - 2)))
        beta2 = 3.0 * (n**2 + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2.0) * (n + 5) * (n + 7) * (n + 9))
        w2 = -1.0 + np.sqrt(2.0 * (beta2 - 1.0))
        delta = 1.0 / np.sqrt(0.5 * np.log(w2))
        alpha = np.sqrt(2.0 / (w2 - 1.0))
        return delta * np.arcsinh(y / alpha)

    def _log_cdf(self, x: FloatArray) -> FloatArray:
        # |w - w̄| / s ≤ (n-1)/√n always. τ = x √(n/(n-1)) has Thompson's law, and t = τ √(n-2) / √(n-1-τ²) has
        # Student's with n - 2 degrees of freedom.
        n = self.count
        square = np.minimum(x**2 * n / (n - 1), (n - 1) * (1.0 - 1e-15))
        return n * np.log1p(-2.0 * special.stdtr(n - 2, -np.sqrt(square * (n - 2) / (n - 1 - square))))

    @cached_property
    def _largest_moments(self) -> tuple[float, float]:
        # E f(T) = ∫ f(T(u)) du over the probability u; Gauss–Legendre in ln(-ln u), which spreads both tails.
        nodes, weights = np.polynomial.legendre.leggauss(200)
        low, high = -40.0, 4.0
        y = 0.5 * (high - low) * nodes + 0.5 * (high + low)
        minus_log_u = np.exp(y)
        jacobian = 0.5 * (high - low) * weights * minus_log_u * np.exp(-minus_log_u)
        n = self.count
        t = special.stdtrit(n - 2, 0.5 * -np.expm1(-minus_log_u / n))  # its sign does not matter
        value = np.sqrt((n - 1) * t**2 / (n - 2 + t**2) * (n - 1) / n)  # of Thompson's law
        mean = float(jacobian @ value)
        return mean, float(np.sqrt(jacobian @ (value - mean) ** 2))


def gaussian_sample_statistic(statistic: str, count: int) -> SampleStatisticLaw:
    names = ("mean", "skewness", "excess_kurtosis", "largest_magnitude")
    if statistic not in names:
        raise ParameterError("statistic", statistic, f"one of {', '.join(names)}")
    if count < _SMALLEST:
        raise ParameterError("count", count, f"at least {_SMALLEST} numbers")
    return _law(statistic, count)


# Matrices of a model share a few shapes, and each law caches its quadrature.
_law = lru_cache(maxsize=256)(SampleStatisticLaw)


def _kurtosis_shape(n: int) -> tuple[float, float]:
    """Anscombe and Glynn's A, and the standard deviation of the excess kurtosis."""
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1.0) ** 2 * (n + 3) * (n + 5))
    skewness = (
        6.0 * (n * n - 5 * n + 2) / ((n + 7.0) * (n + 9)) * np.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2.0) * (n - 3)))
    )
    return 6.0 + 8.0 / skewness * (2.0 / skewness + np.sqrt(1.0 + 4.0 / skewness**2)), np.sqrt(variance)
