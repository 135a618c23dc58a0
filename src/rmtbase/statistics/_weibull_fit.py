"""The Weibull fit of a sample of weights, by least squares on the probability plot of its order statistics."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers, require_trim


class WeibullFit(NamedTuple):
    """The Weibull fit of N weights; :func:`rmtbase.laws.weibull_null` gives its law for independent weights.

    Attributes:
        shape: k̂.
        scale: λ̂, in the units of the weights.
        r_squared: R² of the line.
        rms: root mean square of all N weights.
        number: N.
    """

    shape: float
    scale: float
    r_squared: float
    rms: float
    number: int


def weibull_fit(sample: ArrayLike, trim: float | Fraction = 0.1) -> WeibullFit:
    """Fit the Weibull law to the magnitudes of a sample of weights.

    The i-th smallest of N magnitudes is plotted at p_i = (i − 1/2)/N: Y_i = ln(−ln(1 − p_i)) is regressed on
    X_i = ln |w|_(i) over the i with t ≤ p_i ≤ 1 − t, every order statistic with the same weight and without binning.

    Args:
        sample: weights of any shape and real dtype, with their signs or without; one float64 copy is made.
        trim: t, 0 ≤ t < 1/2, the share left out at either end.

    Returns:
        k̂ = Cov(X, Y)/Var(X), λ̂ = exp(mean X − mean Y/k̂), R², the root mean square and N. O(N log N) time.

    Raises:
        ParameterError: fewer than two different magnitudes between the trims, a zero among them, a weight that is not
            finite, what is no array of real numbers, or a trim outside [0, 1/2).
    """
    t = require_trim(trim)
    magnitude = np.abs(require_real_numbers("sample", sample)).reshape(-1)
    n = magnitude.size
    if not np.isfinite(magnitude).all():
        raise ParameterError("sample", f"{int((~np.isfinite(magnitude)).sum())} of {n} not finite", "finite weights")
    dropped = trimmed_ranks(n, t)
    magnitude.sort()
    kept = magnitude[dropped : n - dropped]
    if kept[0] == 0 or kept[0] == kept[-1]:
        raise ParameterError(
            "sample",
            f"magnitudes from {kept[0]} to {kept[-1]} between the trims",
            "positive magnitudes, two of them different (leave out exact zeros, or raise the trim)",
        )
    rms = _root_mean_square(magnitude)
    x = np.log(kept)
    y = plotting_positions(dropped, n - dropped, n)
    x_mean, y_mean = x.mean(), y.mean()
    x -= x_mean
    y -= y_mean
    covariance, x_variance = x @ y, x @ x
    shape = float(covariance / x_variance)
    r_squared = float(shape * covariance / (y @ y))
    return WeibullFit(shape, math.exp(x_mean - y_mean / shape), r_squared, rms, n)


def trimmed_ranks(n: int, trim: Fraction) -> int:
    """How many ranks i of n have (i − 1/2)/n below the trim; a :class:`ParameterError` if fewer than two are left."""
    dropped = max(0, math.ceil(n * trim - Fraction(1, 2)))
    if n - 2 * dropped < 2:
        raise ParameterError("sample", f"{n} weights", f"at least two between the trims of {float(trim):g}")
    return dropped


def plotting_positions(first: int, last: int, n: int) -> Float[np.ndarray, " rank"]:
    """Y_i = ln(−ln(1 − p_i)) at p_i = (i + 1/2)/n for the ranks i = first, …, last − 1."""
    return np.log(-np.log1p(-(np.arange(first, last) + 0.5) / n))


def _root_mean_square(ascending: np.ndarray) -> float:
    """Root mean square of ascending magnitudes, the last of which is positive; without overflow."""
    largest = float(ascending[-1])
    relative = ascending / largest
    return largest * math.sqrt(float(relative @ relative) / relative.size)
