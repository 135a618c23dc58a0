"""Moments of the elements of a weight matrix, in float64 whatever the matrix's precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from jaxtyping import Shaped
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_finite_numbers, require_real_array
from rmtbase.shown import in_one_line

_BLOCK = 1 << 17  # elements widened to float64 at a time, so that they stay in the cache
_SPAN = 1 << 21  # elements summed in one call
_LEAST_POWER = 1e-290  # smallest sum of fourth powers that still has all its digits


@in_one_line
@dataclass(frozen=True)
class ElementMoments:
    count: int  #: n
    mean: float  #: w̄
    std: float  #: s = √(Σ(w - w̄)² / (n - 1))
    skewness: float  #: m₃ / m₂^{3/2} with central moments m_k = Σ(w - w̄)^k / n. NaN for a constant matrix.
    excess_kurtosis: float  #: m₄ / m₂² - 3. NaN for a constant matrix.
    largest_magnitude: float  #: max |w - w̄| / s. NaN for a constant matrix.


@in_one_line
@dataclass(frozen=True)
class CentralSums:
    count: int  #: n
    mean: float  #: w̄
    #: square, cube, fourth: Σ(w - w̄)^k for k = 2, 3, 4
    square: float
    cube: float
    fourth: float
    #: smallest, largest: the extremes
    smallest: float
    largest: float

    @classmethod
    def about(
        cls, pivot: float, count: int, powers: tuple[float, float, float, float], smallest: float, largest: float
    ) -> CentralSums:
        """Make the sums from Σ(w - pivot)^k, k = 1, …, 4; a pivot near the mean avoids cancellation."""
        first, second, third, fourth = powers
        shift = first / count
        square = second - shift * first
        cube = third - 3.0 * shift * second + 2.0 * shift**2 * first
        fourth = fourth - 4.0 * shift * third + 6.0 * shift**2 * second - 3.0 * shift**3 * first
        return cls(count, pivot + shift, square, cube, fourth, smallest, largest)

    def merged(self, other: CentralSums) -> CentralSums:
        """Return the sums of both parts: P. Pébay, SAND2008-6212 (2008), eq. (3.1)."""
        a, b, n = self.count, other.count, self.count + other.count
        step = other.mean - self.mean
        step_n = step / n
        shift = step * step_n * a * b  # part of the squares due to the distance between the two means
        return CentralSums(
            count=n,
            mean=self.mean + step_n * b,
            square=self.square + other.square + shift,
            cube=self.cube
            + other.cube
            + shift * step_n * (a - b)
            + 3.0 * step_n * (a * other.square - b * self.square),
            fourth=self.fourth
            + other.fourth
            + shift * step_n * step_n * (a * a - a * b + b * b)
            + 6.0 * step_n * step_n * (a * a * other.square + b * b * self.square)
            + 4.0 * step_n * (a * other.cube - b * self.cube),
            smallest=min(self.smallest, other.smallest),
            largest=max(self.largest, other.largest),
        )

    @property
    def has_sound_powers(self) -> bool:
        return self.smallest == self.largest or _LEAST_POWER < self.fourth < 1.0 / _LEAST_POWER

    def moments(self) -> ElementMoments:
        n, mean = self.count, self.mean
        if self.smallest == self.largest or self.square == 0.0:
            return ElementMoments(n, mean, 0.0, math.nan, math.nan, math.nan)
        m2, m3, m4 = (power / n for power in (self.square, self.cube, self.fourth))
        std = math.sqrt(self.square / (n - 1))
        largest = max(self.largest - mean, mean - self.smallest)
        return ElementMoments(n, mean, std, m3 / m2**1.5, m4 / m2**2 - 3.0, largest / std)

    @property
    def root_mean_square(self) -> float:
        return math.hypot(self.mean, math.sqrt(self.square / self.count))


def central_sums(numbers: Shaped[np.ndarray, " number"]) -> CentralSums:
    deviation = numbers.astype(np.float64)
    ends = numbers if numbers.dtype == np.float32 else deviation  # min and max are slow in half precision
    smallest, largest = float(ends.min()), float(ends.max())
    mean = float(deviation.mean())
    deviation -= mean
    square = deviation * deviation
    powers = float(square.sum()), float(square @ deviation), float(square @ square)
    return CentralSums(numbers.size, mean, *powers, smallest, largest)


def element_moments(matrix: ArrayLike, map_spans: Callable[..., Iterable[CentralSums]] = map) -> ElementMoments:
    """Moments of a matrix of any real dtype, without a float64 copy; the last three at any scale."""
    flat, sums = _summed(matrix, map_spans)
    if sums.has_sound_powers:
        return sums.moments()
    exponent = math.frexp(max(abs(sums.smallest), abs(sums.largest)))[1]
    moments = _summed(np.ldexp(flat.astype(np.float64), -exponent), map_spans)[1].moments()
    return replace(moments, mean=math.ldexp(moments.mean, exponent), std=math.ldexp(moments.std, exponent))


def _summed(matrix: ArrayLike, map_spans: Callable[..., Iterable[CentralSums]]) -> tuple[np.ndarray, CentralSums]:
    flat = require_real_array("matrix", matrix).reshape(-1)
    if not flat.size:
        raise ParameterError("matrix", "no element", "at least one")
    spans = [flat[start : start + _SPAN] for start in range(0, flat.size, _SPAN)]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        sums = reduce(CentralSums.merged, map_spans(span_sums, spans))
    if not (math.isfinite(sums.smallest) and math.isfinite(sums.largest)):
        require_finite_numbers("matrix", flat)  # its message gives their number
    return flat, sums


def span_sums(numbers: Shaped[np.ndarray, " number"]) -> CentralSums:
    blocks = (numbers[start : start + _BLOCK] for start in range(0, numbers.size, _BLOCK))
    return reduce(CentralSums.merged, map(central_sums, blocks))
