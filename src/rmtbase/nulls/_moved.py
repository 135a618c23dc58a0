"""Effect of the elements' excess kurtosis on a head's spectrum and statistics, and its removal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws import eigenvalue_displacement
from rmtbase.parameters import require_real_numbers
from rmtbase.statistics import SPECTRAL_STATISTICS


def without_kurtosis(
    eigenvalues: Float[np.ndarray, "... rank"], kurtosis: ArrayLike, dims: Sequence[int]
) -> Float[np.ndarray, "... rank"]:
    """Eigenvalues at σ̂ = 1 as they would be with elements of no excess kurtosis, to first order in the kurtosis.

    NaN, for an unknown kurtosis, gives NaN.
    """
    eigenvalues, kurtosis = require_real_numbers("eigenvalues", eigenvalues), require_real_numbers("kurtosis", kurtosis)
    if np.isinf(kurtosis).any():
        raise ParameterError("kurtosis", "infinite", "finite excess kurtosis, NaN where not known")
    share = eigenvalue_displacement(eigenvalues, 1.0, dims=dims, normalization="none")
    back = -np.sort(-eigenvalues * np.exp(-kurtosis[..., None] * share), axis=-1)
    if len(dims) == 2:  # the σ̂ of a single factor fixes the sum
        back *= eigenvalues.sum(axis=-1, keepdims=True) / back.sum(axis=-1, keepdims=True)
    return back


class Moved(NamedTuple):
    """Map of statistics from the null of the draws to the null of elements with another kurtosis.

    Positive statistics without an upper bound are multiplied by ``times``; ``plus`` is added to the others. z-scores
    and p-values stay the same if the observed value and the null are mapped together.
    """

    times: Float[np.ndarray, "... statistic"]
    plus: Float[np.ndarray, "... statistic"]

    @classmethod
    def nowhere(cls, values: Float[np.ndarray, "... statistic"]) -> Moved:
        return cls(np.ones_like(values), np.zeros_like(values))

    @classmethod
    def between(cls, values: Float[np.ndarray, "... statistic"], moved: Float[np.ndarray, "... statistic"]) -> Moved:
        """Make the map from values to moved values; the identity unless both are finite, and their ratio positive."""
        on_log_scale = np.array([statistic.on_log_scale for statistic in SPECTRAL_STATISTICS.values()])
        times, plus = moved / values, moved - values
        sound = np.isfinite(times) & np.isfinite(plus) & (times > 0)
        return cls(np.where(sound & on_log_scale, times, 1.0), np.where(sound & ~on_log_scale, plus, 0.0))

    def apply(self, values: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        return values * self.times + self.plus
