"""Elements that are improbable under the body of their own matrix, if its tail agrees with the body.

If σ is the width of the normal law fitted to the core, an element at distance x has the tail probability
u(x) = 2 Φ(-x/σ), and any of N independent elements is so large with probability 1 - (1 - u)^N. This concerns
the tail of the body, but the law is fitted to the core. So the tail must first be shown to fall off as that of a normal
law, or faster. For N independent elements, u(x₍ₘ₎) of the m-th largest is the m-th smallest of N uniform numbers,
N u ~ Gamma(m). Given u(x₍ₘ₎), the ratio u(x₍ₖ₎)/u(x₍ₘ₎) for the k-th largest is Beta(k, m - k). A body with heavier
tails (Laplace, t, a mixture of scales) has larger elements there, and u is too small. If one of the two p-values is
below 0.01, probability cannot separate elements from the tail; a gap still can (:meth:`LargestElements.isolation`).

σ is raised, if necessary, until the m-th largest element is at its expected place, so that a tail slightly heavier than
the core's makes no element improbable. Lighter tails (uniform, truncated) make u too large, so that fewer elements are
listed.

Measured by studies/element_nulls/improbable.py on 150 matrices of 4 096 elements at a level of 2.5 %: an element is
listed in 1.3 ± 0.9 % of normal matrices, and in none with uniform, logistic, Laplace, Student t₃ or t₁₀ elements (for
the last four, 97 to 100 % of the tails are too heavy to decide). If the tail is only slightly heavier (t₂₀, t₅₀, or two
scales with ratio 1.2), an element is listed in 5 to 6 ± 2 %, above the level. One element of 7 to 12 σ among 16 384
normal elements is listed in 94 to 100 % of 50 matrices, at the level for a model of twelve matrices; the other matrices
are reported as undecided.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr
from scipy.stats import beta, gamma, norm

from rmtbase.results.scores._largest_elements import LargestElements

_TAIL, _SHARE, _FEWEST = 64, 64, 16  # largest elements used; at most one element in so many; fewest that decide
_INNER = 8  # elements below the listed ones, which show the shape of the tail
_HEAVY = 0.01  # p-value below which a tail is not that of a normal law


class Improbable(NamedTuple):
    """Probabilities of the largest elements."""

    # probability that any of N elements is so large under the body, for the largest elements in descending order; empty
    # if no element is large enough to be listed, or the tail has too few elements
    p_value: Float[np.ndarray, " rank"]
    is_heavy: bool  # whether the tail is heavier than the body's, so that these elements cannot be judged


def improbable(largest: LargestElements, core_sigma: float, level: float) -> Improbable:
    """Find the largest elements that any of N would reach with a probability of at most ``level``."""
    count, m = largest.count, min(_TAIL, largest.count // _SHARE, len(largest.value) - 1)
    if m < _FEWEST or not core_sigma > 0 or not abs(largest.value[m]) > 0:
        return Improbable(np.empty(0), False)
    magnitude = np.abs(largest.value[: m + 1])
    if not np.any(_of_any(_log_tail(magnitude[:1], core_sigma), count) <= level):
        return Improbable(np.empty(0), False)
    sigma = max(core_sigma, magnitude[m - 1] / float(norm.isf(0.5 * m / count)))
    p_value = _of_any(_log_tail(magnitude, sigma), count)
    listed = int(np.searchsorted(p_value, level, side="right"))  # p-values ascend
    if listed > m // 2:
        return Improbable(p_value[:listed], True)
    left = m - listed
    log_u = _log_tail(magnitude, core_sigma)
    place = gamma.cdf(count * np.exp(log_u[m - 1]), left)
    course = beta.cdf(np.exp(log_u[listed + _INNER - 1] - log_u[m - 1]), _INNER, left - _INNER)
    is_heavy = bool(min(place, course) < _HEAVY)
    return Improbable(p_value[: max(listed, int(is_heavy))], is_heavy)


def _log_tail(magnitude: Float[np.ndarray, "..."], sigma: float) -> Float[np.ndarray, "..."]:
    """Return ln P(|w| ≥ x) of N(0, σ²)."""
    return np.log(2.0) + log_ndtr(-magnitude / sigma)


def _of_any(log_probability: Float[np.ndarray, "..."], count: int) -> Float[np.ndarray, "..."]:
    """Return 1 - (1 - p)^N."""
    with np.errstate(divide="ignore"):
        return -np.expm1(count * np.log1p(-np.exp(log_probability)))
