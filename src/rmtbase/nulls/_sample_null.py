"""Null that keeps all its draws."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from jaxtyping import Float

from rmtbase.nulls._head_null import HeadNull
from rmtbase.statistics import p_value_among_sorted, upper_p_value_among_sorted


class SampleNull(HeadNull):
    """Null of a head's statistics from draws: p-values are ranks among them.

    Attributes:
        sample: statistics of each draw, standardized as the head's are.
    """

    sample: Float[np.ndarray, "draw statistic"]

    @property
    def draws(self) -> int:
        """Number of null draws."""
        return self.sample.shape[0]

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        """Two-sided Monte Carlo p-value of each statistic."""
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
