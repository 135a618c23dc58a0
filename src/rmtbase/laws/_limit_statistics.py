"""Means of the scale-free spectral statistics of W_QK from its limiting law."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rmtbase.errors import ParameterError
from rmtbase.laws._extreme_eigenvalues import EdgeLaw, largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._gaussian_chain import GaussianChain
from rmtbase.laws._low_rank_product import low_rank_product
from rmtbase.parameters import require_head_shape


@dataclass(frozen=True)
class LimitMean:
    """Mean of a statistic from the limiting law.

    Attributes:
        mean: the asymptotic mean.
        method: how it was obtained, with the order of the neglected term.
    """

    mean: float
    method: str


def limit_mean(statistic: str, d_model: int, d_head: int) -> LimitMean:
    """Return the asymptotic mean of a scale-free statistic of one draw of W_QK.

    With h = d_head, s = sqrt(lambda), and E over the limiting law of lambda for d_model + 1 and d_head + 1:

        spectral_entropy               ln h + ln E[lambda] - E[lambda ln lambda] / E[lambda]
        spectral_entropy_singular      the same with s for lambda
        effective_rank                 exp of spectral_entropy_singular
        participation_ratio_singular   h E[s]^2 / E[s^2], and divided by h for normalized_...
        stable_rank                    h E[lambda] / E[lambda_max], lambda_max by the Tracy-Widom edge law
        condition_number               E[lambda_max] / E[lambda_min], a soft lower edge only; sqrt of
                                       each for condition_number_singular; to second order in the spreads

    The dimensions raised by one give the correction of order 1/d_model that real matrices have at small d_head/d_model,
    as the exact second moment shows: h E sum lambda^2 / (E sum lambda)^2 = 1 + 2 (h + 1)/d + O((h/d)/d). Measured for
    the bulk statistics: within 0.05 standard deviations of the mean of simulated draws for d_head <= d_model/8, 0.25
    at d_model/2, 0.75 at d_head = d_model, where the correction is nil (0.4 to 0.75 everywhere without it). The edge
    statistics: within 0.05 standard deviations, but 0.1 for the condition numbers at (80, 64), where they are
    heavy-tailed. At d_head = 1 all are constants, given exactly.

    For ``participation_ratio`` use the exact moments (:func:`rmtbase.laws.participation_ratio`).

    Args:
        statistic: one of LIMIT_STATISTICS.
        d_model: width of the residual stream.
        d_head: head dimension, at most d_model.

    Raises:
        ParameterError: for an unknown statistic, d_head > d_model, dimensions that are not positive
            integers, or a condition number at d_head = d_model.
    """
    if statistic not in _STATISTICS:
        raise ParameterError("statistic", statistic, f"one of {', '.join(LIMIT_STATISTICS)}")
    width, head = require_head_shape(d_model, d_head)
    if head == 1:
        return LimitMean(0.0 if statistic.startswith("spectral_entropy") else 1.0, "exact")
    mean, method = _STATISTICS[statistic]
    return LimitMean(mean(width, head), method)


def _law(d_model: int, d_head: int) -> GaussianChain:
    """The law whose shape the bulk statistics are taken from."""
    return low_rank_product(d_model + 1, d_head + 1, normalization="sqrt_d")


def _entropy(power: float) -> Callable[[int, int], float]:
    def entropy(d_model: int, d_head: int) -> float:
        law = _law(d_model, d_head)
        mass = law.expect(lambda x: x**power)
        weighted = law.expect(lambda x: x**power * np.log(x**power))
        return math.log(d_head) + math.log(mass) - weighted / mass

    return entropy


def _effective_rank(d_model: int, d_head: int) -> float:
    return math.exp(_entropy(0.5)(d_model, d_head))


def _normalized_participation_ratio_singular(d_model: int, d_head: int) -> float:
    law = _law(d_model, d_head)
    return law.expect(np.sqrt) ** 2 / law.mean()


def _participation_ratio_singular(d_model: int, d_head: int) -> float:
    return d_head * _normalized_participation_ratio_singular(d_model, d_head)


def _edges(d_model: int, d_head: int) -> tuple[EdgeLaw, EdgeLaw]:
    dims = (d_model, d_head, d_model)
    return (
        smallest_eigenvalue(dims, normalization="sqrt_d"),
        largest_eigenvalue(dims, normalization="sqrt_d"),
    )


def _stable_rank(d_model: int, d_head: int) -> float:
    largest = largest_eigenvalue((d_model, d_head, d_model), normalization="sqrt_d")
    mean = low_rank_product(d_model, d_head, normalization="sqrt_d").mean()
    return d_head * mean / largest.mean()


def _condition_number(power: float) -> Callable[[int, int], float]:
    def condition_number(d_model: int, d_head: int) -> float:
        smallest, largest = _edges(d_model, d_head)
        # E x^p = (E x)^p (1 + p (p - 1) v / 2), v the relative variance; the two edges are independent in the limit.
        above = 1.0 + 0.5 * power * (power - 1.0) * largest.var() / largest.mean() ** 2
        below = 1.0 + 0.5 * power * (power + 1.0) * smallest.var() / smallest.mean() ** 2
        return (largest.mean() / smallest.mean()) ** power * above * below

    return condition_number


_BULK = "limiting law at dimensions raised by one; neglected: relative order d_head / d_model^2"
_EDGE = "Tracy-Widom edges with half-shift; neglected: relative order d_head^(-4/3)"
_STATISTICS: dict[str, tuple[Callable[[int, int], float], str]] = {
    "spectral_entropy": (_entropy(1.0), _BULK),
    "spectral_entropy_singular": (_entropy(0.5), _BULK),
    "effective_rank": (_effective_rank, _BULK),
    "participation_ratio_singular": (_participation_ratio_singular, _BULK),
    "normalized_participation_ratio_singular": (_normalized_participation_ratio_singular, _BULK),
    "stable_rank": (_stable_rank, _EDGE),
    "condition_number": (_condition_number(1.0), _EDGE),
    "condition_number_singular": (_condition_number(0.5), _EDGE),
}
LIMIT_STATISTICS: tuple[str, ...] = tuple(_STATISTICS)
