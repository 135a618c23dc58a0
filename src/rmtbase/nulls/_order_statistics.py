"""A sample kept as some of its order statistics, and the counts that they still bound.

Of n draws the r-th smallest, x_(r), is kept for the ranks r of :func:`kept_ranks`. An observed x below x_(r) has at
most r - 1 draws that are as small or smaller. The smallest such r - 1 over the kept ranks is never below the true count
b, so that a Monte Carlo p-value made of it is valid; and (r - 1) + 1 ≤ 1.03 (b + 1), so that it is hardly larger.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers

RATIO = 1.03
"""A p-value from the kept ranks is at most this many times that of the full sample, but for rounding."""

STEP = 2.0**-16
"""Kept values are multiples of this, in standard deviations, rounded away from the observed."""


def kept_ranks(draws: int) -> Int[np.ndarray, " rank"]:
    """The ranks kept of a sample: 1, 2, …, 33, then each as far from the last as :data:`RATIO` allows."""
    ranks = [1]
    while ranks[-1] < draws:
        ranks.append(max(ranks[-1] + 1, int(RATIO * (ranks[-1] + 1))))
    return np.array([rank for rank in ranks if rank <= draws], dtype=np.int64)


def count_bound(
    observed: ArrayLike, kept: ArrayLike, ranks: Int[np.ndarray, " rank"], draws: int
) -> Int[np.ndarray, "..."]:
    """The most draws that can be as small as the observed values or smaller; ``draws`` where no kept value is above.

    Args:
        observed: any shape.
        kept: order statistics of the ranks, from the smallest, one-dimensional.
        ranks: their ranks.
        draws: number of draws.

    Raises:
        ParameterError: NaN, or order statistics that do not ascend.
    """
    values, sample = require_real_numbers("observed", observed), require_real_numbers("kept", kept)
    if np.isnan(values).any() or sample.ndim != 1 or not (sample[1:] >= sample[:-1]).all() or np.isnan(sample).any():
        raise ParameterError("observed, kept", "NaN, or values out of order", "numbers, and ascending order statistics")
    place = np.searchsorted(sample, values, side="right")
    return np.append(ranks - 1, draws)[place]
