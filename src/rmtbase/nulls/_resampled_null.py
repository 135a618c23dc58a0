"""Null of one head from draws that resample its own matrices.

The draws keep ‖W_Q‖_F and ‖W_K‖_F, so that the head and all its draws have the same estimate of σ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.laws import PROBABILITIES
from rmtbase.linalg import without_noise
from rmtbase.nulls._head_null import EDGE_LEVEL, ROUNDING, HeadScores, statistics_of
from rmtbase.nulls._random_heads import UpperPoint, upper_point
from rmtbase.nulls._sample_null import SampleNull
from rmtbase.shown import in_one_line
from rmtbase.statistics import SPECTRAL_STATISTICS, on_distance_scale, rescale_statistics


@in_one_line
@dataclass(frozen=True)
class ResampledNull(SampleNull):
    """Null of one head, from draws that resample its own matrices.

    Draws within rounding of the observed value count as equal to it: where the null holds a statistic fixed, z is 0 and
    p is 1, not a rank among rounding errors. Signed permutations of the head axes fix the log-determinant,
    ln det W_Q W_Qᵀ + ln det W_K W_Kᵀ, and fix all statistics if a factor has orthogonal rows of equal length.
    """

    dims: tuple[int, ...]  # the shape, (d_model, d_head, d_model) for W_QK
    observed: Float[np.ndarray, " statistic"]  # the head's own statistics at σ̂ = 1, in the registry's order
    sample: Float[np.ndarray, "draw statistic"] = field(repr=False)  # statistics of the draws
    eigenvalues: Float[np.ndarray, "draw rank"] = field(repr=False)  # eigenvalues of the draws at σ̂ = 1, descending

    @classmethod
    def from_spectra(
        cls,
        dims: tuple[int, ...],
        observed: Float[np.ndarray, " rank"],
        drawn: Float[np.ndarray, "draw rank"],
        scale: float,
    ) -> ResampledNull:
        """Make the null from singular values of raw products."""
        drawn = without_noise(drawn)
        with np.errstate(invalid="ignore", divide="ignore"):  # a draw of zeros has no shape
            both = (statistics_of(values) for values in (observed, drawn))
            own, sample = (rescale_statistics(values, 1.0 / scale, observed.size) for values in both)
            near = np.isfinite(own) & (np.abs(sample - own) <= ROUNDING * np.abs(own))
        return cls(
            dims=dims, observed=own, sample=np.where(near | np.isnan(sample), own, sample), eigenvalues=drawn**2 / scale
        )

    @cached_property
    def edge_quantiles(self) -> tuple[float, float]:
        """The k-th smallest of the smallest eigenvalues and the k-th largest of the largest, see :func:`edge_rank`."""
        rank = edge_rank(self.draws)
        ends = np.sort(self.eigenvalues[:, [-1, 0]], axis=0)
        lower, upper = ends[rank - 1, 0], ends[-rank, 1]
        return float(lower * (1.0 - ROUNDING)), float(upper * (1.0 + ROUNDING))

    @cached_property
    def mean(self) -> Float[np.ndarray, " statistic"]:
        return self._estimates[0]

    @cached_property
    def std(self) -> Float[np.ndarray, " statistic"]:
        return self._estimates[1]

    @cached_property
    def quantile(self) -> Float[np.ndarray, "statistic probability"]:
        """Quantiles, each of which is a draw and may be infinite."""
        return np.quantile(self.sample, PROBABILITIES, axis=0, method="inverted_cdf").T

    def spectrum(self) -> xr.Dataset:
        return _spectrum(
            self.eigenvalues.mean(axis=0),
            np.quantile(self.eigenvalues, PROBABILITIES, axis=0).T,
            self.edge_quantiles,
            upper_point(self.eigenvalues),
        )

    @cached_property
    def _distance_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the finite values; where all values are equal, the mean is their value.

        They are those of the head and its draws together, so that the test of the largest distance is exact.
        """
        pooled = on_distance_scale(np.vstack([self.observed, self.sample]))
        finite = np.isfinite(pooled)
        count = np.maximum(finite.sum(axis=0), 1)
        mean = np.where(finite, pooled, 0.0).sum(axis=0) / count
        center = np.where((pooled == pooled[0]).all(axis=0), pooled[0], mean)
        with np.errstate(invalid="ignore"):
            square = np.where(finite, (pooled - center) ** 2, 0.0).sum(axis=0)
        return center, np.sqrt(square / np.maximum(count - 1, 1))


def edge_rank(draws: int) -> int:
    """Rank k for which a further draw lies beyond the k-th of n draws with probability k/(n + 1) = :data:`EDGE_LEVEL`.

    Rounded down, and at least 1: the edges of few draws are their extreme values.
    """
    return max(1, int(EDGE_LEVEL * (draws + 1)))


def unscored_head(rank: int) -> tuple[HeadScores, xr.Dataset]:
    """Scores of a head whose product is zero and so has no shape, and its part of the ``/null`` group: NaN."""
    n, m = len(SPECTRAL_STATISTICS), len(PROBABILITIES)
    nothing, none = np.full(n, np.nan), np.zeros((), dtype=np.int64)
    quantile = np.full((n, m), np.nan)
    scores = HeadScores(nothing, nothing, nothing, quantile, nothing, nothing, np.array(np.nan), none, none, none)
    unknown = UpperPoint(np.nan, np.nan)
    return scores, _spectrum(np.full(rank, np.nan), np.full((rank, m), np.nan), (np.nan, np.nan), unknown)


def _spectrum(mean: np.ndarray, quantile: np.ndarray, edges: tuple[float, float], moved: UpperPoint) -> xr.Dataset:
    return xr.Dataset(
        {
            "eigenvalue_mean": ("index", mean),
            "eigenvalue_quantile": (("index", "probability"), quantile),
            "edge_quantile_lower": ((), edges[0]),
            "edge_quantile_upper": ((), edges[1]),
            "moved_share_upper": ((), moved.value),
            "moved_share_upper_standard_error": ((), moved.standard_error),
        }
    )
