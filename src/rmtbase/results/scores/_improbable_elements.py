"""Elements that are improbable under the body of their own matrix, where its tail shows what body that is.

With σ of the normal law that is fitted to the core, an element at distance x has the tail probability
u(x) = 2 Φ(-x/σ), and any of N independent ones is so large with 1 - (1 - u)^N. That is a statement about the tail of
the body, and the fit is one to its core: so the tail must first be seen to fall off as that of a normal law, or faster.
Of N independent elements u(x₍ₘ₎), of the m-th largest, is the m-th smallest of N uniform numbers, N u ~ Gamma(m); and
given it, u(x₍ₖ₎)/u(x₍ₘ₎) of the k-th largest is Beta(k, m - k). A body with heavier tails (Laplace, t, a mixture of
scales) has larger elements there, and u too small. Where one of the two p-values is below 0.01, elements cannot be told
from the tail by their probability; a gap may still tell them (:meth:`LargestElements.isolation`).

σ is no less than what brings the m-th largest element to its expected place, so that a tail slightly heavier than the
core's makes none improbable. Lighter ones (uniform, truncated) make u too large: fewer are listed.

Measured by studies/element_nulls/improbable.py, 150 matrices of 4 096 elements at a level of 2.5 %: an element is
listed in 1.3 ± 0.9 % of normal ones; in none of uniform, logistic, Laplace's and Student's t₃ and t₁₀ (of the last four
nothing can be told in 97 to 100 %); and in 5 to 6 ± 2 % where the tail is only a little heavier (t₂₀, t₅₀, two scales
of which one is 1.2 times the other): there the level is exceeded. One element of 7 to 12 σ among 16 384 normal ones is
listed in 94 to 100 % of 50 matrices, at the level that a model of twelve matrices leaves; of the others it is said that
nothing can be told.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr
from scipy.stats import beta, gamma, norm

from rmtbase.results.scores._largest_elements import LargestElements

_TAIL, _SHARE, _FEWEST = 64, 64, 16  # largest elements; of the elements at most one in so many; with fewer none is told
_INNER = 8  # elements below those that are listed, by which the course of the tail is seen
_HEAVY = 0.01  # p-value of the tail below which it is no normal one's


class Improbable(NamedTuple):
    """Elements by their probability.

    Attributes:
        p_value: of the largest elements, descending, that any of N is so large under the body; empty where nothing is
            so large that it would be listed, or its tail has too few elements.
        is_heavy: whether the tail is heavier than the body's, so that nothing can be told of these.
    """

    p_value: Float[np.ndarray, " rank"]
    is_heavy: bool


def improbable(largest: LargestElements, core_sigma: float, level: float) -> Improbable:
    """Find the largest elements that any of N would reach with a probability of at most ``level``.

    Args:
        largest: of the matrix.
        core_sigma: σ.
        level: of the matrix.
    """
    count, m = largest.count, min(_TAIL, largest.count // _SHARE, len(largest.value) - 1)
    if m < _FEWEST or not core_sigma > 0 or not abs(largest.value[m]) > 0:
        return Improbable(np.empty(0), False)
    magnitude = np.abs(largest.value[: m + 1])
    if not np.any(_of_any(_log_tail(magnitude[:1], core_sigma), count) <= level):
        return Improbable(np.empty(0), False)
    sigma = max(core_sigma, magnitude[m - 1] / float(norm.isf(0.5 * m / count)))
    p_value = _of_any(_log_tail(magnitude, sigma), count)
    listed = int(np.searchsorted(p_value, level, side="right"))  # they rise
    if listed > m // 2:
        return Improbable(p_value[:listed], True)
    left = m - listed
    log_u = _log_tail(magnitude, core_sigma)
    place = gamma.cdf(count * np.exp(log_u[m - 1]), left)
    course = beta.cdf(np.exp(log_u[listed + _INNER - 1] - log_u[m - 1]), _INNER, left - _INNER)
    is_heavy = bool(min(place, course) < _HEAVY)
    return Improbable(p_value[: max(listed, int(is_heavy))], is_heavy)


def _log_tail(magnitude: Float[np.ndarray, "..."], sigma: float) -> Float[np.ndarray, "..."]:
    """ln P(|w| ≥ x) of N(0, σ²)."""
    return np.log(2.0) + log_ndtr(-magnitude / sigma)


def _of_any(log_probability: Float[np.ndarray, "..."], count: int) -> Float[np.ndarray, "..."]:
    """1 - (1 - p)^N."""
    with np.errstate(divide="ignore"):
        return -np.expm1(count * np.log1p(-np.exp(log_probability)))
