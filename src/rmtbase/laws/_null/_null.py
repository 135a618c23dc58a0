"""Nulls of all spectral statistics, with their accuracy by family of dimensions.

Deviations in excess of two standard errors of the draws: 20 000 to 500 000 for each of 40 shapes of W_QK, 100 000 to
400 000 for each of 20 other chains (``benchmarks/validation``) and, scale-free, of 69 (``studies/spectral_tails``; the
corrections were fitted to 56 of them).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import chain_map, chain_scale
from rmtbase.laws._chain._linear_statistics import kurtosis_weight, linear_statistics_of_map
from rmtbase.laws._distribution import Distribution, FloatArray, KnownSpread, StatedLaw, TransformedLaw
from rmtbase.laws._edge._extreme_eigenvalues import is_nearly_hard, largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._exact._log_determinant import LogDeterminant
from rmtbase.laws._exact._trace_polynomials import log_inverse_moment, trace_cumulants
from rmtbase.laws._null import _spectral_laws as spectral
from rmtbase.laws._null._pearson import LogPearson3, Pearson3
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes
from rmtbase.parameters import require_moderate_sigmas

Dims = tuple[int, ...]

_WIDE = 0.3
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
        f"mean, standard deviation and, below a relative spread of {_WIDE:g}, skewness exact; tail probabilities from "
        f"a log-gamma law with these, measured at a rank of 16 and more {tails}"
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


_POWERS = {"largest_eigenvalue": 1.0, "smallest_eigenvalue": 1.0, "trace": 1.0, "trace_of_square": 2.0}


class Change(NamedTuple):
    """Change of a statistic T per unit of K = Σ_l κ_l / (n_{l-1} n_l); see ``_linear_statistics``."""

    ratio: float  # d ln E T / d K for a positive statistic without an upper bound, 0 for others
    shift: float  # d E T / d K for the others
    # d ln T / d ln c (d T / d ln c for the log-determinant), with c the scale of the eigenvalues; the variance of ln c
    # grows by K. It is 0 for scale-free statistics.
    scale: float


@dataclass(frozen=True)
class MovedLaw(TransformedLaw, KnownSpread):
    """Law of ``centre`` + (T - E T) · ``stretch``, where T has another law; ``centre`` is its mean."""

    law: Distribution
    centre: float
    stretch: float

    @property
    def support(self) -> tuple[float, float]:
        low, high = self.law.support
        return float(self._to(low)), float(self._to(high))

    def mean(self) -> float:
        return self.centre

    def std(self) -> float:
        return self.stretch * self.law.std()

    def _pdf(self, x: FloatArray) -> FloatArray:
        return self.law.pdf(self._from(x)) / self.stretch

    def _to(self, x: FloatArray | float) -> FloatArray:
        return self.centre + (x - self.law.mean()) * self.stretch  # type: ignore[return-value]

    def _from(self, x: FloatArray) -> FloatArray:
        return self.law.mean() + (x - self.centre) / self.stretch


@lru_cache(maxsize=1024)
def change_of(statistic: str, dims: tuple[int, ...]) -> Change:
    rank, scale = min(dims), _POWERS.get(statistic, 0.0)
    if statistic == "trace":
        return Change(0.0, 0.0, scale)
    if statistic == "log_determinant":
        return Change(0.0, -0.5 * rank**2, float(rank))
    if statistic == "largest_eigenvalue":
        return Change(_at_mean(largest_eigenvalue, dims), 0.0, scale)
    if statistic == "smallest_eigenvalue":
        return Change(_at_mean(smallest_eigenvalue, dims), 0.0, scale)
    convention = "singular" if statistic.endswith("_singular") or statistic == "effective_rank" else "eigenvalue"
    power = spectral.POWERS[convention]
    if statistic.startswith("condition_number"):
        return Change(power * (_at_mean(largest_eigenvalue, dims) - _at_mean(smallest_eigenvalue, dims)), 0.0, 0.0)
    totals, by = _change_of_sums(dims, convention)
    if statistic == "trace_of_square":
        return Change(float(by[2] / totals[2]), 0.0, scale)
    if statistic.startswith("stable_rank"):
        stable = float(totals[0]) / math.exp(power * chain_map(dims).log_upper)
        return Change(0.0, stable * (float(by[0] / totals[0]) - power * _at_mean(largest_eigenvalue, dims)), 0.0)
    summed = "participation_ratio" if "participation_ratio" in statistic else "entropy"
    chosen = [0, spectral.SECOND[summed]]
    expansion = spectral.EXPANSIONS[summed](*totals[chosen])  # the entropy, or ln of the participation ratio
    shift = float(expansion.gradient @ by[chosen])
    if "entropy" not in statistic:
        shift *= math.exp(expansion.value)
    return Change(0.0, shift / rank if statistic.startswith("normalized") else shift, 0.0)


@lru_cache(maxsize=256)
def _change_of_sums(dims: tuple[int, ...], convention: str) -> tuple[FloatArray, FloatArray]:
    normal = spectral.sums(dims, convention).mean
    return normal, linear_statistics_of_map(chain_map(dims), spectral.summands(convention), 1.0).mean - normal


@lru_cache(maxsize=256)
def _at_mean(edge: Callable[..., Distribution], dims: tuple[int, ...]) -> float:
    """Return r Re ψ at the mean of an extreme eigenvalue; nan if it has no law."""
    try:
        mean = edge(dims=dims, normalization="none").mean()
    except ParameterError:  # too few eigenvalues
        return math.nan
    chain = chain_map(dims)
    return float(chain.rank * chain.real_psi(np.log(np.array([mean / chain_scale(chain, Fraction(1))])))[0])


_SMALLEST_RANK = 8


@dataclass(frozen=True)
class NullLaw(StatedLaw):
    """Distribution of one statistic over independent draws of a Gaussian chain.

    Attributes:
        statistic, dims: registered name of the statistic, and (n_0, ..., n_L) of the chain.
        distribution: the law itself.
        method: ``"exact"``; ``"exact moments"`` if mean and standard deviation are exact but the shape is not;
            ``"asymptotic"`` (an expansion in 1/r); or ``"asymptotic, corrected by draws"`` of other chains.
        accuracy: the accuracy measured for chains of this kind, in words.
        mean_within, std_within: largest error of the mean, in standard deviations, and relative error of the standard
            deviation: 0 if exact, NaN if not stated.
    """

    statistic: str
    dims: tuple[int, ...]
    distribution: Distribution
    method: Method
    accuracy: str
    mean_within: float = math.nan
    std_within: float = math.nan


class Case(NamedTuple):
    chain: ChainParameters
    self_normalized: bool

    @property
    def dims(self) -> tuple[int, ...]:
        return self.chain.dims

    def law(self, make: Callable[..., Any], *arguments: object) -> Any:
        return make(*arguments, **self.chain.keywords, self_normalized=self.self_normalized)


class _Recipe(NamedTuple):
    make: Callable[[Case], Distribution]
    stated: Callable[[Case], Accuracy]


@takes(ChainKeywords)
def null(
    statistic: str,
    *shape: Any,
    self_normalized: bool = False,
    excess_kurtosis: ArrayLike = 0.0,
    **chain: Unpack[ChainKeywords],
) -> NullLaw:
    """Return the distribution of a spectral statistic over independent draws of a Gaussian chain, without drawing.

    ``log_determinant``, and the ``trace`` of one factor, are exact. ``trace`` and ``trace_of_square`` have exact
    moments, and those of participation ratios are continued from exact ones. The extreme eigenvalues and condition
    numbers follow the second-order Tracy–Widom law (:func:`rmtbase.laws.largest_eigenvalue`), and so do stable ranks,
    together with the central limit theorem, which gives the others (:func:`rmtbase.laws.linear_statistics`). The
    remaining error of the normal score of participation ratios, entropies and ranks was fitted to draws of other
    chains (``studies/spectral_tails``); no other number is fitted.

    ``statistic`` is one of NULL_STATISTICS: ``null("normalized_participation_ratio", d_model=768, d_head=64)``.
    ``self_normalized`` first divides each factor by its own estimate |X_l|_F / (n_{l-1} n_l)^(1/2) of σ_l, as is done
    with a trained head: the sigmas then cancel. ``excess_kurtosis`` is that of independent entries that are not normal,
    one number for all factors or one for each: mean and spread are shifted to first order in it, the shape stays.

    Raises:
        ParameterError: for an unknown statistic; parameters outside the domain of :class:`rmtbase.laws.GaussianChain`;
            fewer than 8 nonzero eigenvalues where the null is asymptotic, or so few that no law has the moments of the
            expansion; a smallest eigenvalue or condition number where more than five dimensions are nearly equal; a
            statistic that does not vary, such as the self-normalised trace of one factor.
    """
    if not isinstance(statistic, str) or statistic not in _RECIPES:
        raise ParameterError("statistic", statistic, f"one of {', '.join(NULL_STATISTICS)}")
    case = _case(shape, chain, self_normalized)
    law, kurtosis = _null(statistic, case), kurtosis_weight(case.dims, excess_kurtosis)
    if not kurtosis:
        return law
    change, mean = change_of(statistic, case.dims), law.mean()
    times = math.exp(kurtosis * change.ratio)
    degree = change.scale if statistic == "log_determinant" else change.scale * mean
    grown = 1.0 if self_normalized else math.sqrt(max(1.0 + kurtosis * (degree / law.std()) ** 2, 0.0))
    moved = MovedLaw(law.distribution, mean * times + kurtosis * change.shift, times * grown)
    words = (
        f"{law.accuracy}; this is for normal entries, and the law is shifted to first order in the excess kurtosis: "
        "for uniform entries means were measured within 0.1 standard deviations at d_head = 16 and 0.05 at 32, "
        "standard deviations within 6 and 3 %"
    )
    method = law.method if law.method.is_asymptotic else Method.ASYMPTOTIC
    return NullLaw(statistic, case.dims, moved, method, words)


@takes(ChainKeywords)
def known_nulls(*shape: Any, self_normalized: bool = False, **chain: Unpack[ChainKeywords]) -> dict[str, NullLaw]:
    """Return the :func:`null` of every statistic whose domain contains the chain, by name."""
    case, laws = _case(shape, chain, self_normalized), {}
    for statistic in NULL_STATISTICS:
        with suppress(ParameterError):
            laws[statistic] = _null(statistic, case)
    return laws


def _case(shape: tuple[Any, ...], keywords: ChainKeywords, self_normalized: bool) -> Case:
    chain = ChainParameters(*shape, **keywords)
    require_moderate_sigmas(chain.sigmas, len(chain.sigmas))
    if self_normalized:
        chain = ChainParameters(dims=chain.dims, normalization=chain.normalization)
    return Case(chain, self_normalized)


@lru_cache(maxsize=1024)
def _null(statistic: str, case: Case) -> NullLaw:
    recipe = _RECIPES[statistic]
    stated = recipe.stated(case)
    if stated.method.is_asymptotic and min(case.dims) < _SMALLEST_RANK:
        raise ParameterError(
            "dims", case.dims, f"a rank of at least {_SMALLEST_RANK}: the null is an expansion in 1/rank"
        )
    return NullLaw(statistic, case.dims, recipe.make(case), *stated)


def _trace(case: Case, power: int) -> Distribution:
    moments = case.law(trace_cumulants, power)
    if moments.std == 0.0:
        raise ParameterError(
            "dims", case.dims, "a trace that varies; the self-normalised trace of one factor or of rank 1 does not"
        )
    if power == 1 and len(case.dims) == 2:  # χ²
        return Pearson3(moments.mean, moments.std, moments.skewness)
    if moments.std < _WIDE * moments.mean:
        return LogPearson3.matched(moments.mean, moments.std, moments.skewness)
    log_product = log_inverse_moment(power, case.dims, case.self_normalized)
    return LogPearson3.with_inverse(moments.mean, moments.std, log_product)


def _traces(power: int) -> _Recipe:
    return _Recipe(lambda case: _trace(case, power), lambda case: of_trace(case.dims, power, case.self_normalized))


def _at_edge(statistic: str, make: Callable[[Case], Distribution]) -> _Recipe:
    return _Recipe(make, lambda case: of_edge(statistic, case.dims))


def _scale_free(make: Callable[..., Distribution], *arguments: object, stable: bool = False) -> _Recipe:
    return _Recipe(lambda case: make(case.dims, *arguments), lambda case: of_scale_free(case.dims, stable))


_RECIPES: dict[str, _Recipe] = {
    "largest_eigenvalue": _at_edge("largest_eigenvalue", lambda case: case.law(largest_eigenvalue)),
    "smallest_eigenvalue": _at_edge("smallest_eigenvalue", lambda case: case.law(smallest_eigenvalue)),
    "trace": _traces(1),
    "trace_of_square": _traces(2),
    "participation_ratio": _scale_free(spectral.participation_ratio, "eigenvalue", False),
    "normalized_participation_ratio": _scale_free(spectral.participation_ratio, "eigenvalue", True),
    "spectral_entropy": _scale_free(spectral.entropy, "eigenvalue"),
    "condition_number": _at_edge("condition_number", lambda case: spectral.condition_number(case.dims, 1.0)),
    "stable_rank": _scale_free(spectral.stable_rank, "eigenvalue", stable=True),
    "log_determinant": _Recipe(lambda case: case.law(LogDeterminant), lambda _: ALL_EXACT),
    "effective_rank": _scale_free(spectral.effective_number, "singular", "entropy"),
    "participation_ratio_singular": _scale_free(spectral.participation_ratio, "singular", False),
    "normalized_participation_ratio_singular": _scale_free(spectral.participation_ratio, "singular", True),
    "spectral_entropy_singular": _scale_free(spectral.entropy, "singular"),
    "condition_number_singular": _at_edge("condition_number", lambda case: spectral.condition_number(case.dims, 0.5)),
    "stable_rank_singular": _scale_free(spectral.stable_rank, "singular", stable=True),
}
NULL_STATISTICS: tuple[str, ...] = tuple(_RECIPES)
