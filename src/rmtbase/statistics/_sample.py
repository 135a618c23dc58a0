"""A sample → its mean, spread, standard errors and quantiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers


class SampleSummary(NamedTuple):
    """Moments and quantiles of a sample of n draws along the first axis.

    Attributes:
        mean: the sample mean.
        std: the sample standard deviation, with n - 1.
        standard_error: of the mean, std / √n.
        std_standard_error: of the standard deviation, from the sample's own fourth moment,
            √((μ₄/s⁴ - (n-3)/(n-1)) / n) · s / 2: no normality is assumed.
        quantile: shape ``(..., probability)``.
    """

    mean: Float[np.ndarray, "..."]
    std: Float[np.ndarray, "..."]
    standard_error: Float[np.ndarray, "..."]
    std_standard_error: Float[np.ndarray, "..."]
    quantile: Float[np.ndarray, "... probability"]


def summarize(sample: ArrayLike, probabilities: ArrayLike) -> SampleSummary:
    """Summarise a sample of shape ``(draw, ...)``; at least two draws.

    Raises:
        ParameterError: fewer than two draws; a sample or probabilities that are masked or no real numbers.
    """
    x = require_real_numbers("sample", sample)
    levels = require_real_numbers("probabilities", probabilities)
    n = x.shape[0] if x.ndim else 1
    if n < 2:
        raise ParameterError("draws", n, "at least 2 (a standard error needs a spread)")
    mean = x.mean(axis=0)
    deviation = x - mean
    variance = (deviation**2).sum(axis=0) / (n - 1)
    std = np.sqrt(variance)
    with np.errstate(invalid="ignore", divide="ignore"):
        kurtosis = ((deviation / std) ** 4).mean(axis=0)  # of the standardised sample: fourth powers overflow early
    quantile = np.moveaxis(np.quantile(x, levels, axis=0), 0, -1)
    return SampleSummary(mean, std, std / np.sqrt(n), std_standard_error(std, kurtosis, n), quantile)


def std_standard_error(
    std: Float[np.ndarray, "..."], kurtosis: Float[np.ndarray, "..."], n: int
) -> Float[np.ndarray, "..."]:
    """Standard error of the standard deviation of n draws, whose fourth moment over std⁴ is ``kurtosis``; 0 at 0."""
    relative = np.where(std > 0, kurtosis - (n - 3) / (n - 1), 0.0)
    return 0.5 * std * np.sqrt(np.maximum(relative, 0.0) / n)
