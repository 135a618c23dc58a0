"""Magnitudes counted in bins of equal relative width, from which the Weibull fit follows without the sample.

A float64 is a power of two, its octave, times a mantissa in [1, 2), so that the leading bits of the number itself are
the number of its bin: no logarithm is taken, and no scale has to be known beforehand. Each octave has 1024 bins. A bin
holds the number of its magnitudes and the sums of their distances from its lower edge and of the squares of those, all
integers: the counts of two parts of a sample add up to those of the whole, exactly and in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_trim
from rmtbase.shown import in_one_line
from rmtbase.statistics._weibull_fit import WeibullFit, plotting_positions, trimmed_ranks

_MANTISSA, _EXPONENT_OF_ONE = 52, 1023
_LOWEST, _HIGHEST = -40, 24  # octaves: magnitudes from 2^-40 to 2^24 have bins
_SPLIT = 10  # bits of the mantissa that number the bins of an octave
_DISTANCE = 16  # bits of it that measure the distance from the bin's lower edge
_FIRST = (_EXPONENT_OF_ONE + _LOWEST) << _SPLIT
_INNER = (_HIGHEST - _LOWEST) << _SPLIT

MAGNITUDE_BINS = _INNER + 2
"""The bins of the octaves, and one at either end for what lies below and above them."""

_OUTER = 16  # ranks at either end of the sample whose plotting positions are summed one by one
_ROWS = 1 << 20


def magnitude_bins(bits: Any) -> tuple[Any, Any]:
    """The bin of each magnitude, and its distance from the bin's lower edge in units of 2^-16 of the bin's width.

    Args:
        bits: the magnitudes' float64 bits as int64; a NumPy or a JAX array.

    Raises:
        ParameterError: a NumPy array of another dtype, or with masked entries.
    """
    if isinstance(bits, np.ndarray) and (bits.dtype != np.int64 or np.ma.is_masked(bits)):
        raise ParameterError("bits", f"{type(bits).__name__} of {bits.dtype}", "float64 bits as int64, none masked")
    place = ((bits >> (_MANTISSA - _SPLIT)) - (_FIRST - 1)).clip(0, MAGNITUDE_BINS - 1)
    return place, (bits >> (_MANTISSA - _SPLIT - _DISTANCE)) & ((1 << _DISTANCE) - 1)


@in_one_line
@dataclass(frozen=True)
class MagnitudeCounts:
    """Counts of magnitudes; each array (MAGNITUDE_BINS,).

    Attributes:
        count: how many lie in each bin.
        distance, distance_squared: sums over them of what :func:`magnitude_bins` measures, and of its square.
    """

    count: Int[np.ndarray, " bin"]
    distance: Int[np.ndarray, " bin"]
    distance_squared: Int[np.ndarray, " bin"]

    def merged(self, other: MagnitudeCounts) -> MagnitudeCounts:
        """The counts of both parts together."""
        return MagnitudeCounts(
            self.count + other.count,
            self.distance + other.distance,
            self.distance_squared + other.distance_squared,
        )

    def weibull_fit(self, rms: float, trim: float | Fraction = 0.1) -> WeibullFit:
        """The fit of :func:`weibull_fit`, ln(-ln(1 - p)) regressed on ln |w| between the trims.

        The mean and the variance of ln |w| in a bin follow from its sums, the mean of the plotting positions of its
        ranks from their integral. What is left open is how the magnitudes lie within a bin of relative width 2^-10 or
        less beyond their mean and variance. Measured, k̂ and λ̂ differ from the exact fit by less than 5e-8 relatively
        for 1000 to 4 million numbers, normal, Cauchy, uniform, quantised, in float64, float32, float16 and bfloat16; by
        less than 5e-7 for fewer. Only where the middle of the sample lies within a few bins is the fit coarser.

        Args:
            rms: root mean square of the numbers.
            trim: t, 0 ≤ t < 1/2, the share left out at either end.

        Raises:
            ParameterError: a trim outside [0, 1/2); fewer than two different magnitudes between the trims, or one that
                is below 2^-40 (a zero is) or not below 2^24.
        """
        n = int(self.count.sum())
        dropped = trimmed_ranks(n, require_trim(trim))
        end = np.cumsum(self.count)
        kept = (end > dropped) & (end - self.count < n - dropped) & (self.count > 0)
        if kept[0] or kept[-1]:
            raise ParameterError(
                "sample",
                f"magnitudes {'below 2^-40' if kept[0] else 'from 2^24 on'} between the trims",
                "magnitudes from 2^-40 to 2^24 there (rescale the weights, leave out exact zeros, or raise the trim)",
            )
        bins = np.flatnonzero(kept)
        count, last = self.count[bins], end[bins]
        first = last - count
        low, high = np.maximum(first, dropped), np.minimum(last, n - dropped)  # the ranks that are kept
        mean, variance = self._mantissas(bins)
        # Magnitudes of a bin that a trim cuts are taken as equally far apart.
        spacing = np.sqrt(12.0 * variance / np.maximum(count.astype(float) ** 2 - 1.0, 1.0))
        mean = mean + 0.5 * (low + high - first - last) * spacing
        number = (high - low).astype(float)
        evenly = (number**2 - 1.0) / 12.0
        variance = np.where(high - low == count, variance, spacing**2 * evenly)
        weight = number / number.sum()
        x = np.log(mean) - variance / (2.0 * mean**2) + ((bins - 1) // (1 << _SPLIT) + _LOWEST) * math.log(2.0)
        x_variance = variance / mean**2
        y = np.diff(_plotting_sums(np.append(low, high[-1]), n)) / number
        y_variance = evenly * _plotting_slope(0.5 * (low + high) / n) ** 2 / n**2
        x_mean, y_mean = weight @ x, weight @ y
        covariance = weight @ ((x - x_mean) * (y - y_mean) + np.sqrt(x_variance * y_variance))
        spread = weight @ ((x - x_mean) ** 2 + x_variance)
        if spread <= 0.0:
            raise ParameterError("sample", "one magnitude between the trims", "two different ones there")
        shape = float(covariance / spread)
        r_squared = float(shape * covariance / _plotting_variance(n, dropped))
        return WeibullFit(shape, math.exp(x_mean - y_mean / shape), r_squared, rms, n)

    def _mantissas(
        self, bins: Int[np.ndarray, " kept"]
    ) -> tuple[Float[np.ndarray, " kept"], Float[np.ndarray, " kept"]]:
        """Mean and variance, in each of the bins, of the magnitude over its octave's lower edge."""
        unit = 1 << _DISTANCE
        count = self.count[bins]
        mean = self.distance[bins] / count
        variance = np.maximum(self.distance_squared[bins] / count - mean**2, 0.0)
        width = 2.0**-_SPLIT
        edge = 1.0 + ((bins - 1) % (1 << _SPLIT)) * width
        return edge + mean * (width / unit), variance * (width / unit) ** 2


def magnitude_counts(numbers: Float[np.ndarray, " number"]) -> MagnitudeCounts:
    """The counts of a flat array of at most 2^20 float64."""
    place, distance = magnitude_bins(np.abs(numbers).view(np.int64))
    # The sums stay below 2^53: what bincount adds up in float64 are integers still.
    sums = (np.bincount(place, distance**power, MAGNITUDE_BINS).astype(np.int64) for power in (1, 2))
    return MagnitudeCounts(np.bincount(place, minlength=MAGNITUDE_BINS), *sums)


def _plotting_slope(p: Float[np.ndarray, " rank"]) -> Float[np.ndarray, " rank"]:
    """dY/dp."""
    return 1.0 / ((1.0 - p) * -np.log1p(-p))


def _plotting_sums(ranks: Int[np.ndarray, " rank"], n: int) -> Float[np.ndarray, " rank"]:
    """Σ_{i < rank} Y_i, up to a constant.

    By Euler and Maclaurin from the integral ∫ ln(-ln(1 - p)) dp = -(1 - p) ln u - E₁(u), u = -ln(1 - p); one by one
    near the ends, where they diverge.
    """
    outer = min(_OUTER, n // 2)
    inner = np.clip(ranks, outer, n - outer)
    u = -np.log1p(-inner / n)
    sums = -n * (np.exp(-u) * np.log(u) + special.exp1(u)) - _plotting_slope(inner / n) / (24.0 * n)
    below = np.append(0.0, np.cumsum(plotting_positions(0, outer, n)[::-1]))  # from rank `outer` downwards
    above = np.append(0.0, np.cumsum(plotting_positions(n - outer, n, n)))
    return sums - below[np.maximum(outer - ranks, 0)] + above[np.maximum(ranks - (n - outer), 0)]


@lru_cache(maxsize=64)
def _plotting_variance(n: int, dropped: int) -> float:
    """Variance of the plotting positions that are kept."""
    blocks = [(first, min(first + _ROWS, n - dropped)) for first in range(dropped, n - dropped, _ROWS)]
    number = n - 2 * dropped
    mean = math.fsum(float(plotting_positions(*block, n).sum()) for block in blocks) / number
    return math.fsum(float(((plotting_positions(*block, n) - mean) ** 2).sum()) for block in blocks) / number
