"""Largest elements of a matrix by magnitude, and the number that stand apart from its own tail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from rmtbase.reasons import Reason

_TAIL = 64  # spacings of the upper tail that are used
_SHARE = 64  # at most one element in so many belongs to the tail
_FEWEST = 8  # spacings needed to describe a tail
_STRIDE, _RANK = 256, 16  # stride of the sample, and the rank in it that bounds the tail
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class LargestElements:
    """The 65 elements of largest magnitude, descending; the first come first among equal ones."""

    count: int  # number of all elements
    place: Int[np.ndarray, " element"]  # place of each among all elements, from 0
    value: Float[np.ndarray, " element"]  # value of each

    def merged(self, other: LargestElements) -> LargestElements:
        """Merge with the largest elements of the part that follows this one."""
        place = np.concatenate([self.place, other.place + self.count])
        value = np.concatenate([self.value, other.value])
        first = np.argsort(-np.abs(value), kind="stable")[: _TAIL + 1]
        return LargestElements(self.count + other.count, place[first], value[first])

    def isolation(self) -> Float[np.ndarray, " rank"]:
        """Return p-values of the gaps below the largest element, the second, …, to find how many stand apart.

        In a tail that falls off as a power or faster, the spacings of x₍₁₎ ≥ x₍₂₎ ≥ … ,

            D_k = k (ln x₍ₖ₎ - ln x₍ₖ₊₁₎),   k = 1, …, m,

        are independent and exponential, with one mean or with a mean that grows with k (Rényi). This includes heavy
        tails, whose largest elements belong to the tail. Under this null, a gap above m - k spacings has

            P(D_k / Σ_{j > k} D_j ≥ r) ≤ (1 + r)^-(m - k),

        where m is 64, or 1/64 of the number of elements if that is less. The gaps k ≤ m/2 are tested, and the p-values
        are multiplied by their number. Stored numbers are rounded, so the smallest step between numbers in the tail is
        subtracted from each gap; a step of the number format then is not a gap. The result is empty if fewer than 8
        spacings are free of ties.

        Source: A. Rényi, Acta Math. Acad. Sci. Hung. 4, 191 (1953); V. F. Pisarenko and D. Sornette, Eur. Phys. J.
            Spec. Top. 205, 95 (2012).
        """
        m, magnitude = self._tail()
        if self.without_tail():
            return np.empty(0)
        rank, gap = np.arange(1, m + 1), -np.diff(np.log(magnitude))
        below = np.cumsum((rank * gap)[::-1])[::-1] - rank * gap
        tested = slice(m // 2)
        wide = rank[tested] * np.maximum(gap[tested] - gap[gap > 0].min(), 0.0)
        below, left = below[tested], m - rank[tested]
        with np.errstate(divide="ignore"):
            log_p = np.where(wide > 0, -left * (np.log(below + wide) - np.log(below)), 0.0)
        return np.minimum(1.0, len(left) * np.exp(log_p))

    def without_tail(self) -> Reason:
        """Give the reason why the largest elements have no tail to stand apart from."""
        _, magnitude = self._tail()
        if self.count < _FEWEST * _SHARE:
            return Reason("few_elements", {"count": int(self.count), "needed": _FEWEST * _SHARE})
        if len(np.unique(magnitude[magnitude > 0])) <= _FEWEST or not magnitude[-1] > 0:
            return Reason("no_spacings")
        return Reason()

    def _tail(self) -> tuple[int, Float[np.ndarray, " element"]]:
        """Return the number of spacings in the tail, and the magnitudes between which they lie."""
        m = min(_TAIL, self.count // _SHARE, len(self.value) - 1)
        return m, np.abs(self.value[: m + 1])


def largest_elements(numbers: Shaped[np.ndarray, " number"]) -> LargestElements:
    """Find the largest of a flat array of floats, whose bits without the sign sort as their magnitudes do."""
    kind = _BITS[numbers.dtype.itemsize]
    bits = numbers.view(kind) & kind(np.iinfo(kind).max >> 1)
    count = min(_TAIL + 1, numbers.size)
    sample = bits[::_STRIDE]
    rank = min(sample.size, _RANK)
    places = np.flatnonzero(bits >= np.partition(sample, sample.size - rank)[sample.size - rank])
    if places.size < count:
        places = np.arange(numbers.size)
    if places.size > 8 * count:
        least = np.partition(bits[places], places.size - count)[places.size - count]
        places = places[bits[places] >= least]
    first = places[np.argsort(~bits[places], kind="stable")[:count]]
    return LargestElements(numbers.size, first, numbers[first].astype(np.float64))
