"""Null distributions of one head's statistics, and models that provide one for every head.

A trained head's σ is estimated from its own factors, σ̂² = ‖X‖_F²/(m n). A statistic at σ̂ has a narrower null than at
the true σ, so every null draw is rescaled by its own estimate, too; calibration depends on this.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws import PROBABILITIES, eigenvalue_displacement
from rmtbase.parameters import require_real_numbers
from rmtbase.progress import Progress
from rmtbase.shown import in_one_line
from rmtbase.statistics import SPECTRAL_STATISTICS, normal_score, rescale_statistics, spectral_statistics

EDGE_LEVEL = 1e-3
"""Probability with which a null head has an eigenvalue beyond an edge quantile, on each side."""

SMALLEST_P_VALUE = 1e-16
"""Floor of a p-value that comes from a law. p-values below 1e-4 are extrapolations of the right order of magnitude;
below this floor nothing is claimed."""

ENTRIES_IN_WORDS = MappingProxyType(
    {"normal": "Gaussian", "uniform": "uniform", "truncated_normal": "truncated normal", "orthogonal": "orthogonal"}
)

AT_OWN_SCALE = "at the head's own sigma, every null draw at its own estimate"

ROUNDING = 1e-9  # relative; statistics that a null holds fixed come out of LAPACK equal to far more digits

_LIMITS = {0: np.nan, "additive": -np.inf}
_OF_ZEROS = np.array([_LIMITS.get(statistic.scaling, 0.0) for statistic in SPECTRAL_STATISTICS.values()])
_LARGEST_SINGULAR_VALUE = 1e75  # its fourth power and that of its inverse are within the range of float64


@in_one_line
@dataclass(frozen=True)
class Heads:
    #: singular values of each raw product, descending, as many as its rank; all zero where a factor is zero
    singular_values: Float[np.ndarray, "layer head rank"]
    #: σ̂ of each factor, in the order of the product: for W_QK (σ̂_Q of the head, σ̂_K of its key head); for latent
    #: attention σ̂ of W_UQ, W_DQ, W_UK and W_DKV, or of W_Q, W_UK and W_DKV
    sigmas: tuple[Float[np.ndarray, "layer head"], ...]
    #: reads the factors of one layer, for a null that is made from them. Each has the shape (its heads, rank side,
    #: other side): for W_QK they are W_Q (head, d_head, d_query) and W_K (key head, d_head, d_key), for W_OV W_Oᵀ and
    #: W_V. Head i uses entry i // (heads / its heads) of a factor. For latent attention they are W_Q and W_K,
    #: multiplied out.
    factors: Callable[[int], tuple[Float[np.ndarray, "factor_head h d"], ...]]
    #: :meth:`LatentShape.rope_ratio` of each head of latent attention; None for other heads
    rope_ratio: Float[np.ndarray, "layer head"] | None = None
    #: what ``Null.prepare`` returned for each head, by layer; None where it returned nothing
    prepared: Sequence[Sequence[Any]] | None = None


@in_one_line
@dataclass(frozen=True)
class HeadScores:
    observed: Float[np.ndarray, "... statistic"]
    null_mean: Float[np.ndarray, "... statistic"]
    null_std: Float[np.ndarray, "... statistic"]
    null_quantile: Float[np.ndarray, "... statistic probability"]
    z_score: Float[np.ndarray, "... statistic"]
    p_value: Float[np.ndarray, "... statistic"]
    omnibus_p_value: Float[np.ndarray, "..."]
    farthest: Int[np.ndarray, "..."]  # index of the statistic with the largest :meth:`HeadNull.distance`
    outliers_above: Int[np.ndarray, "..."]
    outliers_below: Int[np.ndarray, "..."]

    @classmethod
    def stacked(cls, scores: Sequence[HeadScores]) -> HeadScores:
        return cls(*(np.stack([getattr(head, field.name) for head in scores]) for field in fields(cls)))


@in_one_line
class ScoredHeads(NamedTuple):
    scores: HeadScores  #: scores with the leading axes (layer, head)
    null_group: Callable[[], xr.Dataset]  #: makes the ``/null`` group of a scores file; only a file needs it


class NullModel(Protocol):
    """Null that the heads of a model are scored against.

    Attributes:
        source: where the null came from, in words.
        entries: law of the entries of null heads, one of :data:`rmtbase.parameters.INITIALIZATIONS`; ``"kurtosis"``,
            any law with the kurtosis of the head's own; or ``"signs"`` or ``"axes"``, the head's own entries.
        method: how the null is known: ``"simulated"``, ``"analytic"`` or ``"resampled"``.
        per_head: true if every head has a null of its own, made from its own matrices.
        draws: number of null draws of each head; 0 for an analytic null.
        edge_level: probability with which a null head has an eigenvalue beyond an edge quantile, on each side.
        p_value_floor: the smallest p-value that one statistic can have.
        described: names the null of heads with these factors (``W_Q and W_K``) in words.
        record: returns the entry of this null in the provenance.
    """

    @property
    def entries(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def per_head(self) -> bool: ...
    @property
    def draws(self) -> int: ...
    @property
    def edge_level(self) -> float: ...
    @property
    def p_value_floor(self) -> float: ...
    def described(self, factors: str) -> str: ...
    def score_heads(self, heads: Heads, progress: Progress) -> ScoredHeads: ...
    def record(self) -> dict[str, object]: ...


class HeadNull(ABC):
    """Null of the statistics, raw at σ̂ = 1 in the registry's order, of all heads of a shape: a ``NullModel``."""

    dims: tuple[int, ...]  #: (n_0, …, n_L) of the chain of factors; (d_model, d_head, d_model) for W_QK
    source: str  #: where the null came from, in words
    entries: str = "normal"  #: the law of the factors' elements, one of :data:`rmtbase.parameters.INITIALIZATIONS`
    per_head = False
    edge_level = EDGE_LEVEL

    @property
    def draws(self) -> int:
        return 0  # as for an analytic null

    @cached_property
    @abstractmethod
    def moments(self) -> tuple[Float[np.ndarray, " statistic"], Float[np.ndarray, " statistic"]]:
        """Null mean and standard deviation of each statistic; NaN where infinite, unknown or beyond the draws."""

    @cached_property
    @abstractmethod
    def quantile(self) -> Float[np.ndarray, "statistic probability"]:
        """Null quantiles at ``laws.PROBABILITIES``."""

    @abstractmethod
    def distance(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        """|z| of each statistic; of ln x for positive ones without an upper bound, whose nulls have long tails."""

    @abstractmethod
    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        """Two-sided p-values; NaN where a statistic's null is not known."""

    @abstractmethod
    def omnibus_p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]: ...

    @abstractmethod
    def spectrum(self) -> xr.Dataset:
        """Spectrum of the null, as figures show it: the ``/null`` group without edge quantiles and coordinates."""

    @abstractmethod
    def record(self) -> dict[str, object]: ...

    @property
    def rank(self) -> int:
        return min(self.dims)

    @property
    def mean(self) -> Float[np.ndarray, " statistic"]:
        return self.moments[0]

    @property
    def std(self) -> Float[np.ndarray, " statistic"]:
        return self.moments[1]

    @cached_property
    def edge_quantiles(self) -> tuple[float, float]:
        """Quantiles of the smallest eigenvalue at :data:`EDGE_LEVEL`, and of the largest at one minus that."""
        names, levels = list(SPECTRAL_STATISTICS), list(PROBABILITIES)
        lower = self.quantile[names.index("smallest_eigenvalue"), levels.index(EDGE_LEVEL)]
        return float(lower), float(self.quantile[names.index("largest_eigenvalue"), levels.index(1.0 - EDGE_LEVEL)])

    @property
    def method(self) -> str:
        return "simulated" if self.draws else "analytic"

    @property
    def p_value_floor(self) -> float:
        """2 / (n + 1), and half of it for all statistics together; :data:`SMALLEST_P_VALUE` for both without draws."""
        return 2.0 / (self.draws + 1) if self.draws else SMALLEST_P_VALUE

    def described(self, factors: str) -> str:
        if self.entries == "orthogonal":
            rows = f"{factors} rows of Haar-distributed matrices"
            return f"orthogonal: {rows}, every null draw at its own estimate of scale"
        return f"gaussian: i.i.d. {ENTRIES_IN_WORDS[self.entries]} {factors} {AT_OWN_SCALE}"

    def score_heads(self, heads: Heads, progress: Progress) -> ScoredHeads:
        return ScoredHeads(self.score(heads.singular_values, chain_scale(heads.sigmas)), self.null_group)

    def null_group(self) -> xr.Dataset:
        lower, upper = self.edge_quantiles
        group = self.spectrum().assign(edge_quantile_lower=((), lower), edge_quantile_upper=((), upper))
        return group.assign_coords(probability=np.array(PROBABILITIES), index=np.arange(self.rank))

    def score(self, singular_values: ArrayLike, scale: ArrayLike, kurtosis: ArrayLike = 0.0) -> HeadScores:
        """Score heads by their singular values, Π σ̂² (NaN: not to be scored) and excess kurtosis beyond the null's."""
        # The eigenvalues are moved back by the kurtosis, and the null's mean and quantiles the other way. Scores are
        # NaN where trace_of_square leaves float64: an infinity or a zero from overflow is no finding.
        scale = require_real_numbers("scale", scale)
        singular_values = require_real_numbers("singular_values", singular_values)
        if singular_values.ndim == 0 or singular_values.shape[-1] != self.rank:
            raise ParameterError("singular_values", f"shape {singular_values.shape}", f"(..., {self.rank})")
        top = singular_values[..., 0]
        lost = (top > 0) & ~((top > 1.0 / _LARGEST_SINGULAR_VALUE) & (top < _LARGEST_SINGULAR_VALUE))
        scale = np.where(lost | ~((scale > 0.0) & (scale < np.inf)), np.nan, scale)
        # A head of zeros has no shape (NaN), and a statistic may be the same in every null draw (infinitely far).
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            statistics = np.where(np.isnan(scale)[..., None], np.nan, statistics_of(singular_values))
            standard = rescale_statistics(statistics, 1.0 / scale, self.rank)
            times, plus = np.ones_like(standard), np.zeros_like(standard)
            eigenvalues = singular_values**2 / scale[..., None]
            if np.any(kurtosis):
                unmoved, eigenvalues = standard, without_kurtosis(eigenvalues, kurtosis, self.dims)
                scored = ~np.isnan(eigenvalues).any(axis=-1, keepdims=True)
                standard = np.where(scored, statistics_of(np.sqrt(np.where(scored, eigenvalues, 1.0))), np.nan)
                times, plus = _displacement(standard, unmoved)
            fixed = (self.std == 0) & (np.abs(standard - self.mean) <= ROUNDING * np.abs(self.mean))
            standard = np.where(fixed, self.mean, standard)
            quantile = self.quantile.T * times[..., None, :] + plus[..., None, :]
            lower, upper = self.edge_quantiles
            p_value = self.p_value(standard)
            z_score = np.where(standard == self.mean, 0.0, (standard - self.mean) / self.std)
            above = standard > self.quantile[:, PROBABILITIES.index(0.5)]
            return HeadScores(
                observed=statistics,
                null_mean=rescale_statistics(self.mean * times + plus, scale, self.rank),
                null_std=times * rescale_statistics(self.std, scale, rank=0),
                null_quantile=np.swapaxes(rescale_statistics(quantile, scale[..., None], self.rank), -1, -2),
                z_score=np.where(np.isnan(self.std), normal_score(p_value, above), z_score),
                p_value=p_value,
                omnibus_p_value=self.omnibus_p_value(standard),
                farthest=np.argmax(np.nan_to_num(self.distance(standard), posinf=np.inf), axis=-1),
                outliers_above=(eigenvalues > upper).sum(axis=-1),
                outliers_below=(eigenvalues < lower).sum(axis=-1),
            )


def without_kurtosis(eigenvalues: ArrayLike, kurtosis: ArrayLike, dims: Sequence[int]) -> Float[np.ndarray, "... rank"]:
    """Eigenvalues at σ̂ = 1 as they would be with elements of no excess kurtosis, to first order; NaN where unknown."""
    eigenvalues, kurtosis = require_real_numbers("eigenvalues", eigenvalues), require_real_numbers("kurtosis", kurtosis)
    if np.isinf(kurtosis).any():
        raise ParameterError("kurtosis", "infinite", "finite excess kurtosis, NaN where not known")
    share = eigenvalue_displacement(eigenvalues, 1.0, dims=dims, normalization="none")
    back = -np.sort(-eigenvalues * np.exp(-kurtosis[..., None] * share), axis=-1)
    if len(dims) == 2:  # the σ̂ of a single factor fixes the sum
        back *= eigenvalues.sum(axis=-1, keepdims=True) / back.sum(axis=-1, keepdims=True)
    return back


def _displacement(values: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors (on a log scale) and summands (else) that map statistics to ``moved``; the identity unless finite."""
    on_log_scale = np.array([statistic.on_log_scale for statistic in SPECTRAL_STATISTICS.values()])
    times, plus = moved / values, moved - values
    sound = np.isfinite(times) & np.isfinite(plus) & (times > 0)
    return np.where(sound & on_log_scale, times, 1.0), np.where(sound & ~on_log_scale, plus, 0.0)


def null_spectrum(
    mean: np.ndarray, quantile: np.ndarray, edges: np.ndarray, density: np.ndarray, free: np.ndarray, error: Any = None
) -> xr.Dataset:
    return xr.Dataset(
        {
            "eigenvalue_mean": ("index", mean),
            "eigenvalue_quantile": (("index", "probability"), quantile),
            "bin_edge": ("edge", edges),
            "density": ("bin", density),
            "density_standard_error": ("bin", np.zeros_like(density) if error is None else error),
            "density_free": ("bin", free),
        }
    )


def head_shape(dims: tuple[int, ...]) -> tuple[int, int] | None:
    """(d_model, d_head) if the dims are those of W_QK, (d_model, d_head, d_model) with d_head ≤ d_model; else None."""
    return dims[:2] if len(dims) == 3 and dims[1] <= dims[0] == dims[2] else None


def rank_name(dims: tuple[int, ...]) -> str:
    return "rank" if head_shape(dims) is None else "d_head"


def chain_scale(sigmas: Sequence[Float[np.ndarray, "..."]]) -> Float[np.ndarray, "..."]:
    """Π σ̂_l², the scale of a product's eigenvalues; NaN where a σ̂_l is 0, or where it leaves float64."""
    checked = [require_real_numbers(f"sigmas[{place}]", sigma) for place, sigma in enumerate(sigmas)]
    for place, sigma in enumerate(checked):
        if (sigma < 0.0).any() or np.isinf(sigma).any():
            raise ParameterError(f"sigmas[{place}]", "negative or infinite ones", "finite σ, NaN if unknown")
    with np.errstate(over="ignore", under="ignore"):
        scale = math.prod(checked[1:], start=checked[0]) ** 2
    return np.where((scale > 0) & (scale < np.inf), scale, np.nan)


def statistics_of(singular_values: Float[np.ndarray, "... rank"]) -> Float[np.ndarray, "... statistic"]:
    """Spectral statistics; NaN for unknown spectra, and for zeros NaN where scale-free, else their limits."""
    top = singular_values[..., :1]
    shaped = np.isfinite(top) & (top > 0.0)
    if shaped.all():
        return spectral_statistics(singular_values)
    statistics = spectral_statistics(np.where(shaped, singular_values, 1.0))
    return np.where(shaped, statistics, np.where(top == 0.0, _OF_ZEROS, np.nan))


def distance_from_moments(
    on_log_scale: bool | Bool[np.ndarray, "..."], value: ArrayLike, mean: ArrayLike, std: ArrayLike
) -> Float[np.ndarray, "..."]:
    """:meth:`HeadNull.distance` by moments: ln x has mean ln(mean) - c²/2, deviation c = std/mean, to second order."""
    arguments = {"value": value, "mean": mean, "std": std}
    value, mean, std = (require_real_numbers(name, part) for name, part in arguments.items())
    if (std < 0.0).any() or (on_log_scale & (value < 0.0)).any():
        raise ParameterError("value, std", "negative ones", "spreads that are not negative, and such values")
    # A zero eigenvalue is infinitely far from the null, and reported so; at the mean of a null without spread: NaN.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = std / mean
        of_log = np.abs(np.log(value / mean) / relative + 0.5 * relative)
        return np.where(on_log_scale, of_log, np.abs(value - mean) / std)
