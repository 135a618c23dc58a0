"""Accuracy of the null of each spectral statistic, in words, by family of dimensions.

Deviations in excess of two standard errors of the draws: 20 000 to 500 000 for each of 40 shapes of W_QK, 100 000 to
400 000 for each of 20 other chains (``benchmarks/validation``) and, scale-free, of 69 (``studies/spectral_tails``; the
corrections were fitted to 56 of them).
"""

import math
from enum import StrEnum
from typing import NamedTuple

from rmtbase.laws._edge._extreme_eigenvalues import is_nearly_hard

Dims = tuple[int, ...]

WIDE = 0.3
"""Relative spread up to which a law of e^y is matched by its third moment; beyond, by the mean of its inverse."""

_MOST_FACTORS = 6
_RANK = 16


class Method(StrEnum):
    EXACT = "exact"
    EXACT_MOMENTS = "exact moments"
    ASYMPTOTIC = "asymptotic"
    MENDED = "asymptotic, corrected by draws"

    __repr__ = str.__repr__

    @property
    def is_asymptotic(self) -> bool:
        return self in (Method.ASYMPTOTIC, Method.MENDED)


class Accuracy(NamedTuple):
    method: Method
    words: str
    mean_within: float = math.nan  # largest error of its mean, in standard deviations: 0 if exact, NaN if not stated
    std_within: float = math.nan  # largest relative error of its standard deviation, likewise


ALL_EXACT = Accuracy(Method.EXACT, "exact in all respects, to rounding", 0.0, 0.0)


def of_trace(dims: Dims, power: int, self_normalized: bool) -> Accuracy:
    if power == 1 and len(dims) == 2 and not self_normalized:
        return ALL_EXACT
    if power == 1:
        tails = "and up to six factors within 20 % to 1e-3, self-normalised within 35 %"
    elif len(dims) <= 3:
        tails = "within 25 % to 1e-3, self-normalised within a factor of 2 there"
    else:
        tails = "and up to six factors within 20 % at 1e-2 and 50 % at 1e-3, the 99.9 % quantile within 0.2 standard "
        tails += "deviations"
    words = (
        f"mean, standard deviation and, below a relative spread of {WIDE:g}, skewness exact; tail probabilities from a "
        f"log-gamma law with these, measured at a rank of 16 and more {tails}"
    )
    return Accuracy(Method.EXACT_MOMENTS, words, 0.0, 0.0)


# Largest errors of mean and standard deviation, and words, by statistic, from a rank of 16 on.
_AT_SOFT_EDGES = {
    "largest_eigenvalue": (
        0.01,
        0.005,
        ", for W_QK up to d_head = d_model and for three factors: mean within {mean} and quantiles from 1 % to 99.9 % "
        "within 0.11 standard deviations, standard deviation within {std:g} %, tail probabilities within 20 % to 1e-3 "
        "and 35 % to 1e-4",
    ),
    "smallest_eigenvalue": (
        0.02,
        0.015,
        ": mean within {mean} and quantiles from 1 % to 99.9 % within 0.11 standard deviations, standard deviation "
        "within {std:g} %, tail probabilities within 20 % to 1e-3",
    ),
    "condition_number": (
        0.02,
        0.015,
        ": mean within {mean} standard deviations, standard deviation within {std:g} %, tail probabilities within 15 % "
        "to 1e-2 and 35 % at 1e-3",
    ),
}
_NEARLY_EQUAL = (
    "; for three factors or more with several dimensions nearly, but not exactly, equal to the smallest, these are "
)
_AT_HARD_EDGES = {
    "smallest_eigenvalue": "measured at ranks from 8 to 64: median within 0.011 and quantiles from 0.1 % to 99.9 % "
    "within 0.11 standard deviations of the logarithm, tail probabilities within 10 % to 1e-2 and 26 % to 1e-3"
    f"{_NEARLY_EQUAL}0.09, 0.16, 17 % and 26 %",
    "condition_number": "measured at ranks from 16 to 64: median within 0.012 and quantiles from 0.1 % to 99.9 % "
    "within 0.1 standard deviations of the logarithm, tail probabilities within 10 % to 1e-2 and 25 % to 1e-3; at a "
    "rank of 8 the same, except that the lower tail is too heavy by 30 % at 1e-2 and 80 % at 1e-3"
    f"{_NEARLY_EQUAL}0.09, 0.15, 17 % and 36 %",
}


def of_edge(statistic: str, dims: Dims) -> Accuracy:
    if statistic in _AT_HARD_EDGES and is_nearly_hard(dims):
        return Accuracy(Method.ASYMPTOTIC, _AT_HARD_EDGES[statistic])
    mean, std, words = _AT_SOFT_EDGES[statistic]
    words = "measured at a rank of 16 and more" + words.format(mean=mean, std=100 * std)
    return Accuracy(Method.ASYMPTOTIC, words, *((mean, std) if min(dims) >= _RANK else ()))


def with_kurtosis(method: Method, words: str) -> Accuracy:
    words = (
        f"{words}; this is for normal entries, and the law is shifted to first order in the excess kurtosis: for "
        "uniform entries means were measured within 0.1 standard deviations at d_head = 16 and 0.05 at 32, standard "
        "deviations within 6 and 3 %"
    )
    return Accuracy(method if method.is_asymptotic else Method.ASYMPTOTIC, words)


def of_scale_free(dims: Dims, stable: bool = False) -> Accuracy:
    factors, high_rank = len(dims) - 1, min(dims) >= _RANK
    if factors > _MOST_FACTORS:
        mean, std, tails = 0.02, 0.015, "25 % at 1e-2 and 50 % at 1e-3"
        if stable:
            std, tails = 0.06, "60 % at 1e-2 and a factor of 2.5 at 1e-3"
    elif not high_rank:
        mean, std, tails = 0.02, 0.02, f"25 % at 1e-2 and {'55' if stable else '40'} % at 1e-3"
    else:
        mean, std, tails = 0.015, 0.007, "25 % to 1e-3"
    chains = {1: "one factor", 2: "W_QK and other products of two"}.get(
        factors, "three to six factors" if factors <= _MOST_FACTORS else "eight factors"
    )
    words = (
        f"measured for {chains} at {'a rank of 16 and more' if high_rank else 'a rank of 8 to 15'}"
        f"{', the smallest dimension repeated' if dims.count(min(dims)) > 1 else ''}: mean within {mean} standard "
        f"deviations, standard deviation within {100 * std:g} %, tail probabilities within {tails}"
    )
    return Accuracy(Method.MENDED, words, mean, std)
