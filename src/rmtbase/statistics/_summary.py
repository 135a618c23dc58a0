"""A sample → its mean, spread, standard errors and quantiles: held, or read again and again in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_probabilities, require_real_numbers
from rmtbase.shown import in_one_line

Blocks = Callable[[], Iterable[Float[np.ndarray, "row draw"]]]

_HELD = 1 << 24  # numbers of a stream that are held for quantiles at a time, or one row of more


@in_one_line
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

    def of_finite_moments(self, order: ArrayLike) -> SampleSummary:
        """The summary less what estimates no number: NaN where a moment E|x|^p that it needs is infinite.

        Args:
            order: that from which on the moments are infinite. The mean needs the first, the standard deviation and the
                standard error of the mean the second, that of the standard deviation the fourth.
        """
        needed = {"mean": 1, "std": 2, "standard_error": 2, "std_standard_error": 4}
        return self._replace(
            **{name: np.where(np.greater(order, power), getattr(self, name), np.nan) for name, power in needed.items()}
        )


def summarize(sample: ArrayLike, probabilities: ArrayLike) -> SampleSummary:
    """Summarise a sample of shape ``(draw, ...)``; at least two draws.

    NaN and infinities among the draws are in what is made of them, as in NumPy's own mean and quantiles.

    Raises:
        ParameterError: fewer than two draws; a sample or probabilities that are masked or no real numbers;
            probabilities outside [0, 1].
    """
    x = require_real_numbers("sample", sample)
    levels = _require_levels(probabilities)
    n = x.shape[0] if x.ndim else 1
    _require_spread(n)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = x.mean(axis=0)
        deviation = x - mean
        # Lest squares leave the doubles, by a power of two, which changes no bit.
        exponent = np.frexp(np.abs(deviation).max(axis=0))[1]
        variance = (np.ldexp(deviation, -exponent) ** 2).sum(axis=0) / (n - 1)
        std = np.ldexp(np.sqrt(variance), exponent)
    with np.errstate(invalid="ignore", divide="ignore"):
        kurtosis = ((deviation / std) ** 4).mean(axis=0)  # of the standardised sample: fourth powers overflow early
    quantile = np.moveaxis(np.quantile(x, levels, axis=0), 0, -1)
    return SampleSummary(mean, std, std / np.sqrt(n), _std_standard_error(std, kurtosis, n), quantile)


def summarize_stream(blocks: Blocks, probabilities: ArrayLike) -> SampleSummary:
    """As :func:`summarize`, of a sample that comes in blocks and is never held.

    Moments are sums about the mean of the first block, in units of its standard deviation. Quantiles are those of
    ``numpy.quantile``, to the bit, from :func:`quantiles_of_stream`.

    Args:
        blocks: called for each reading; yields the same arrays (row, draw) every time, some draws each. How the draws
            are cut into blocks shows in the rounding of the moments.
        probabilities: of the quantiles.

    Returns:
        Of every row: arrays (row,) and (row, probability).

    Raises:
        ParameterError: fewer than two draws; blocks or probabilities that are masked or no real numbers.
    """
    n, sums = 0, np.zeros((4, 0))
    origin = unit = np.zeros(0)
    for part in blocks():
        block = _require_block(part)
        with np.errstate(invalid="ignore", over="ignore"):
            if not sums.size:
                exponent = np.frexp(np.abs(block).max(axis=1))[1]  # lest squares leave the doubles; it changes no bit
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
    return SampleSummary(mean, std, std / np.sqrt(n), std_error, _quantiles(blocks, probabilities, origin.size, n))


def quantiles_of_stream(blocks: Blocks, probabilities: ArrayLike) -> Float[np.ndarray, "row probability"]:
    """Quantiles (row, probability) of a sample that comes in blocks: ``numpy.quantile``'s, to the bit.

    As many rows are held at a time as have sixteen million numbers together, one at least: a row of 10⁷ draws takes
    80 MB. Each group of rows is one more reading.

    Args:
        blocks: called for each reading; yields the same arrays (row, draw) every time.
        probabilities: between 0 and 1.

    Raises:
        ParameterError: fewer than two draws; blocks or probabilities that are masked or no real numbers.
    """
    rows, draws = 0, 0
    for part in blocks():
        rows, more = _require_block(part).shape
        draws += more
    _require_spread(draws)
    return _quantiles(blocks, probabilities, rows, draws)


def _quantiles(blocks: Blocks, probabilities: ArrayLike, rows: int, draws: int) -> Float[np.ndarray, "row probability"]:
    levels = _require_levels(probabilities)
    together = max(_HELD // draws, 1)
    found = np.empty((rows, levels.size))
    for first in range(0, rows if levels.size else 0, together):
        part = slice(first, min(first + together, rows))
        held = np.empty((part.stop - first, draws))
        filled = 0
        for block in blocks():
            held[:, filled : filled + block.shape[1]] = block[part]
            filled += block.shape[1]
        with np.errstate(invalid="ignore"):
            found[part] = np.quantile(held, levels, axis=1, overwrite_input=True).T
    return found


def _require_levels(probabilities: ArrayLike) -> Float[np.ndarray, " probability"]:
    levels = require_probabilities("probabilities", probabilities)
    if levels.ndim != 1:
        raise ParameterError("probabilities", f"shape {levels.shape}", "a one-dimensional array")
    return levels


def _require_block(part: ArrayLike) -> Float[np.ndarray, "row draw"]:
    block = require_real_numbers("blocks", part)
    if block.ndim != 2 or not block.size:
        raise ParameterError("blocks", f"shape {block.shape}", "blocks (row, draw) of at least one of each")
    return block


def _require_spread(draws: int) -> None:
    if draws < 2:
        raise ParameterError("draws", draws, "at least 2 (a standard error needs a spread)")


def _std_standard_error(
    std: Float[np.ndarray, "..."], kurtosis: Float[np.ndarray, "..."], n: int
) -> Float[np.ndarray, "..."]:
    """Standard error of the standard deviation of n draws, whose fourth moment over std⁴ is ``kurtosis``; 0 at 0."""
    relative = np.where(std > 0, kurtosis - (n - 3) / (n - 1), 0.0)
    return 0.5 * std * np.sqrt(np.maximum(relative, 0.0) / n)
