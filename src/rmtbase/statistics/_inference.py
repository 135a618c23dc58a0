"""p-values from a null sample, and q-values from many p-values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import ndtri

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_integer, require_p_values, require_real_numbers

Values = Float[np.ndarray, "..."]

_NULL_SAMPLE = "a non-empty one-dimensional array without NaN"


def monte_carlo_p_value(observed: ArrayLike, null_sample: ArrayLike) -> Float[np.ndarray, "..."]:
    """Two-sided Monte Carlo p-value p = min(1, 2 min(b_≤ + 1, b_≥ + 1) / (n + 1)).

    b_≤ and b_≥ count the null draws that are not above and not below the observed value. Counting the observation
    itself (the +1's) makes the test valid at every n, and p is never zero: its smallest value is 2 / (n + 1).

    Args:
        observed: array of any shape. Infinities are allowed, as the most extreme values. NaN gives NaN.
        null_sample: the n null draws, one-dimensional and without NaN; they are sorted once for all observations.

    Returns:
        p-values of the shape of ``observed``.

    Raises:
        ParameterError: the null sample is empty, not one-dimensional or contains NaN; or an argument is masked or not
            real.

    Source: B. Phipson and G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 9, 39 (2010).
    """
    null = require_real_numbers("null_sample", null_sample)
    if null.ndim != 1:
        raise ParameterError("null_sample", null.shape, _NULL_SAMPLE)
    return p_value_among_sorted(observed, np.sort(null))


def p_value_among_sorted(observed: ArrayLike, null_sample: Float[np.ndarray, " draw"]) -> Float[np.ndarray, "..."]:
    null_sample = _require_ascending(null_sample)
    n = null_sample.size
    x = require_real_numbers("observed", observed)
    at_most = np.searchsorted(null_sample, x, side="right")
    at_least = n - np.searchsorted(null_sample, x, side="left")
    p = np.minimum(1.0, 2.0 * (np.minimum(at_most, at_least) + 1) / (n + 1))
    return np.where(np.isnan(x), np.nan, p)


def upper_p_value_among_sorted(observed: ArrayLike, null_sample: Float[np.ndarray, " draw"]) -> Values:
    """One-sided p-value (b_≥ + 1)/(n + 1), b_≥ the ascending draws not below the observed value; NaN gives NaN."""
    null_sample = _require_ascending(null_sample)
    x = require_real_numbers("observed", observed)
    at_least = null_sample.size - np.searchsorted(null_sample, x, side="left")
    return np.where(np.isnan(x), np.nan, (at_least + 1) / (null_sample.size + 1))


def _require_ascending(null_sample: ArrayLike) -> Float[np.ndarray, " draw"]:
    null = require_real_numbers("null_sample", null_sample)
    if null.ndim != 1 or null.size == 0 or np.isnan(null[-1]):  # NaN is sorted to the end
        raise ParameterError("null_sample", null.shape, _NULL_SAMPLE)
    if not (null[1:] >= null[:-1]).all():
        raise ParameterError("null_sample", "draws that do not ascend", f"{_NULL_SAMPLE}, ascending (numpy.sort)")
    return null


def normal_score(p_value: ArrayLike, above: ArrayLike) -> Float[np.ndarray, "..."]:
    """±Φ⁻¹(1 - p/2), the z at which a normal law has the same p-value: a distance for laws without a variance."""
    p = require_p_values("p_value", p_value)
    return np.where(above, -1.0, 1.0) * ndtri(0.5 * p) + 0.0  # no negative zero


def cauchy_combination(p_values: ArrayLike, axis: int = -1) -> Float[np.ndarray, "..."]:
    """Combine the p-values of tests of any dependence: 1/2 - arctan(T)/π, T the mean of tan(π/2 - π p).

    Asymptotically exact for small p. No correlations are needed, because the tail of a sum of Cauchy variables does not
    depend on them. NaN marks a test that was not made and does not count; if there is no test, the result is NaN.

    Raises:
        ParameterError: p-values are masked, not real or outside [0, 1].

    Source: Y. Liu and J. Xie, J. Am. Stat. Assoc. 115, 393 (2020).
    """
    p = require_p_values("p_values", p_values)
    made = ~np.isnan(p)
    # Below 1e-15 the tangent is 1/(π p) to double precision, and π/2 - π p would have lost p.
    smallest = np.clip(np.where(made, p, 0.5), np.finfo(float).tiny, 1.0 - 1e-15)
    terms = np.where(smallest < 1e-15, 1.0 / (np.pi * smallest), np.tan(np.pi * (0.5 - smallest)))
    axis = _require_axis(axis, p)
    count = made.sum(axis=axis)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.where(made, terms / np.expand_dims(count, axis), 0.0).sum(axis=axis)
        combined = np.where(mean > 1e15, 1.0 / (np.pi * mean), 0.5 - np.arctan(mean) / np.pi)
    return np.where(count > 0, combined, np.nan)


def _require_axis(axis: int, p: np.ndarray) -> int:
    return require_integer("axis", axis, -max(p.ndim, 1), max(p.ndim, 1) - 1)


def benjamini_hochberg(p_values: ArrayLike, axis: int | None = None) -> Float[np.ndarray, "..."]:
    """Benjamini–Hochberg q-values over all entries that are not NaN, or along an ``axis``; shape of ``p_values``.

    The q-value of a test is the smallest false discovery rate at which it is called: for the k-th smallest of n
    p-values, min over j ≥ k of p_(j) n / j, and at most 1. It is valid for tests that are independent or positively
    dependent. NaN marks a test that was not made; it stays NaN and does not count.

    Raises:
        ParameterError: p-values are masked, not real or outside [0, 1].

    Source: Y. Benjamini and Y. Hochberg, J. R. Stat. Soc. B 57, 289 (1995).
    """
    return _adjusted(p_values, _stepped_up, axis)


def benjamini_yekutieli(p_values: ArrayLike) -> Float[np.ndarray, "..."]:
    """Benjamini–Yekutieli q-values: those of :func:`benjamini_hochberg` times 1 + 1/2 + … + 1/n, and at most 1.

    They are valid for tests of any dependence. NaN and errors as in :func:`benjamini_hochberg`.

    Source: Y. Benjamini and D. Yekutieli, Ann. Stat. 29, 1165 (2001).
    """
    return _adjusted(p_values, lambda p, n: np.minimum(1.0, (1 / np.arange(1, n.item() + 1)).sum() * _stepped_up(p, n)))


def holm(p_values: ArrayLike, axis: int | None = None) -> Float[np.ndarray, "..."]:
    """Holm's adjusted p-values: the smallest family-wise error rate at which a test is called, for any dependence.

    For the k-th smallest of n p-values it is max over j ≤ k of p_(j) (n + 1 - j), and at most 1. NaN, ``axis`` and
    errors as in :func:`benjamini_hochberg`.

    Source: S. Holm, Scand. J. Stat. 6, 65 (1979).
    """
    return _adjusted(
        p_values, lambda p, n: np.minimum(1.0, np.maximum.accumulate(p * (n - np.arange(p.shape[-1])), axis=-1)), axis
    )


def _adjusted(p_values: ArrayLike, adjust: Callable[..., np.ndarray], axis: int | None = None) -> np.ndarray:
    """Apply ``adjust`` to ascending p-values, NaN last, and the number of others; put the results in their places."""
    p = require_p_values("p_values", p_values)
    tests = p.reshape(-1) if axis is None else np.moveaxis(p, _require_axis(axis, p), -1)
    rising = np.argsort(tests, axis=-1)
    in_order = adjust(np.take_along_axis(tests, rising, axis=-1), (~np.isnan(tests)).sum(axis=-1, keepdims=True))
    adjusted = np.empty(tests.shape)
    np.put_along_axis(adjusted, rising, in_order, axis=-1)
    return adjusted.reshape(p.shape) if axis is None else np.moveaxis(adjusted, -1, axis)


def _stepped_up(p: Float[np.ndarray, "... test"], n: Int[np.ndarray, "... 1"]) -> Float[np.ndarray, "... test"]:
    rates = p * (n / np.arange(1, p.shape[-1] + 1))
    return np.minimum(np.fmin.accumulate(rates[..., ::-1], axis=-1)[..., ::-1], 1.0)
