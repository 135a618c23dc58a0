"""Numbers counted in signed bins of equal relative width, which need no range beforehand and no scale.

A float64 is a sign, a power of two, its octave, and a mantissa in [1, 2), so that the leading bits of the number itself
are the number of its bin: no logarithm is taken. Each octave has 1024 bins on either side of zero. A bin holds how many
numbers fell into it and the sums of their distances from its edge nearest to zero and of the squares of those, all
integers: the counts of two parts of a sample add up to those of the whole, exactly and in any order. Numbers of half
precision have a bin for each of their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from rmtbase.errors import ParameterError
from rmtbase.shown import in_one_line

_MANTISSA, _EXPONENT_OF_ONE = 52, 1023
_SINGLE_MANTISSA, _SINGLE_EXPONENT_OF_ONE = 23, 127
_SPLIT = 10  # bits of the mantissa that number the bins of an octave
_DISTANCE = 16  # bits of it that measure the distance from the bin's edge
_IN_CACHE = 1 << 16  # numbers whose places and distances stay in the cache
_COUNTED = 1 << 18  # numbers whose patterns, widened to count them, do
_ONE = 1 << 40  # of a count, where a sum of distances lies below it
_MANY = 1 << 18  # numbers for which the bins of all of float32 are looked through
_SUBNORMAL = 1 << _SPLIT  # bins below it are of numbers without a leading one

_LOWEST, _HIGHEST = -40, 24  # octaves that are counted where the bins must be numbered beforehand
_FIRST = (_EXPONENT_OF_ONE + _LOWEST) << _SPLIT
_INNER = (_HIGHEST - _LOWEST) << _SPLIT
_INFINITE = (2047 << _SPLIT) + 1

MAGNITUDE_BINS = _INNER + 2
"""The bins of the octaves from 2^-40 to 2^24, and one at either end for what lies below and above them."""


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
class SignedBins:
    """Counts of numbers in the bins that hold any, in ascending order; each array (bin,).

    Attributes:
        number: of the bin, 0 for zeros, ±(1 + the leading bits of the magnitude) for others: as the numbers ascend.
        count: how many lie in it.
        distance, distance_squared: sums over them of the distance from the edge nearest to zero, in units of 2^-16 of
            the bin's width, and of its square.
    """

    number: Int[np.ndarray, " bin"]
    count: Int[np.ndarray, " bin"]
    distance: Int[np.ndarray, " bin"]
    distance_squared: Int[np.ndarray, " bin"]

    @classmethod
    def of_magnitudes(
        cls, count: Int[np.ndarray, " all"], distance: Int[np.ndarray, " all"], squared: Int[np.ndarray, " all"]
    ) -> SignedBins:
        """From arrays (MAGNITUDE_BINS,) that were counted by :func:`magnitude_bins`.

        What lies below 2^-40 is taken for zero, and what does not lie below 2^24 for infinite.
        """
        held = np.flatnonzero(count)
        number = held + _FIRST
        number[held == 0], number[held == MAGNITUDE_BINS - 1] = 0, _INFINITE
        inside = (held > 0) & (held < MAGNITUDE_BINS - 1)
        return cls(number, count[held], distance[held] * inside, squared[held] * inside)

    def merged(self, other: SignedBins) -> SignedBins:
        """The counts of both parts together."""
        return _collected(*(np.concatenate(pair) for pair in zip(self._fields, other._fields, strict=True)))

    @cached_property
    def magnitudes(self) -> SignedBins:
        """The counts of the numbers' magnitudes."""
        return _collected(np.abs(self.number), self.count, self.distance, self.distance_squared)

    @cached_property
    def positive(self) -> SignedBins:
        """The magnitudes, with zeros as what a smallest step m rounds to them: at m/(2e), where ln |w| is on average.

        m is the smallest magnitude that is not zero.
        """
        bins = self.magnitudes
        if bins.number[0] != 0 or bins.number.size == 1:
            return bins
        zeros = signed_bins(np.array([bins.mean[1] / (2.0 * math.e)]))
        moved = (one * bins.count[0] for one in zeros._fields[1:])
        return SignedBins(
            *(np.append(one, rest[1:]) for one, rest in zip((zeros.number, *moved), bins._fields, strict=True))
        )

    @cached_property
    def end(self) -> Int[np.ndarray, " bin"]:
        """How many numbers lie in this bin and those before it."""
        return np.cumsum(self.count)

    @cached_property
    def octave(self) -> Int[np.ndarray, " bin"]:
        """Octave of each bin, the k of 2^k ≤ |w| < 2^(k + 1); that of the smallest doubles for zeros."""
        return ((np.abs(self.number) - 1) >> _SPLIT).clip(1) - _EXPONENT_OF_ONE

    @cached_property
    def mantissas(self) -> tuple[Float[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
        """Mean and variance, in each bin, of the magnitude over its octave's lower edge."""
        unit, width = 1 << _DISTANCE, 2.0**-_SPLIT
        mean = self.distance / self.count
        variance = np.maximum(self.distance_squared / self.count - mean**2, 0.0)
        edge = 1.0 + ((np.abs(self.number) - 1) % (1 << _SPLIT)) * width
        return edge + mean * (width / unit), variance * (width / unit) ** 2

    @cached_property
    def mean(self) -> Float[np.ndarray, " bin"]:
        """Mean of the numbers of each bin."""
        with np.errstate(over="ignore"):  # of what is infinite
            return np.sign(self.number) * np.ldexp(self.mantissas[0], self.octave)

    @cached_property
    def variance(self) -> Float[np.ndarray, " bin"]:
        """Variance of the numbers of each bin, with 1/count."""
        return np.where(self.number == 0, 0.0, np.ldexp(self.mantissas[1], 2 * self.octave))

    @property
    def width(self) -> Float[np.ndarray, " bin"]:
        """Width of each bin."""
        return np.ldexp(1.0, self.octave - _SPLIT)

    @cached_property
    def tied(self) -> Bool[np.ndarray, " bin"]:
        """Whether all numbers of a bin are equal, two at least."""
        return (self.count > 1) & (self.mantissas[1] == 0.0)

    @cached_property
    def spacing(self) -> Float[np.ndarray, " bin"]:
        """How far apart the numbers of each bin are, taken as evenly spread about their mean, with their variance."""
        return np.sqrt(12.0 * self.variance / np.maximum(self.count.astype(float) ** 2 - 1.0, 1.0))

    @cached_property
    def unrounded_spacing(self) -> Float[np.ndarray, " bin"]:
        """As :attr:`spacing`; of numbers of half precision, evenly over all that is rounded to their value."""
        bits, exponent = self._format
        if bits > _SPLIT:
            return self.spacing
        return np.ldexp(1.0 / self.count, np.maximum(self.octave - bits, exponent))

    def between(self, values: Float[np.ndarray, " value"]) -> Float[np.ndarray, " value"]:
        """The values moved to where no number is, to the nearest edge of a bin.

        Of numbers of half precision to halfway between two that can be stored, where nothing crosses it by rounding.
        """
        bits, exponent = self._format
        octave = np.frexp(values)[1] - 1
        if bits > _SPLIT:
            step = np.ldexp(1.0, octave - _SPLIT)
            return np.round(values / step) * step
        step = np.ldexp(1.0, np.maximum(octave - bits, exponent))
        return (np.floor(values / step) + 0.5) * step

    @cached_property
    def _format(self) -> tuple[int, int]:
        """How many bits of the mantissa the numbers take up, and the power of two that all are multiples of.

        7 bits of bfloat16 and 10 of float16, of which the smallest numbers are multiples of 2^-24; 11 stands for more
        than the bins resolve.
        """
        held = self.number != 0
        if self.distance.any() or not held.any():
            return _SPLIT + 1, 0
        low = (np.abs(self.number[held]) - 1) % (1 << _SPLIT) | (1 << _SPLIT)
        bits = _SPLIT - np.log2(low & -low).astype(int)
        return int(bits.max()), int((self.octave[held] - bits).min())

    @property
    def zeros(self) -> int:
        """How many numbers are zero."""
        return int(self.count[self.number == 0].sum())

    @property
    def not_finite(self) -> int:
        """How many numbers are infinite or none."""
        return int(self.count[np.abs(self.number) >= _INFINITE].sum())

    @property
    def _fields(self) -> tuple[Int[np.ndarray, " bin"], ...]:
        return self.number, self.count, self.distance, self.distance_squared


def signed_bins(numbers: Shaped[np.ndarray, " number"]) -> SignedBins:
    """The counts of a flat array of at most 2^21 numbers of any real dtype; numbers below 2^-1022 count as zeros."""
    if numbers.dtype.itemsize <= 2:
        return _of_narrow(numbers)
    if numbers.dtype == np.float32 and numbers.size >= _MANY:
        counted = _of_single(numbers)
        if counted is not None:
            return counted
    least, most = _INFINITE, 0
    for place, _, _ in _double_places(numbers):
        least = int(np.min(place, where=place >= _SUBNORMAL, initial=least))
        most = max(most, int(place.max()))
    span = max(most - least + 1, 0) + 1  # of bins on one side of zero, with that of zeros

    def places() -> Iterator[tuple[Int[np.ndarray, " number"], Int[np.ndarray, " number"]]]:
        for place, distance, negative in _double_places(numbers):
            yield np.maximum(place - least + 1, 0) + span * negative, distance

    held, *sums = _tally(places(), 2 * span)
    number = np.where(held % span > 0, held % span + least, 0) * np.where(held < span, 1, -1)
    return _collected(number, *sums)


def _of_narrow(numbers: Shaped[np.ndarray, " number"]) -> SignedBins:
    """Of numbers of at most 16 bits: every value that there is, with its count."""
    pattern = f"u{numbers.dtype.itemsize}"
    patterns, values = numbers.view(pattern), 1 << (8 * numbers.dtype.itemsize)
    parts = (patterns[start : start + _COUNTED] for start in range(0, numbers.size, _COUNTED))
    count = sum((np.bincount(part, minlength=values) for part in parts), start=np.zeros(values, dtype=np.int64))
    held = np.flatnonzero(count)
    bits = held.astype(pattern).view(numbers.dtype).astype(np.float64).view(np.int64)
    place, distance = _leading(bits & np.int64(2**63 - 1))
    number = np.where(place >= _SUBNORMAL, place + 1, 0) * np.where(bits < 0, -1, 1)
    return _collected(number, count[held], count[held] * distance, count[held] * distance**2)


def _double_places(
    numbers: Shaped[np.ndarray, " number"],
) -> Iterator[tuple[Int[np.ndarray, " part"], Int[np.ndarray, " part"], Bool[np.ndarray, " part"]]]:
    """In parts, the leading bits of each number's magnitude, its distance from their edge, and whether it is negative.

    As float64.
    """
    for start in range(0, numbers.size, _IN_CACHE):
        bits = np.ascontiguousarray(numbers[start : start + _IN_CACHE], dtype=np.float64).view(np.int64)
        yield *_leading(bits & np.int64(2**63 - 1)), bits < 0


def _of_single(numbers: Float[np.ndarray, " number"]) -> SignedBins | None:
    """Of float32, by their own bits; None where some are subnormal, whose leading bits are no mantissa's."""
    dropped = _SINGLE_MANTISSA - _SPLIT
    unit = 1 << (_DISTANCE - dropped)

    def places() -> Iterator[tuple[Int[np.ndarray, " number"], Int[np.ndarray, " number"]]]:
        for start in range(0, numbers.size, _IN_CACHE):
            bits = numbers[start : start + _IN_CACHE].view(np.uint32)
            yield (bits >> dropped).astype(np.intp), (bits & ((1 << dropped) - 1)).astype(np.int64)

    held, count, first, second = _tally(places(), 1 << (32 - dropped))
    place = held & ((1 << (31 - dropped)) - 1)
    small = place < _SUBNORMAL
    if first[small].any() or place[small].any():
        return None
    infinite = place >= 255 << _SPLIT
    number = np.where(infinite, _INFINITE, place + ((_EXPONENT_OF_ONE - _SINGLE_EXPONENT_OF_ONE) << _SPLIT) + 1)
    number = np.where(small, 0, number) * np.where(held >> (31 - dropped), -1, 1)
    return _collected(number, count, unit * first, unit**2 * second)


def _leading(bits: Int[np.ndarray, " number"]) -> tuple[Int[np.ndarray, " number"], Int[np.ndarray, " number"]]:
    """The leading bits of magnitudes, and the distance from the edge that they give."""
    place = bits >> (_MANTISSA - _SPLIT)
    distance = (bits >> (_MANTISSA - _SPLIT - _DISTANCE)) & ((1 << _DISTANCE) - 1)
    return place, np.where(place < _SUBNORMAL, 0, distance)


def _tally(
    parts: Iterable[tuple[Int[np.ndarray, " number"], Int[np.ndarray, " number"]]], bins: int
) -> tuple[Int[np.ndarray, " bin"], ...]:
    """Of (place, distance) in parts, 2^21 together: the places there are, counts, Σ distance and Σ distance².

    Σ distance stays below 2^37, and a count is added with each of them, in the bits above.
    """
    together, squares = np.zeros((2, bins), dtype=np.int64)
    for place, distance in parts:
        np.add.at(squares, place, distance * distance)
        np.add.at(together, place, distance + _ONE)
    held = np.flatnonzero(together)
    together = together[held]
    return held, together // _ONE, together % _ONE, squares[held]


def _collected(number: Int[np.ndarray, " part"], *sums: Int[np.ndarray, " part"]) -> SignedBins:
    """Ascending, each bin once."""
    order = np.argsort(number, kind="stable")
    number = number[order]
    first = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    return SignedBins(number[first], *(np.add.reduceat(one[order], first) for one in sums))
