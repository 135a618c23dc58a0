"""Samples kept as some of their order statistics, and the counts that these still bound.

The r-th smallest of n draws, x_(r), is kept for the ranks r of :func:`kept_ranks`. If the observed x is below x_(r), at
most r - 1 draws are as small or smaller. The smallest such r - 1 over the kept ranks is never below the true count
b, so that a Monte Carlo p-value from it is valid; and (r - 1) + 1 ≤ 1.03 (b + 1), so that it is hardly larger.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers

RATIO = 1.03
"""Largest ratio of a p-value from the kept ranks to the p-value of the full sample, except for rounding."""

STEP = 2.0**-16
"""Kept values are multiples of this, in standard deviations, rounded away from the observed values."""


def kept_ranks(draws: int) -> Int[np.ndarray, " rank"]:
    """Ranks that are kept of a sample: 1, 2, …, 33, then each as far from the last as :data:`RATIO` allows."""
    ranks = [1]
    while ranks[-1] < draws:
        ranks.append(max(ranks[-1] + 1, int(RATIO * (ranks[-1] + 1))))
    return np.array([rank for rank in ranks if rank <= draws], dtype=np.int64)


def count_bound(
    observed: ArrayLike, kept: ArrayLike, ranks: Int[np.ndarray, " rank"], draws: int
) -> Int[np.ndarray, "..."]:
    """Upper bound of the number of draws at or below each observed value; ``draws`` if no kept value is above it.

    Args:
        observed: observed values, of any shape.
        kept: order statistics, ascending, one-dimensional.
        ranks: ranks of the order statistics.
        draws: number of draws.

    Raises:
        ParameterError: NaN, or order statistics that do not ascend.
    """
    values, sample = require_real_numbers("observed", observed), require_real_numbers("kept", kept)
    if np.isnan(values).any() or sample.ndim != 1 or not (sample[1:] >= sample[:-1]).all() or np.isnan(sample).any():
        raise ParameterError("observed, kept", "NaN, or values out of order", "numbers, and ascending order statistics")
    place = np.searchsorted(sample, values, side="right")
    return np.append(ranks - 1, draws)[place]
