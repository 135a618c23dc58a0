"""The null of every spectral statistic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Unpack

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import Distribution, StatedLaw
from rmtbase.laws._edge._extreme_eigenvalues import NEARLY_HARD, largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._exact._log_determinant import LogDeterminant
from rmtbase.laws._exact._trace_moments import trace_cumulants
from rmtbase.laws._null._edges import condition_number, stable_rank
from rmtbase.laws._null._linear import effective_rank, function_of_sums, participation_ratio
from rmtbase.laws._null._pearson import LogPearson3, Pearson3
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes
from rmtbase.parameters import require_flag, require_moderate_sigmas

_SMALLEST_RANK = 8


@dataclass(frozen=True)
class NullLaw(StatedLaw, Distribution):
    """The distribution of one statistic over independent draws of a Gaussian chain.

    Attributes:
        statistic: its registered name.
        dims: (n_0, ..., n_L) of the chain.
        distribution: the law itself.
        method: ``"exact"``, or ``"asymptotic"`` (an expansion in 1/r, r the rank). Of the mean and the standard
            deviation; where the shape is less well known ``accuracy`` says so.
        accuracy: what was measured, in words.
    """

    statistic: str
    dims: tuple[int, ...]
    distribution: Distribution
    method: str
    accuracy: str


class Case(NamedTuple):
    """A chain, and whether its factors are divided by their own size first."""

    chain: ChainParameters
    self_normalized: bool

    @property
    def dims(self) -> tuple[int, ...]:
        return self.chain.dims

    def of(self, law: Callable[..., Any], *arguments: object) -> Any:
        """A law of this case."""
        return law(*arguments, **self.chain.keywords, self_normalized=self.self_normalized)


@dataclass(frozen=True)
class _Recipe:
    """How the null of one statistic is made, and how well it is known."""

    make: Callable[[Case], Distribution]
    method: str
    accuracy: str
    soft_edge: bool = False


@takes(ChainKeywords)
def null(statistic: str, *shape: Any, self_normalized: bool = False, **chain: Unpack[ChainKeywords]) -> NullLaw:
    """Return the distribution of a spectral statistic over independent draws of a Gaussian chain. No simulation.

    Exact (mean and standard deviation in rational arithmetic or digamma functions): ``trace``, ``trace_of_square``,
    ``log_determinant``. Second-order Tracy–Widom (:func:`rmtbase.laws.largest_eigenvalue`): the extreme eigenvalues,
    stable ranks, condition numbers. Central limit theorem with corrections (:func:`rmtbase.laws.linear_statistics`):
    entropies, effective rank, participation ratios of singular values. Expansion of exact moments: participation
    ratios. No number in any of them was fitted.

    ``statistic`` is one of NULL_STATISTICS, the names of ``rmtbase.statistics.SPECTRAL_STATISTICS``:
    ``null("normalized_participation_ratio", d_model=768, d_head=64)``. ``self_normalized`` divides each factor by its
    own estimate |X_l|_F / (n_{l-1} n_l)^(1/2) of σ_l first, as a trained head is: the sigmas then cancel, and
    scale-free statistics do not change.

    Raises:
        ParameterError: for an unknown statistic; parameters outside the domain of
            :class:`rmtbase.laws.GaussianChain`; fewer than 8 nonzero eigenvalues where the null is asymptotic; a
            smallest eigenvalue or condition number where the next dimension exceeds the smallest by less than 8 (a hard
            edge); a statistic that does not vary, as the self-normalised trace of one factor.
    """
    if not isinstance(statistic, str) or statistic not in _RECIPES:
        raise ParameterError("statistic", statistic, f"one of {', '.join(NULL_STATISTICS)}")
    of = ChainParameters(*shape, **chain)
    require_moderate_sigmas(of.sigmas, len(of.sigmas))
    own = require_flag("self_normalized", self_normalized)
    if own:
        of = ChainParameters(dims=of.dims, normalization=of.normalization)
    return _null(statistic, Case(of, own))


@lru_cache(maxsize=1024)
def _null(statistic: str, case: Case) -> NullLaw:
    recipe, dims = _RECIPES[statistic], case.dims
    rank = min(dims)
    if recipe.method == "asymptotic" and rank < _SMALLEST_RANK:
        raise ParameterError(
            "dims",
            dims,
            f"a rank of at least {_SMALLEST_RANK} for the {statistic}, whose null is an expansion in its inverse",
        )
    if recipe.soft_edge and sorted(dims)[1] < rank + NEARLY_HARD:
        raise ParameterError(
            "dims",
            dims,
            f"all dimensions but one larger by {NEARLY_HARD} or more than the smallest for the {statistic}: nearer "
            "than that the lower edge is hard, and has another law",
        )
    return NullLaw(statistic, dims, recipe.make(case), recipe.method, recipe.accuracy)


def _trace(case: Case, power: int) -> Distribution:
    moments = case.of(trace_cumulants, power)
    if moments.std == 0.0:
        raise ParameterError(
            "dims", case.dims, "a trace that varies: self-normalised, that of one factor or of rank 1 does not"
        )
    if power == 1 and len(case.dims) == 2:  # χ²
        return Pearson3(moments.mean, moments.std, moments.skewness)
    return LogPearson3.matched(moments.mean, moments.std, moments.skewness)


def _scale_free(
    accuracy: str, make: Callable[..., Distribution], *arguments: object, soft_edge: bool = False
) -> _Recipe:
    """Of a statistic that depends on the dimensions alone."""
    return _Recipe(lambda case: make(case.dims, *arguments), "asymptotic", accuracy, soft_edge)


# Measured against 20 000 to 500 000 draws of W_QK for each of 40 shapes, beyond two standard errors.
_EXACT_SHAPE = "exact in all respects, to rounding"
_EXACT_MOMENTS = (
    "mean, standard deviation and, below a relative spread of 0.6, skewness exact; tail probabilities from a log-"
    "gamma law with these, measured at d_head >= 16 within 20 % to 1e-3, for the self-normalised trace of the "
    "square within a factor of 2 there"
)
_LARGEST = (
    "measured at d_head >= 16 up to d_head = d_model: mean within 0.01 and quantiles from 1 % to 99.9 % within 0.1 "
    "standard deviations, standard deviation within 0.5 %, tail probabilities within 20 % to 1e-3 and 35 % to 1e-4"
)
_SMALLEST = (
    "measured at d_head >= 16: mean within 0.02 and quantiles from 1 % to 99.9 % within 0.1 standard deviations, "
    "standard deviation within 1.5 %, tail probabilities within 20 % to 1e-3; where the next dimension is larger by"
    " 8 to 15 within 0.04, 0.4, 4 % and 60 %"
)
_CONDITION = (
    "measured at d_head >= 16: mean within 0.02 standard deviations, standard deviation within 1.5 %, tail "
    "probabilities within 15 % to 1e-3; 60 % where the next dimension is larger by 8 to 15"
)
_STABLE = (
    "measured at d_head >= 16: mean within 0.02 standard deviations, standard deviation within 1.5 %, lower tail "
    "within 20 % to 1e-3; upper tail too heavy, at d_head <= d_model / 2 by at most 30 % at 1e-2 and a factor of 2 "
    "at 1e-3, square by factors of 1.6 and 3"
)
_BULK = (
    "measured at d_head >= 16 and d_head <= d_model / 2: mean within 0.01 standard deviations, standard deviation "
    "within 1.5 %, tail probabilities within 25 % to 1e-2 and 50 % to 1e-3; up to d_head = d_model within 0.08, 2 "
    "%, 50 % and a factor of 3"
)
_PARTICIPATION = (
    "measured at d_head >= 16 and d_head <= d_model / 2: mean within 0.01 standard deviations, standard deviation "
    "within 0.5 %, tail probabilities within 25 % to 1e-3; nearly square with d_head < 32 within 0.04, 4 % and a "
    "factor of 3 at 1e-2"
)

_RECIPES: dict[str, _Recipe] = {
    "largest_eigenvalue": _Recipe(lambda case: case.of(largest_eigenvalue), "asymptotic", _LARGEST),
    "smallest_eigenvalue": _Recipe(lambda case: case.of(smallest_eigenvalue), "asymptotic", _SMALLEST, soft_edge=True),
    "trace": _Recipe(lambda case: _trace(case, 1), "exact", _EXACT_MOMENTS),
    "trace_of_square": _Recipe(lambda case: _trace(case, 2), "exact", _EXACT_MOMENTS),
    "participation_ratio": _scale_free(_PARTICIPATION, participation_ratio, "eigenvalue", False),
    "normalized_participation_ratio": _scale_free(_PARTICIPATION, participation_ratio, "eigenvalue", True),
    "spectral_entropy": _scale_free(_BULK, function_of_sums, "eigenvalue", "entropy"),
    "condition_number": _scale_free(_CONDITION, condition_number, 1.0, soft_edge=True),
    "stable_rank": _scale_free(_STABLE, stable_rank, "eigenvalue"),
    "log_determinant": _Recipe(lambda case: case.of(LogDeterminant), "exact", _EXACT_SHAPE),
    "effective_rank": _scale_free(_BULK, effective_rank),
    "participation_ratio_singular": _scale_free(_BULK, participation_ratio, "singular", False),
    "normalized_participation_ratio_singular": _scale_free(_BULK, participation_ratio, "singular", True),
    "spectral_entropy_singular": _scale_free(_BULK, function_of_sums, "singular", "entropy"),
    "condition_number_singular": _scale_free(_CONDITION, condition_number, 0.5, soft_edge=True),
    "stable_rank_singular": _scale_free(_STABLE, stable_rank, "singular"),
}
NULL_STATISTICS: tuple[str, ...] = tuple(_RECIPES)
