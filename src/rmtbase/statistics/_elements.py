"""Element-wise statistics of a weight matrix, in float64 whatever the matrix's own precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ELEMENT_STATISTICS = ("mean", "skewness", "excess_kurtosis", "largest_magnitude")
"""The element-wise statistics that have a null: the standard deviation sets the scale and is tested by none."""

_BLOCK = 1 << 20  # elements widened to float64 at a time


@dataclass(frozen=True)
class ElementMoments:
    """Moments of the n elements w of a matrix.

    Attributes:
        count: number n of elements.
        mean: w̄.
        std: s = √(Σ(w - w̄)² / (n - 1)).
        skewness: m₃ / m₂^{3/2} with central moments m_k = Σ(w - w̄)^k / n. NaN for a constant matrix.
        excess_kurtosis: m₄ / m₂² - 3. NaN for a constant matrix.
        largest_magnitude: max |w - w̄| / s. NaN for a constant matrix.
    """

    count: int
    mean: float
    std: float
    skewness: float
    excess_kurtosis: float
    largest_magnitude: float


def element_moments(matrix: NDArray[np.floating]) -> ElementMoments:
    """Two-pass moments of a matrix of any floating dtype, widened block by block: no float64 copy of it is made."""
    flat = matrix.reshape(-1)
    n = flat.size
    blocks = [slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)]
    mean = sum(float(np.sum(flat[block], dtype=np.float64)) for block in blocks) / n
    powers = np.zeros(3)
    largest = 0.0
    for block in blocks:
        deviation = flat[block].astype(np.float64) - mean
        square = deviation * deviation
        powers += (square.sum(), square @ deviation, square @ square)
        largest = max(largest, float(np.abs(deviation).max()))
    m2, m3, m4 = powers / n
    std = float(np.sqrt(powers[0] / max(n - 1, 1)))
    if m2 == 0.0:
        return ElementMoments(n, mean, 0.0, np.nan, np.nan, np.nan)
    return ElementMoments(n, mean, std, float(m3 / m2**1.5), float(m4 / m2**2 - 3.0), largest / std)
