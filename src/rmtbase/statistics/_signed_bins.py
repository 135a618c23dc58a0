"""Counts of numbers in signed bins of equal relative width, which need neither a range nor a scale beforehand.

The leading bits of a float64 are the number of its bin, 1024 an octave on either side of zero; half precision has a bin
for each value. A bin holds integers, so that parts of a sample add up exactly: the count, and the sums of the distances
from its edge nearest to zero and of their squares.
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

Numbers = Shaped[np.ndarray, " number"]
Ints = Int[np.ndarray, " number"]

_MANTISSA, _EXPONENT_OF_ONE = 52, 1023
_SINGLE_MANTISSA, _SINGLE_EXPONENT_OF_ONE = 23, 127
_SPLIT = 10  # bits of the mantissa that number the bins of an octave
_DISTANCE = 16  # following bits, which measure the distance from the bin's edge
_IN_CACHE = 1 << 16  # numbers whose places and distances fit in the cache
_COUNTED = 1 << 18  # numbers whose bit patterns, widened for counting, fit in the cache
_ONE = 1 << 40  # unit of a count; the bits below hold a sum of distances
_MANY = 1 << 18  # numbers from which on it pays to allocate all bins of float32
_SUBNORMAL = 1 << _SPLIT  # bins below it hold subnormal numbers

_LOWEST, _HIGHEST = -40, 24  # octaves that are counted if the bins must be fixed beforehand
_FIRST = (_EXPONENT_OF_ONE + _LOWEST) << _SPLIT
_INNER = (_HIGHEST - _LOWEST) << _SPLIT
_INFINITE = (2047 << _SPLIT) + 1

MAGNITUDE_BINS = _INNER + 2
"""Number of bins of the octaves from 2^-40 to 2^24, with one more at either end for magnitudes below and above."""


def magnitude_bins(bits: Any) -> tuple[Any, Any]:
    """Return the bin of each magnitude, and its distance from the bin's lower edge in 2^-16 of the bin's width."""
    if isinstance(bits, np.ndarray) and (bits.dtype != np.int64 or np.ma.is_masked(bits)):
        raise ParameterError("bits", f"{type(bits).__name__} of {bits.dtype}", "float64 bits as int64, none masked")
    place = ((bits >> (_MANTISSA - _SPLIT)) - (_FIRST - 1)).clip(0, MAGNITUDE_BINS - 1)
    return place, (bits >> (_MANTISSA - _SPLIT - _DISTANCE)) & ((1 << _DISTANCE) - 1)


@in_one_line
@dataclass(frozen=True)
class SignedBins:
    """Counts of numbers in the occupied bins, in ascending order; arrays of shape (bin,)."""

    #: number of the bin, 0 for zeros and ±(1 + the leading bits of the magnitude) for others; ascending
    number: Int[np.ndarray, " bin"]
    count: Int[np.ndarray, " bin"]  #: number of numbers in the bin
    #: distance, distance_squared: sums over these of the distance from the bin's edge nearest to zero, in units of
    #: 2^-16 of the bin's width, and of the squared distance
    distance: Int[np.ndarray, " bin"]
    distance_squared: Int[np.ndarray, " bin"]

    @classmethod
    def of_magnitudes(cls, count: Ints, distance: Ints, squared: Ints) -> SignedBins:
        """Make bins of arrays (MAGNITUDE_BINS,): below 2^-40 counts as zero, from 2^24 on as infinite."""
        occupied = np.flatnonzero(count)
        number = occupied + _FIRST
        number[occupied == 0], number[occupied == MAGNITUDE_BINS - 1] = 0, _INFINITE
        inside = (occupied > 0) & (occupied < MAGNITUDE_BINS - 1)
        return cls(number, count[occupied], distance[occupied] * inside, squared[occupied] * inside)

    def merged(self, other: SignedBins) -> SignedBins:
        return _collected(*(np.concatenate(pair) for pair in zip(self._fields, other._fields, strict=True)))

    @cached_property
    def magnitudes(self) -> SignedBins:
        return _collected(np.abs(self.number), self.count, self.distance, self.distance_squared)

    @cached_property
    def positive(self) -> SignedBins:
        """Magnitudes, zeros replaced by m/(2e), m the smallest other: exp of the mean ln |w| of what rounds to zero."""
        bins = self.magnitudes
        if bins.number[0] != 0 or bins.number.size == 1:
            return bins
        zeros = signed_bins(np.array([bins.mean[1] / (2.0 * math.e)]))
        moved = (sums * bins.count[0] for sums in zeros._fields[1:])
        return SignedBins(*(np.append(x, y[1:]) for x, y in zip((zeros.number, *moved), bins._fields, strict=True)))

    @cached_property
    def end(self) -> Int[np.ndarray, " bin"]:
        return np.cumsum(self.count)

    @cached_property
    def octave(self) -> Int[np.ndarray, " bin"]:
        """Octave of each bin, the k in 2^k ≤ |w| < 2^(k + 1); for zeros that of the smallest doubles."""
        return ((np.abs(self.number) - 1) >> _SPLIT).clip(1) - _EXPONENT_OF_ONE

    @cached_property
    def mantissas(self) -> tuple[Float[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
        """Mean and variance, in each bin, of the magnitude divided by the lower edge of its octave."""
        unit, width = 1 << _DISTANCE, 2.0**-_SPLIT
        mean = self.distance / self.count
        variance = np.maximum(self.distance_squared / self.count - mean**2, 0.0)
        edge = 1.0 + ((np.abs(self.number) - 1) % (1 << _SPLIT)) * width
        return edge + mean * (width / unit), variance * (width / unit) ** 2

    @cached_property
    def mean(self) -> Float[np.ndarray, " bin"]:
        with np.errstate(over="ignore"):  # infinite numbers
            return np.sign(self.number) * np.ldexp(self.mantissas[0], self.octave)

    @cached_property
    def variance(self) -> Float[np.ndarray, " bin"]:
        return np.where(self.number == 0, 0.0, np.ldexp(self.mantissas[1], 2 * self.octave))

    @property
    def width(self) -> Float[np.ndarray, " bin"]:
        return np.ldexp(1.0, self.octave - _SPLIT)

    @cached_property
    def tied(self) -> Bool[np.ndarray, " bin"]:
        return (self.count > 1) & (self.mantissas[1] == 0.0)

    @cached_property
    def spacing(self) -> Float[np.ndarray, " bin"]:
        """Spacing of the numbers of each bin if they were evenly spread about their mean, with their variance."""
        return np.sqrt(12.0 * self.variance / np.maximum(self.count.astype(float) ** 2 - 1.0, 1.0))

    @cached_property
    def unrounded_spacing(self) -> Float[np.ndarray, " bin"]:
        """Spacing as :attr:`spacing`, but numbers of half precision fill the interval rounded to their value."""
        bits, exponent = self._format
        if bits > _SPLIT:
            return self.spacing
        return np.ldexp(1.0 / self.count, np.maximum(self.octave - bits, exponent))

    def between(self, values: Float[np.ndarray, " value"]) -> Float[np.ndarray, " value"]:
        """Move values to the nearest edge of a bin, or halfway between numbers of half precision."""
        bits, exponent = self._format
        octave = np.frexp(values)[1] - 1
        if bits > _SPLIT:
            step = np.ldexp(1.0, octave - _SPLIT)
            return np.round(values / step) * step
        step = np.ldexp(1.0, np.maximum(octave - bits, exponent))
        return (np.floor(values / step) + 0.5) * step

    @cached_property
    def _format(self) -> tuple[int, int]:
        """Mantissa bits in use (7 in bfloat16, 10 in float16, else 11) and exponent of a power of two dividing all."""
        occupied = self.number != 0
        if self.distance.any() or not occupied.any():
            return _SPLIT + 1, 0
        low = (np.abs(self.number[occupied]) - 1) % (1 << _SPLIT) | (1 << _SPLIT)
        bits = _SPLIT - np.log2(low & -low).astype(int)
        return int(bits.max()), int((self.octave[occupied] - bits).min())

    @property
    def zeros(self) -> int:
        return int(self.count[self.number == 0].sum())

    @property
    def not_finite(self) -> int:
        return int(self.count[np.abs(self.number) >= _INFINITE].sum())

    @property
    def _fields(self) -> tuple[Int[np.ndarray, " bin"], ...]:
        return self.number, self.count, self.distance, self.distance_squared


def signed_bins(numbers: Numbers) -> SignedBins:
    """Count a flat array of at most 2^21 numbers of any real dtype; magnitudes below 2^-1022 count as zeros."""
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
    span = max(most - least + 1, 0) + 1  # number of bins on one side of zero, including that of zeros

    def places() -> Iterator[tuple[Ints, Ints]]:
        for place, distance, negative in _double_places(numbers):
            yield np.maximum(place - least + 1, 0) + span * negative, distance

    occupied, *sums = _tally(places(), 2 * span)
    number = np.where(occupied % span > 0, occupied % span + least, 0) * np.where(occupied < span, 1, -1)
    return _collected(number, *sums)


def _of_narrow(numbers: Numbers) -> SignedBins:
    pattern = f"u{numbers.dtype.itemsize}"
    patterns, values = numbers.view(pattern), 1 << (8 * numbers.dtype.itemsize)
    parts = (patterns[start : start + _COUNTED] for start in range(0, numbers.size, _COUNTED))
    count = sum((np.bincount(part, minlength=values) for part in parts), start=np.zeros(values, dtype=np.int64))
    occupied = np.flatnonzero(count)
    bits = occupied.astype(pattern).view(numbers.dtype).astype(np.float64).view(np.int64)
    place, distance = _leading(bits & np.int64(2**63 - 1))
    number = np.where(place >= _SUBNORMAL, place + 1, 0) * np.where(bits < 0, -1, 1)
    return _collected(number, count[occupied], count[occupied] * distance, count[occupied] * distance**2)


def _double_places(numbers: Numbers) -> Iterator[tuple[Ints, Ints, Bool[np.ndarray, " number"]]]:
    """Yield the leading bits of each magnitude as float64, its distance from their edge, and True if negative."""
    for start in range(0, numbers.size, _IN_CACHE):
        bits = np.ascontiguousarray(numbers[start : start + _IN_CACHE], dtype=np.float64).view(np.int64)
        yield *_leading(bits & np.int64(2**63 - 1)), bits < 0


def _of_single(numbers: Float[np.ndarray, " number"]) -> SignedBins | None:
    """Count float32 numbers by their bits; None if some are subnormal, as they have no leading one."""
    dropped = _SINGLE_MANTISSA - _SPLIT
    unit = 1 << (_DISTANCE - dropped)

    def places() -> Iterator[tuple[Ints, Ints]]:
        for start in range(0, numbers.size, _IN_CACHE):
            bits = numbers[start : start + _IN_CACHE].view(np.uint32)
            yield (bits >> dropped).astype(np.intp), (bits & ((1 << dropped) - 1)).astype(np.int64)

    occupied, count, first, second = _tally(places(), 1 << (32 - dropped))
    place = occupied & ((1 << (31 - dropped)) - 1)
    small = place < _SUBNORMAL
    if first[small].any() or place[small].any():
        return None
    infinite = place >= 255 << _SPLIT
    number = np.where(infinite, _INFINITE, place + ((_EXPONENT_OF_ONE - _SINGLE_EXPONENT_OF_ONE) << _SPLIT) + 1)
    number = np.where(small, 0, number) * np.where(occupied >> (31 - dropped), -1, 1)
    return _collected(number, count, unit * first, unit**2 * second)


def _leading(bits: Ints) -> tuple[Ints, Ints]:
    place = bits >> (_MANTISSA - _SPLIT)
    distance = (bits >> (_MANTISSA - _SPLIT - _DISTANCE)) & ((1 << _DISTANCE) - 1)
    return place, np.where(place < _SUBNORMAL, 0, distance)


def _tally(parts: Iterable[tuple[Ints, Ints]], bins: int) -> tuple[Int[np.ndarray, " bin"], ...]:
    """Tally (place, distance): places, counts, Σ distance (below 2^37: counts fit in the bits above), Σ distance²."""
    together, squares = np.zeros((2, bins), dtype=np.int64)
    for place, distance in parts:
        np.add.at(squares, place, distance * distance)
        np.add.at(together, place, distance + _ONE)
    occupied = np.flatnonzero(together)
    together = together[occupied]
    return occupied, together // _ONE, together % _ONE, squares[occupied]


def _collected(number: Int[np.ndarray, " part"], *sums: Int[np.ndarray, " part"]) -> SignedBins:
    order = np.argsort(number, kind="stable")
    number = number[order]
    first = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    return SignedBins(number[first], *(np.add.reduceat(values[order], first) for values in sums))
