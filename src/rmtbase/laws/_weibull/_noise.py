"""Sampling noise along the Weibull plot, and the point where it is least."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._weibull._anchor import require_parent
from rmtbase.laws._weibull._arithmetic import FLOAT, decimal, working_digits
from rmtbase.laws._weibull.parents import Parent
from rmtbase.parameters import require_positive_integer


def weibull_plot_noise(p: ArrayLike) -> FloatArray:
    """N Var(Y) = p/((1−p) ln²(1−p)) of the i-th of N order statistics, p = i/N, Y = ln(−ln(1 − F(x_(i)))).

    It is the noise of k X as well where the parent is Weibull; :func:`weibull_quantile_noise` is that of X for any
    parent. Same shape as ``p``; inf at 0 and 1, nan outside [0, 1]. Asymptotic: 1 + O(1/N).
    """
    p = np.asarray(p, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = p / ((1 - p) * np.log1p(-p) ** 2)
    return np.where((p == 0) | (p == 1), np.inf, np.where((p > 0) & (p < 1), noise, np.nan))


def weibull_quantile_noise(p: ArrayLike, distribution: str | Parent = "normal") -> FloatArray:
    """N Var(ln |w|_(i)) = p(1−p)/(x f(x))², x = x(p): the noise of the abscissa, which is what a sample scatters.

    Same shape as ``p``; nan outside (0, 1). Asymptotic: 1 + O(1/N).

    Raises:
        ParameterError: an unknown distribution.
    """
    p, parent = np.asarray(p, dtype=np.float64), require_parent(distribution)
    inside = (p > 0) & (p < 1)
    x = parent.ppf(np.where(inside, p, 0.5))
    density, cdf, sf = parent.law(x, FLOAT)
    return np.where(inside, cdf * sf / (x * density) ** 2, np.nan)


@dataclass(frozen=True)
class NoiseOptimum:
    """Where :func:`weibull_plot_noise` is least.

    Attributes:
        probability: p*.
        noise: N Var(Y) there.
        decimals: p* and the noise as decimal strings of the digits asked for.
    """

    probability: float
    noise: float
    decimals: tuple[str, str]


def weibull_noise_optimum(digits: int = 15) -> NoiseOptimum:
    """The minimum of p/((1−p) ln²(1−p)): p* = 1 − exp(−2p*) = 1 + W₀(−2e⁻²)/2, and 1/(4p*(1−p*)) there.

    Args:
        digits: significant digits of the strings. Exact to the last but one.

    Raises:
        ParameterError: digits < 1.
    """
    from mpmath import mp

    digits = require_positive_integer("digits", digits)
    with mp.workdps(working_digits(digits)):
        p = 1 + mp.lambertw(-2 * mp.exp(-2)).real / 2
        noise = 1 / (4 * p * (1 - p))
        return NoiseOptimum(float(p), float(noise), (decimal(p, digits), decimal(noise, digits)))
