"""Everything that is asked of a matrix's elements, from its rows as they come: the matrix is never held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import (
    require_interval,
    require_positive_integer,
    require_positive_number,
    require_real_array,
)
from rmtbase.shown import in_one_line
from rmtbase.statistics._elements import CentralSums, ElementMoments, central_sums
from rmtbase.statistics._entropy import entropy_of_counts, kl_of_counts
from rmtbase.statistics._magnitudes import MagnitudeCounts, magnitude_counts
from rmtbase.statistics._weibull_fit import WeibullFit

_BLOCK = 1 << 20  # numbers that are widened and counted at a time


@in_one_line
@dataclass(frozen=True)
class ElementSketch:
    """What is kept of a sample of numbers: 2 MB, however many there are. Made by :func:`element_sketch`.

    Attributes:
        sums: count, mean, central power sums, smallest and largest.
        edges: of the histogram's equal bins, (bin + 1,).
        counts: how many lie in each, the last bin with its upper edge, (bin,); what lies outside is in no bin.
        magnitudes: counts of |w| in bins of equal relative width.
    """

    sums: CentralSums
    edges: Float[np.ndarray, " edge"]
    counts: Int[np.ndarray, " bin"]
    magnitudes: MagnitudeCounts

    def merged(self, other: ElementSketch) -> ElementSketch:
        """The sketch of both samples together: counts exactly, sums to rounding.

        Raises:
            ParameterError: the other's histogram has other bins.
        """
        if not np.array_equal(self.edges, other.edges):
            raise ParameterError(
                "edges", _interval(other.edges), f"those of the sketch it is merged with, {_interval(self.edges)}"
            )
        return ElementSketch(
            self.sums.merged(other.sums),
            self.edges,
            self.counts + other.counts,
            self.magnitudes.merged(other.magnitudes),
        )

    def moments(self) -> ElementMoments:
        """As :func:`element_moments` of the whole sample."""
        return self.sums.moments()

    def histogram_entropy(self) -> float:
        """As :func:`histogram_entropy` of the whole sample, in nats.

        Raises:
            ParameterError: no number lies within the range.
        """
        return entropy_of_counts(self.counts, self.edges)

    def histogram_kl(self, reference_sigma: float | None = None) -> float:
        """As :func:`histogram_kl` of the whole sample, in nats.

        Raises:
            ParameterError: no number lies within the range; a σ that is not positive and finite; all are zero.
        """
        if reference_sigma is None:
            spread = self.sums.root_mean_square
        else:
            spread = require_positive_number("reference_sigma", reference_sigma)
        if spread == 0.0:
            raise ParameterError("sample", "zeros", "numbers with a spread, to which a normal law can be fitted")
        return kl_of_counts(self.counts, self.edges, spread)

    def weibull_fit(self, trim: float | Fraction = 0.1) -> WeibullFit:
        """As :func:`weibull_fit` of the whole sample: see :meth:`MagnitudeCounts.weibull_fit`."""
        return self.magnitudes.weibull_fit(self.sums.root_mean_square, trim)


def element_sketch(blocks: Iterable[ArrayLike], bins: int, range: tuple[float, float]) -> ElementSketch:
    """The sketch of a matrix that comes in blocks of any shape, size and real dtype; a matrix is a block of its rows.

    The numbers are gathered into blocks of 2^20, so that the result does not depend, to the bit, on how they were cut:
    only on their order, and on that to rounding. Memory: 10 MB beside the block at hand.

    Args:
        blocks: the numbers, in order; one pass.
        bins: number of equal bins of the histogram.
        range: (low, high) of the histogram.

    Raises:
        ParameterError: no number at all, one that is not finite, masked entries, or a dtype that is not real; a number
            of bins that is not a positive integer; a range that is not an interval.
    """
    bins, interval = require_positive_integer("bins", bins), require_interval("range", range)
    parts = (_sketch(block, bins, interval) for block in _gathered(blocks))
    first = next(parts, None)
    if first is None:
        raise ParameterError("blocks", "no number", "at least one")
    return reduce(ElementSketch.merged, parts, first)


def _sketch(numbers: Float[np.ndarray, " number"], bins: int, interval: tuple[float, float]) -> ElementSketch:
    counts, edges = np.histogram(numbers, bins, interval)
    return ElementSketch(central_sums(numbers), edges, counts, magnitude_counts(numbers))


def _gathered(blocks: Iterable[ArrayLike]) -> Iterator[Float[np.ndarray, " number"]]:
    """The numbers of all blocks in float64 arrays of one size, the last one shorter; each valid until the next."""
    gathered, held = np.empty(_BLOCK), 0
    for block in blocks:
        numbers = require_real_array("blocks", block).reshape(-1)
        while numbers.size:
            taken = min(_BLOCK - held, numbers.size)
            gathered[held : held + taken] = numbers[:taken]
            numbers, held = numbers[taken:], held + taken
            if held == _BLOCK:
                yield _finite(gathered)
                held = 0
    if held:
        yield _finite(gathered[:held])


def _finite(numbers: Float[np.ndarray, " number"]) -> Float[np.ndarray, " number"]:
    finite = np.isfinite(numbers)
    if not finite.all():
        raise ParameterError("blocks", f"{int((~finite).sum())} numbers that are not finite", "finite numbers")
    return numbers


def _interval(edges: Float[np.ndarray, " edge"]) -> str:
    return f"{edges.size - 1} bins from {edges[0]:g} to {edges[-1]:g}"
