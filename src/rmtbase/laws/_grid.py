"""Grid of a table: the probabilities of its quantiles and the bins of its histograms."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._gaussian_chain import GaussianChain
from rmtbase.parameters import require_real_numbers

PROBABILITIES = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.16, 0.25, 0.5, 0.75, 0.84, 0.95, 0.975, 0.99, 0.995, 0.999,
)  # fmt: skip
"""Probabilities of the quantiles that a table holds."""

BINS = 120
_MARGIN = 8.0  # Tracy–Widom scales beyond the edges that the histogram still covers


def histogram_edges(
    d_model: int | None = None, d_head: int | None = None, *, dims: Sequence[int] | None = None
) -> Float[np.ndarray, " edge"]:
    """Return the edges of equal bins over the support of the raw W_QK, or of the raw chain ``dims``, at σ = 1.

    The range extends beyond each soft edge by eight Tracy–Widom scales, but not below 0.
    """
    law = GaussianChain(d_model=d_model, d_head=d_head, dims=dims, normalization="none")
    (lower, upper), (below, above) = law.support, law.edge_scale
    return np.linspace(max(0.0, lower - _MARGIN * (below or 0.0)), upper + _MARGIN * above, BINS + 1)


def logarithmic_edges(eigenvalues: Float[np.ndarray, "..."]) -> Float[np.ndarray, " edge"]:
    """Return the edges of bins that are equal in ln λ and cover all positive eigenvalues.

    A tenth of the range of ln λ, at least 0.1, is added at either end. The bins suit spectra that span many powers of
    ten, such as those of deep residual paths. Zero eigenvalues and NaN (unknown ones) are in no bin.
    """
    values = require_real_numbers("eigenvalues", eigenvalues)
    if (values < 0.0).any() or np.isinf(values).any():
        raise ParameterError("eigenvalues", "negative or infinite values", "finite values that are not negative")
    positive = np.log(values[values > 0.0])
    low, high = (positive.min(), positive.max()) if positive.size else (0.0, 0.0)
    margin = max(0.1 * (high - low), 0.1)
    return np.exp(np.linspace(low - margin, high + margin, BINS + 1))
