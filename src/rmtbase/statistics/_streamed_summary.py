"""The summary of a sample that is read again and again instead of being held: a few rows at most are held at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers
from rmtbase.statistics._sample import SampleSummary, std_standard_error

Blocks = Callable[[], Iterable[Float[np.ndarray, "row draw"]]]

_HELD = 1 << 24  # numbers held for quantiles at a time, or one row of more


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
    moments = _moments(blocks)
    return SampleSummary(*moments.summary(), _quantiles(blocks, probabilities, moments))


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
    return _quantiles(blocks, probabilities, _moments(blocks))


@dataclass(frozen=True)
class _Moments:
    """Power sums of one reading.

    Attributes:
        draws: how many.
        origin, unit: sums are those of x = (value - origin) / unit; (row,).
        sums: Σx, Σx², Σx³, Σx⁴, (4, row).
    """

    draws: int
    origin: Float[np.ndarray, " row"]
    unit: Float[np.ndarray, " row"]
    sums: Float[np.ndarray, "4 row"]

    def summary(
        self,
    ) -> tuple[
        Float[np.ndarray, " row"], Float[np.ndarray, " row"], Float[np.ndarray, " row"], Float[np.ndarray, " row"]
    ]:
        """Mean, standard deviation and the standard errors of both."""
        n = self.draws
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            m1, m2, m3, m4 = self.sums / n
            variance = np.maximum(m2 - m1**2, 0.0)
            fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
            unbiased = variance * n / (n - 1)
            std = self.unit * np.sqrt(unbiased)
            std_error = std_standard_error(std, fourth / unbiased**2, n)
            return self.origin + self.unit * m1, std, std / np.sqrt(n), std_error


def _moments(blocks: Blocks) -> _Moments:
    found: _Moments | None = None
    for part in blocks():
        block = require_real_numbers("blocks", part)
        with np.errstate(invalid="ignore", over="ignore"):
            if found is None:
                origin, unit = block.mean(axis=1), block.std(axis=1)
                origin = np.where(np.isfinite(origin), origin, 0.0)
                unit = np.where(np.isfinite(unit) & (unit > 0), unit, 1.0)
                found = _Moments(0, origin, unit, np.zeros((4, len(block))))
            x = (block - found.origin[:, None]) / found.unit[:, None]
            square = x * x
            sums = np.stack([power.sum(axis=1) for power in (x, square, square * x, square * square)])
        found = _Moments(
            found.draws + block.shape[1],
            found.origin,
            found.unit,
            found.sums + sums,
        )
    if found is None or found.draws < 2:
        raise ParameterError("draws", found.draws if found else 0, "at least 2 (a standard error needs a spread)")
    return found


def _quantiles(blocks: Blocks, probabilities: ArrayLike, moments: _Moments) -> Float[np.ndarray, "row probability"]:
    levels = require_real_numbers("probabilities", probabilities)
    count = moments.origin.size if levels.size else 0
    together = max(_HELD // moments.draws, 1)
    found = []
    for first in range(0, count, together):
        held = _held(blocks, slice(first, first + together), moments.draws)
        with np.errstate(invalid="ignore"):
            found.append(np.quantile(held, levels, axis=1, overwrite_input=True))
    return np.concatenate(found, axis=1).T if found else np.empty((moments.origin.size, 0))


def _held(blocks: Blocks, rows: slice, draws: int) -> Float[np.ndarray, "row draw"]:
    held, filled = None, 0
    for block in blocks():
        part = block[rows]
        if held is None:
            held = np.empty((len(part), draws))
        held[:, filled : filled + part.shape[1]] = part
        filled += part.shape[1]
    return np.empty((0, draws)) if held is None else held
