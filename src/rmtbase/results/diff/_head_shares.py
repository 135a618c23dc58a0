"""Law of a head's share in the change of a matrix, if the change prefers no head."""

import math

import numpy as np
from jaxtyping import Float64
from scipy.optimize import brentq
from scipy.special import ndtr

_ALIKE = 1e-20  # variance of a head's sum below which all heads have the same one; the mean of each value is 1
_ROUNDING = 1e-9  # relative distance from the largest or smallest possible sum at which it is that sum
_AT_THE_MEAN = 1e-4  # |r| below which r + ln(u/r)/r is its limit


def share_p_values(squares: Float64[np.ndarray, "head row"]) -> Float64[np.ndarray, " head"]:
    """Probability that a head has as large a sum if each of its values is drawn from those of all heads in that row.

    Its cumulant generating function is K(θ) = Σ_k ln mean_j exp(θ w_jk). Where K'(θ) = x, the normal score of x is
    r + ln(u/r)/r with r² = 2(θx - K), of the sign of θ, and u = θ √K''. No p-value is below heads^-rows, that of one
    outcome; tails are measured in ``tests/scoring/test_head_shares.py``. NaN where all heads are alike.

    Source: J. Robinson, J. R. Stat. Soc. B 44, 91 (1982); R. Lugannani and S. Rice, Adv. Appl. Probab. 12, 475 (1980).
    """
    w = squares / squares.mean()
    heads, rows = w.shape
    variance = w.var(axis=0).sum()
    if variance <= _ALIKE:
        return np.full(heads, np.nan)
    skewness = ((w - w.mean(axis=0)) ** 3).mean(axis=0).sum() / variance**1.5
    p_value = np.array([_upper_tail(x, w, skewness) for x in w.sum(axis=1).tolist()])
    return np.maximum(p_value, float(heads) ** -rows)


def _upper_tail(x: float, w: Float64[np.ndarray, "head row"], skewness: float) -> float:
    """P(sum ≥ x) by the formula of Lugannani and Rice; the mean of the sum is the number of rows."""
    most, least = w.max(axis=0), w.min(axis=0)
    if x >= most.sum() * (1.0 - _ROUNDING):
        return float(np.prod((w == most).mean(axis=0)))
    if x <= least.sum() * (1.0 + _ROUNDING):
        return 1.0
    end = 1.0 if x > w.shape[1] else -1.0
    while (_tilted(end, w)[1] - x) * end < 0.0:
        end *= 2.0
    theta = float(brentq(lambda at: _tilted(at, w)[1] - x, 0.0, end))  # type: ignore[arg-type]
    k, _, variance = _tilted(theta, w)
    root = math.copysign(math.sqrt(max(2.0 * (theta * x - k), 0.0)), theta)
    if abs(root) < _AT_THE_MEAN:
        return float(ndtr(-root - skewness / 6.0))
    return float(ndtr(-root - math.log(theta * math.sqrt(variance) / root) / root))


def _tilted(theta: float, w: Float64[np.ndarray, "head row"]) -> tuple[float, float, float]:
    shift = (theta * w).max(axis=0)
    weight = np.exp(theta * w - shift)
    total = weight.sum(axis=0)
    mean = (weight * w).sum(axis=0) / total
    variance = (weight * (w - mean) ** 2).sum(axis=0) / total
    return float((shift + np.log(total / len(w))).sum()), float(mean.sum()), float(variance.sum())
