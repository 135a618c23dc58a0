"""The left tail of the Tracy-Widom laws, from the Hastings-McLeod solution q of Painleve II.

    q'' = s q + 2 q^3,   q(s) ~ Ai(s) as s -> inf,   q(-v) = sqrt(v/2) sum_j a_j v^(-3j) as v -> inf,
    (ln F_2)'' = -q^2,   (ln F_1)' = ((ln F_2)' + q) / 2

(Tracy & Widom 1994, 1996). Where F is small its Fredholm determinant loses all digits, and these equations none: as
boundary value problems they are well-conditioned.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.polynomial import chebyshev
from numpy.polynomial.chebyshev import Chebyshev
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

FAR_LEFT = -16.0
"""Where :func:`far_left_log_cdf` takes over."""

_TERMS = 11  # the next is below 1e-16 at v = 16
_ZETA_PRIME = -0.16542114370045092921  # zeta'(-1)
_DEGREE = 90
_NEWTON_STEPS = 12


@cache
def _hastings_mcleod_series() -> tuple[float, ...]:
    """a_0, a_1, ... = 1, -1/8, -73/128, ...: with y = sum_j a_j v^(-3j), [y^3 - y]_{j+1} = (9 j^2 - 1/4) a_j."""
    a = [1.0]
    for j in range(_TERMS - 1):
        known = np.array([*a, 0.0])
        cube = np.convolve(np.convolve(known, known), known)[j + 1]
        a.append(float((9.0 * j**2 - 0.25) * a[j] - cube) / 2.0)
    return tuple(a)


def hastings_mcleod_far_left(v: FloatArray) -> FloatArray:
    """q(-v) for v >= -FAR_LEFT."""
    series = np.polyval(_hastings_mcleod_series()[::-1], v**-3.0)
    return np.asarray(np.sqrt(0.5 * v) * series, dtype=np.float64)


def far_left_log_cdf(beta: int, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ln F_beta(-v) and its derivative in s = -v, for v >= -FAR_LEFT: the series integrated term by term.

    The constants are ln tau_2 = ln 2 / 24 + zeta'(-1) and ln tau_1 = -11 ln 2 / 48 + zeta'(-1) / 2 (Deift, Its &
    Krasovsky 2008; Baik, Buckingham & DiFranco 2008).
    """
    a = np.array(_hastings_mcleod_series())
    j, w = np.arange(a.size), v**-3.0
    square = np.convolve(a, a)[: a.size] / 2.0
    # -q^2 = -sum square_j v^(1-3j), integrated once and twice; j = 1 gives the logarithm.
    once = square / (3.0 * j - 2.0)
    twice = np.divide(once, 3.0 - 3.0 * j, out=np.zeros(a.size), where=j != 1)
    slope = -(v**2) * np.polyval(once[::-1], w)
    value = v**3 * np.polyval(twice[::-1], w) - np.log(v) / 8.0 + math.log(2.0) / 24.0 + _ZETA_PRIME
    if beta == 2:
        return value, slope
    integral = v**1.5 * math.sqrt(0.5) * np.polyval((a / (1.5 - 3.0 * j))[::-1], w)
    return 0.5 * (value - integral) - 0.25 * math.log(2.0), 0.5 * (slope + hastings_mcleod_far_left(v))


def log_cdf_on_left(right: float, q_right: float, log_f1: float, log_f2: float) -> tuple[Chebyshev, Chebyshev]:
    """Return ln F_1 and ln F_2 on [FAR_LEFT, right], from q, ln F_1 and ln F_2 at ``right`` and the series at the left.

    Collocation at Chebyshev points, with the operator that inverts the second derivative under zero boundary values:
    the equations become integral equations of the second kind, and lose nothing to rounding.
    """
    domain = (FAR_LEFT, right)
    points = chebyshev.chebpts1(_DEGREE + 1)
    s = FAR_LEFT + 0.5 * (right - FAR_LEFT) * (points + 1.0)
    to_series = (2.0 / (_DEGREE + 1)) * chebyshev.chebvander(points, _DEGREE).T
    to_series[0] *= 0.5
    inverse = (0.5 * (right - FAR_LEFT)) ** 2 * chebyshev.chebint(to_series, 2)
    ends = chebyshev.chebval(np.array([-1.0, 1.0]), inverse)
    inverse[0] -= ends.mean(axis=1)
    inverse[1] -= 0.5 * (ends[:, 1] - ends[:, 0])

    def line(left: float, right: float) -> FloatArray:
        """The first two coefficients of the linear function with these boundary values."""
        return np.array([0.5 * (left + right), 0.5 * (right - left)])

    edge = np.array([-FAR_LEFT])
    boundary = line(float(hastings_mcleod_far_left(edge)[0]), q_right)
    operator, outer = chebyshev.chebval(points, inverse).T, chebyshev.chebval(points, boundary)
    q = np.sqrt(-0.5 * s)
    for _ in range(_NEWTON_STEPS):
        residual = q - outer - operator @ (s * q + 2.0 * q**3)
        q = q - np.linalg.solve(np.eye(q.size) - operator * (s + 6.0 * q**2), residual)
    curvature = inverse @ -(q**2)
    curvature[:2] += line(float(far_left_log_cdf(2, edge)[0][0]), log_f2)
    f2 = Chebyshev(curvature, domain)
    f1 = 0.5 * (f2 + Chebyshev(to_series @ q, domain).integ())
    return f1 + (log_f1 - f1(right)), f2
