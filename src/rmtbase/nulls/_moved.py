"""What the excess kurtosis of its elements does to a head, and taking it back."""

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
    """The eigenvalues at σ̂ = 1 as they would be with elements of no excess kurtosis, to first order in it.

    Args:
        eigenvalues: of the raw product, descending.
        kurtosis: of the elements, (...): see :func:`mean_kurtosis` where those of the factors differ.
        dims: of the chain.

    Raises:
        ParameterError: what is no real numbers, or an infinite excess kurtosis; NaN, of what is not known, gives NaN.
    """
    eigenvalues, kurtosis = require_real_numbers("eigenvalues", eigenvalues), require_real_numbers("kurtosis", kurtosis)
    if np.isinf(kurtosis).any():
        raise ParameterError("kurtosis", "infinite", "finite excess kurtosis, NaN where not known")
    share = eigenvalue_displacement(eigenvalues, 1.0, dims=dims, normalization="none")
    back = -np.sort(-eigenvalues * np.exp(-kurtosis[..., None] * share), axis=-1)
    if len(dims) == 2:  # whose own σ̂ fixes the sum
        back *= eigenvalues.sum(axis=-1, keepdims=True) / back.sum(axis=-1, keepdims=True)
    return back


class Moved(NamedTuple):
    """Where values of the null of other elements lie: those of positive, unbounded statistics that many times as far.

    So a z-score and a p-value are the same of the one value among the others, and of the moved value among the moved.
    """

    times: Float[np.ndarray, "... statistic"]
    plus: Float[np.ndarray, "... statistic"]

    @classmethod
    def nowhere(cls, values: Float[np.ndarray, "... statistic"]) -> Moved:
        return cls(np.ones_like(values), np.zeros_like(values))

    @classmethod
    def between(cls, values: Float[np.ndarray, "... statistic"], moved: Float[np.ndarray, "... statistic"]) -> Moved:
        """What takes the values to the moved ones, both finite and not zero; nothing of the others."""
        on_log_scale = np.array([one.on_log_scale for one in SPECTRAL_STATISTICS.values()])
        times, plus = moved / values, moved - values
        sound = np.isfinite(times) & np.isfinite(plus) & (times > 0)
        return cls(np.where(sound & on_log_scale, times, 1.0), np.where(sound & ~on_log_scale, plus, 0.0))

    def of(self, values: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        return values * self.times + self.plus
