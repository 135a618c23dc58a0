"""Mean, spread, standard errors and quantiles of a sample in memory, or of one that is read repeatedly in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_probabilities, require_real_numbers
from rmtbase.shown import in_one_line

Values = Float[np.ndarray, "..."]
Blocks = Callable[[], Iterable[Float[np.ndarray, "row draw"]]]

_HELD = 1 << 24  # numbers of a stream held at a time for quantiles (more if one row is longer)
_FEWEST = 10  # draws that are expected beyond a quantile on either side, if it is to have an error
_NORMAL_95 = 1.959963984540054  # a normal law has 95 % of its mass within as many standard deviations


@in_one_line
class SampleSummary(NamedTuple):
    mean: Float[np.ndarray, "..."]  # the sample mean
    std: Float[np.ndarray, "..."]  # the sample standard deviation, with n - 1
    standard_error: Float[np.ndarray, "..."]  # standard error of the mean, std / √n
    # standard error of the standard deviation, from the sample's fourth moment without assuming normality: √((μ₄/s⁴ -
    # (n-3)/(n-1)) / n) · s / 2
    std_standard_error: Float[np.ndarray, "..."]
    quantile: Float[np.ndarray, "... probability"]  # quantiles of shape ``(..., probability)``
    # standard error of each quantile, (b - a) / (2 · 1.96), with a and b the sample's quantiles at p ± 1.96 √(p (1 - p)
    # n) / (n - 1): the true quantile lies between them in 95 % of samples of any continuous law, by binomial counts.
    # NaN where n p or n (1 - p) is below 10, because so few draws do not tell how a tail goes on; near that limit it
    # errs towards too large. It is 0 where a = b: of a constant, and at a value that has a probability of its own.
    quantile_standard_error: Float[np.ndarray, "... probability"]

    def of_finite_moments(self, order: ArrayLike) -> SampleSummary:
        needed = {"mean": 1, "std": 2, "standard_error": 2, "std_standard_error": 4}
        return self._replace(
            **{name: np.where(np.greater(order, power), getattr(self, name), np.nan) for name, power in needed.items()}
        )


def summarize(sample: ArrayLike, probabilities: ArrayLike) -> SampleSummary:
    """Summarise a sample ``(draw, ...)`` of at least two draws; NaN and infinities propagate."""
    x = require_real_numbers("sample", sample)
    levels = _require_levels(probabilities)
    n = x.shape[0] if x.ndim else 1
    _require_spread(n)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = x.mean(axis=0)
        deviation = x - mean
        # Scaled by a power of two, which changes no bit, so that squares stay in range.
        exponent = np.frexp(np.abs(deviation).max(axis=0))[1]
        variance = (np.ldexp(deviation, -exponent) ** 2).sum(axis=0) / (n - 1)
        std = np.ldexp(np.sqrt(variance), exponent)
    with np.errstate(invalid="ignore", divide="ignore"):
        kurtosis = ((deviation / std) ** 4).mean(axis=0)  # standardised first, because fourth powers overflow early
    quantiles = (np.moveaxis(values, 0, -1) for values in _quantiles_with_errors(x.copy(), levels, axis=0))
    return SampleSummary(mean, std, std / np.sqrt(n), _std_standard_error(std, kurtosis, n), *quantiles)


def summarize_stream(blocks: Blocks, probabilities: ArrayLike) -> SampleSummary:
    """Summarise a sample of blocks (row, draw) as :func:`summarize`, never all in memory, quantiles to the bit."""
    n, sums = 0, np.zeros((4, 0))
    origin = unit = np.zeros(0)
    for part in blocks():
        block = require_real_numbers("blocks", part)
        if block.ndim != 2 or not block.size:
            raise ParameterError("blocks", f"shape {block.shape}", "blocks (row, draw) of at least one of each")
        with np.errstate(invalid="ignore", over="ignore"):
            if not sums.size:
                exponent = np.frexp(np.abs(block).max(axis=1))[1]  # keeps squares in range; changes no bit
                origin = block.mean(axis=1)
                unit = np.ldexp(np.ldexp(block, -exponent[:, None]).std(axis=1), exponent)
                origin = np.where(np.isfinite(origin), origin, 0.0)
                unit = np.where(np.isfinite(unit) & (unit > 0), unit, 1.0)
                sums = np.zeros((4, len(block)))
            x = (block - origin[:, None]) / unit[:, None]
            square = x * x
            sums = sums + np.stack([power.sum(axis=1) for power in (x, square, square * x, square * square)])
        n += block.shape[1]
    _require_spread(n)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        m1, m2, m3, m4 = sums / n
        variance = np.maximum(m2 - m1**2, 0.0)
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        unbiased = variance * n / (n - 1)
        std = unit * np.sqrt(unbiased)
        std_error = _std_standard_error(std, fourth / unbiased**2, n)
        mean = origin + unit * m1
    levels, rows, together = _require_levels(probabilities), origin.size, max(_HELD // n, 1)
    quantile, error = np.empty((2, rows, levels.size))
    for first in range(0, rows if levels.size else 0, together):
        part = slice(first, min(first + together, rows))
        sample = np.empty((part.stop - first, n))
        filled = 0
        for block in blocks():
            sample[:, filled : filled + block.shape[1]] = block[part]
            filled += block.shape[1]
        quantile[part], error[part] = (values.T for values in _quantiles_with_errors(sample, levels, axis=1))
    return SampleSummary(mean, std, std / np.sqrt(n), std_error, quantile, error)


def _quantiles_with_errors(sample: Values, levels: Values, axis: int) -> tuple[Values, Values]:
    n = sample.shape[axis]
    reach = _NORMAL_95 * np.sqrt(levels * (1.0 - levels) * n) / (n - 1)
    few = n * np.minimum(levels, 1.0 - levels) < _FEWEST * (1.0 - 1e-9)  # else both ends lie within the sample
    every = np.concatenate([levels, *np.clip([levels - reach, levels + reach], 0.0, 1.0)])
    with np.errstate(invalid="ignore"):  # infinities, of which the difference is NaN
        quantile, low, high = np.split(np.quantile(sample, every, axis=axis, overwrite_input=True), 3)
        error = (high - low) / (2.0 * _NORMAL_95)
    error[few] = np.nan
    return quantile, error


def _require_levels(probabilities: ArrayLike) -> Float[np.ndarray, " probability"]:
    levels = require_probabilities("probabilities", probabilities)
    if levels.ndim != 1:
        raise ParameterError("probabilities", f"shape {levels.shape}", "a one-dimensional array")
    return levels


def _require_spread(draws: int) -> None:
    if draws < 2:
        raise ParameterError("draws", draws, "at least 2 (a standard error needs a spread)")


def _std_standard_error(std: Values, kurtosis: Values, n: int) -> Values:
    relative = np.where(std > 0, kurtosis - (n - 3) / (n - 1), 0.0)
    return 0.5 * std * np.sqrt(np.maximum(relative, 0.0) / n)
