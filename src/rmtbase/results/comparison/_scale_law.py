"""Fit of the scale of trained weights to √(η/λ_wd): line through the origin, exponent, and a permutation test."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from math import factorial

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import stdtr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers, require_seed
from rmtbase.shown import in_one_line

_LISTED = 8  # largest number of models for which all orders are tried
_DRAWS = 9_999


@in_one_line
@dataclass(frozen=True)
class ScaleLaw:
    """λ of n models against x = √(η/λ_wd)."""

    n: int  #: number of models
    slope: float  #: slope of the line through the origin, Σ x λ / Σ x²
    r_squared: float  #: R² of that line about the mean of λ; negative if a constant fits better
    deviations: tuple[float, ...]  #: |line/λ − 1| of each model
    correlation: float  #: Pearson's r of x and λ; it belongs to the line with an intercept
    #: two-sided p-value of r: the share of orders of λ whose |r| is as large (all n! orders up to n = 8). It assumes
    #: that under the null all orders of the models' λ are equally likely.
    p_value: float
    #: intercept, intercept_error: intercept of the least-squares line with an intercept, and its standard error
    intercept: float
    intercept_error: float
    #: exponent, exponent_error: b of λ ∝ x^b by least squares of logarithms, and its standard error
    exponent: float
    exponent_error: float
    p_value_of_one: float  #: p-value of b = 1 by Student's t with n − 2 degrees of freedom; NaN for two models


def scale_law(roots: ArrayLike, scales: ArrayLike, seed: int = 0) -> ScaleLaw:
    """Fit the scales λ of models to x = √(η/λ_wd).

    Args:
        roots: x of each model, positive, not all equal.
        scales: λ of each model.
        seed: seed of the random orders, drawn if there are too many to try all.

    Raises:
        ParameterError: fewer than two positive numbers for each, different numbers of x and λ, or all x or all λ equal.

    Source: T. Ding, arXiv:2605.18898 (2026), 5.4, whose function F5 fits the line through the origin.
    """
    x, y = (positive_numbers(name, values) for name, values in (("roots", roots), ("scales", scales)))
    if x.size != y.size or x.size < 2:
        raise ParameterError("scales", y.size, f"as many values as roots, {x.size}, and at least 2")
    for name, values in (("roots", x), ("scales", y)):
        if np.ptp(values) == 0:
            raise ParameterError(name, values.tolist(), "values that are not all the same")
    slope = float(x @ y / (x @ x))
    about_mean = float(((y - y.mean()) ** 2).sum())
    _, intercept, _, intercept_error = _line(x, y)
    exponent, _, exponent_error, _ = _line(np.log(x), np.log(y))
    degrees = x.size - 2
    with np.errstate(divide="ignore", invalid="ignore"):
        p_value_of_one = 2.0 * stdtr(degrees, -abs((1.0 - exponent) / exponent_error)) if degrees else np.nan
    return ScaleLaw(
        n=x.size,
        slope=slope,
        r_squared=1.0 - float(((y - slope * x) ** 2).sum()) / about_mean,
        deviations=tuple(np.abs(slope * x / y - 1.0).tolist()),
        correlation=float(np.corrcoef(x, y)[0, 1]),
        p_value=_order_p_value(x, y, seed),
        intercept=intercept,
        intercept_error=intercept_error,
        exponent=exponent,
        exponent_error=exponent_error,
        p_value_of_one=float(p_value_of_one),
    )


def positive_numbers(name: str, values: ArrayLike) -> Float[np.ndarray, " number"]:
    """Return the numbers as an array, or raise :class:`ParameterError` unless they are positive, finite and 1-D."""
    numbers = require_real_numbers(name, values)
    if numbers.ndim != 1 or not (np.isfinite(numbers) & (numbers > 0)).all():
        raise ParameterError(name, numbers, "positive numbers in one dimension")
    return numbers


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """Slope and intercept by least squares, and their standard errors, which are NaN for two points."""
    n, dx = x.size, x - x.mean()
    square = float(dx @ dx)
    slope = float(dx @ y) / square
    intercept = float(y.mean()) - slope * float(x.mean())
    residual = float(((y - intercept - slope * x) ** 2).sum())
    spread = np.sqrt(residual / (n - 2)) if n > 2 else np.nan
    return slope, intercept, float(spread / np.sqrt(square)), float(spread * np.sqrt(1 / n + x.mean() ** 2 / square))


def _order_p_value(x: np.ndarray, y: np.ndarray, seed: int) -> float:
    n, dx, dy = x.size, x - x.mean(), y - y.mean()
    observed = abs(float(dx @ dy)) * (1.0 - 1e-12)  # so that orders equal up to rounding are counted
    if n <= _LISTED:
        orders = np.array(list(permutations(range(n))))
        return float((np.abs(dy[orders] @ dx) >= observed).sum()) / factorial(n)
    rng = np.random.default_rng(require_seed(seed))
    orders = rng.permuted(np.tile(np.arange(n), (_DRAWS, 1)), axis=1)
    return float((np.abs(dy[orders] @ dx) >= observed).sum() + 1) / (_DRAWS + 1)
