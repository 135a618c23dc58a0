"""Nulls known from draws: moments and quantiles of draws, and ranks among draws that are kept."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np
from jaxtyping import Float

from rmtbase.laws import PROBABILITIES
from rmtbase.nulls._head_null import EDGE_LEVEL, HeadNull, SharedNull
from rmtbase.statistics import (
    SPECTRAL_STATISTICS,
    ExtremeMoments,
    drawn_moments,
    inverse_moment_order,
    moment_orders,
    on_distance_scale,
    p_value_among_sorted,
    upper_p_value_among_sorted,
)


class DrawnNull(SharedNull):
    """Shared null whose moments and quantiles are estimated from draws."""

    @cached_property
    @abstractmethod
    def _estimates(self) -> tuple[np.ndarray, np.ndarray]: ...

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the draws; NaN where the chain has no such moment for them to estimate."""
        extremes = ExtremeMoments(smallest=inverse_moment_order(self.dims))
        return drawn_moments(*self._estimates, moment_orders(extremes, self.rank))

    @cached_property
    def mean(self) -> Float[np.ndarray, " statistic"]:
        return self._moments[0]

    @cached_property
    def std(self) -> Float[np.ndarray, " statistic"]:
        return self._moments[1]

    @cached_property
    def edge_quantiles(self) -> tuple[float, float]:
        """The level and one-minus-level quantiles of the smallest and the largest eigenvalue."""
        names, levels = list(SPECTRAL_STATISTICS), list(PROBABILITIES)
        lower = self.quantile[names.index("smallest_eigenvalue"), levels.index(EDGE_LEVEL)]
        return float(lower), float(self.quantile[names.index("largest_eigenvalue"), levels.index(1.0 - EDGE_LEVEL)])


class SampleNull(HeadNull):
    """Null of a head's statistics from draws: p-values are ranks among them."""

    sample: Float[np.ndarray, "draw statistic"]  # statistics of each draw, standardized as the head's are

    @property
    def draws(self) -> int:
        return self.sample.shape[0]

    @cached_property
    def _estimates(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the draws; where all draws are equal, their value and 0."""
        return moments_of(self.sample)

    @cached_property
    @abstractmethod
    def _distance_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Centre and spread of each statistic on the scale of distances."""

    def distance(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        center, spread = self._distance_scale
        on_scale = on_distance_scale(standard)
        with np.errstate(invalid="ignore", divide="ignore"):  # a statistic that the null holds fixed has no spread
            return np.where(on_scale == center, 0.0, np.abs(on_scale - center) / spread)

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        columns = [p_value_among_sorted(standard[..., k], draws) for k, draws in enumerate(self._sorted)]
        return np.stack(columns, axis=-1)

    def omnibus_p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]:
        """p-value of the largest distance, compared with the draws' own largest distances.

        The joint draws carry the correlations between statistics. So the test, p = (b + 1) / (n + 1), has its level
        exactly, however redundant the statistics are.

        Source: P. H. Westfall and S. S. Young, Resampling-Based Multiple Testing (1993), the single-step max-T.
        """
        return upper_p_value_among_sorted(self.distance(standard).max(axis=-1), self._largest_distances)

    @cached_property
    def _sorted(self) -> Float[np.ndarray, "statistic draw"]:
        return np.sort(self.sample.T, axis=1)

    @cached_property
    def _largest_distances(self) -> Float[np.ndarray, " draw"]:
        return np.sort(self.distance(self.sample).max(axis=-1))


def moments_of(sample: Float[np.ndarray, "draw statistic"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation; where all draws are equal, their value and 0. Infinite draws have no deviation."""
    fixed = (sample == sample[0]).all(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(fixed, sample[0], sample.mean(axis=0)), np.where(fixed, 0.0, sample.std(axis=0, ddof=1))
