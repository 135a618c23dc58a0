"""p-values from the draws of a null."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from rmtbase.statistics import monte_carlo_p_value


def sample_p_value(
    standard: Float[np.ndarray, "... statistic"], sample: Float[np.ndarray, "draw statistic"]
) -> Float[np.ndarray, "... statistic"]:
    """Two-sided Monte Carlo p-values of each statistic by itself."""
    return np.stack([monte_carlo_p_value(standard[..., k], sample[:, k]) for k in range(sample.shape[1])], axis=-1)


def largest_distance_p_value(
    observed: Float[np.ndarray, "..."], null: Float[np.ndarray, " draw"]
) -> Float[np.ndarray, "..."]:
    """One p-value for all statistics together: that of the largest distance, against the null draws' own largest.

    The joint null draws carry the correlations between statistics, so that the test has its level exactly,
    p = (b + 1) / (n + 1), however redundant the statistics are.

    Args:
        observed: the largest distance of each head.
        null: that of each draw, in rising order.

    Source: P. H. Westfall and S. S. Young, Resampling-Based Multiple Testing (1993), the single-step max-T.
    """
    at_least = null.size - np.searchsorted(null, observed, side="left")
    return np.where(np.isnan(observed), np.nan, (at_least + 1) / (null.size + 1))
