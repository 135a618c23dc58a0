"""A null that is known from draws which are all at hand."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from jaxtyping import Float

from rmtbase.nulls._head_null import HeadNull
from rmtbase.statistics import p_value_among_sorted, upper_p_value_among_sorted


class SampleNull(HeadNull):
    """The null of a head's statistics from draws: p-values are ranks among them.

    Attributes:
        sample: the statistics of each draw, as the head's are standardised.
    """

    sample: Float[np.ndarray, "draw statistic"]

    @property
    def draws(self) -> int:
        """Number of null draws."""
        return self.sample.shape[0]

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        """Two-sided Monte Carlo p-values of each statistic by itself."""
        columns = [p_value_among_sorted(standard[..., k], draws) for k, draws in enumerate(self._sorted)]
        return np.stack(columns, axis=-1)

    def omnibus_p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]:
        """That of the largest distance, against the draws' own largest.

        The joint draws carry the correlations between statistics, so that the test has its level exactly,
        p = (b + 1) / (n + 1), however redundant the statistics are.

        Source: P. H. Westfall and S. S. Young, Resampling-Based Multiple Testing (1993), the single-step max-T.
        """
        return upper_p_value_among_sorted(self.distance(standard).max(axis=-1), self._largest_distances)

    @cached_property
    def _sorted(self) -> Float[np.ndarray, "statistic draw"]:
        return np.sort(self.sample.T, axis=1)

    @cached_property
    def _largest_distances(self) -> Float[np.ndarray, " draw"]:
        return np.sort(self.distance(self.sample).max(axis=-1))
