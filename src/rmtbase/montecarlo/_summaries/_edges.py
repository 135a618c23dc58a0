"""The bins in which a table counts eigenvalues."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmtbase import laws

BINS = 120
_MARGIN = 8.0  # Tracy–Widom scales beyond the edges that the histogram still covers

Array = NDArray[np.float64]


def histogram_edges(d_model: int, d_head: int) -> Array:
    """Equal bins over W_QK's support, widened at each soft edge by eight Tracy–Widom scales, 0 at least."""
    law = laws.low_rank_product(d_model, d_head, normalization="none")
    (lower, upper), (below, above) = law.support, law.edge_scale
    return np.linspace(max(0.0, lower - _MARGIN * (below or 0.0)), upper + _MARGIN * above, BINS + 1)


def logarithmic_edges(eigenvalues: Array) -> Array:
    """Equal bins in ln λ from the smallest eigenvalue at hand to the largest, widened by a tenth of that on each side.

    For spectra that reach over many powers of ten, as those of deep residual paths do. A zero eigenvalue is in no bin.
    """
    positive = np.log(eigenvalues[eigenvalues > 0.0])
    low, high = (positive.min(), positive.max()) if positive.size else (0.0, 0.0)
    margin = max(0.1 * (high - low), 0.1)
    return np.exp(np.linspace(low - margin, high + margin, BINS + 1))
