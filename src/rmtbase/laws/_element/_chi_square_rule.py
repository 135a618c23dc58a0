"""The trapezoidal rule for averages over a chi-square variable, on a logarithmic scale."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from rmtbase.laws._arrays import FloatArray

NEGLIGIBLE = 40.0  # terms e^-40 below the largest one are left out

_FRACTIONS = np.geomspace(0.05, 1.0, 60)
_REMAINDER_SERIES = [1.0 / math.factorial(k) for k in range(17, 1, -1)]


def exponential_remainder(v: FloatArray) -> FloatArray:
    """Return e^v - 1 - v, accurate relative to itself: by its series for small v."""
    near = np.clip(v, -0.5, 0.5)
    series = near * near * np.polyval(_REMAINDER_SERIES, near)
    return np.asarray(np.where(np.abs(v) < 0.5, series, np.expm1(v) - v), dtype=np.float64)


def trapezoidal_step(curvature: float) -> float:
    """Return the step of the trapezoidal rule for ∫ exp(-P(e^v - 1 - v) - X(e^-v - 1 + v)) dv, P + X = ``curvature``.

    A step Δ errs by e^(-2πθ/Δ) times the growth of the integrand on the line Im v = θ < π/2, which is at most
    (cos θ)^-(P + X); the best θ keeps it below e^-40 of the integral (Trefethen & Weideman 2014).
    """
    angles = _FRACTIONS * min(1.5, math.sqrt(2.0 * NEGLIGIBLE / curvature))
    growth = -0.5 * curvature * np.log1p(-(np.sin(angles) ** 2))
    return 2.0 * math.pi / float(np.min((NEGLIGIBLE + growth) / angles))


def trapezoidal_points(curvature: float, left_slope: float, step: float) -> FloatArray:
    """Return the multiples of ``step`` beyond which exp(-P(e^v - 1 - v)) is negligible, P = ``curvature``.

    On the left, P = ``left_slope`` is taken instead, for integrands that fall more slowly there.
    """
    # e^v - 1 - v is at least v²/2 for v > 0, and at least v²/(2 - v) for v < 0.
    right = math.sqrt(2.0 * NEGLIGIBLE / curvature)
    ratio = NEGLIGIBLE / left_slope
    left = 0.5 * (ratio + math.sqrt(ratio * (ratio + 8.0)))
    return step * np.arange(-math.ceil(left / step), math.ceil(right / step) + 1, dtype=np.float64)


@lru_cache(maxsize=128)
def chi_square_rule(d_head: int) -> tuple[FloatArray, FloatArray]:
    """Return v and weights w, of sum 1, with E f(S) = Σ w f(d_head e^v) for S ~ χ² of ``d_head`` degrees of freedom.

    Numerical: to rounding (1e-15) for f analytic in ln S in the strip of width π about the real line, as the normal
    density and distribution function of variance S are.
    """
    half = 0.5 * d_head
    v = trapezoidal_points(half, half, trapezoidal_step(half))
    exponent = half * exponential_remainder(v)
    v, exponent = v[exponent < NEGLIGIBLE], exponent[exponent < NEGLIGIBLE]
    weights = np.exp(-exponent)
    return v, weights / weights.sum()
