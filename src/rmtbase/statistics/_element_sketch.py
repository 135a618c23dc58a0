"""Sketch of a matrix's elements, made from its rows one block at a time, from which all element statistics follow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike

from rmtbase import parameters
from rmtbase.errors import ParameterError
from rmtbase.shown import in_one_line
from rmtbase.statistics._elements import CentralSums, ElementMoments, span_sums
from rmtbase.statistics._entropy import cell_divergence, cell_entropy, kernel_entropy, range_histogram_entropy
from rmtbase.statistics._order_statistics import LMoments, NormalPlot, histogram, l_moments, normal_plot, quantiles
from rmtbase.statistics._signed_bins import SignedBins, signed_bins
from rmtbase.statistics._weibull_fit import (
    WeibullFit,
    WeibullLikelihoodFit,
    weibull_fit_of_bins,
    weibull_likelihood_of_bins,
)

_SPAN = 1 << 21  # numbers that are summed and counted at a time


@in_one_line
@dataclass(frozen=True)
class ElementSketch:
    """Sketch of a sample of numbers, a few MB whatever the size of the sample. Made by :func:`element_sketch`."""

    sums: CentralSums  #: count, mean, central power sums, smallest and largest
    bins: SignedBins  #: counts in signed bins of equal relative width, 1024 an octave

    def merged(self, other: ElementSketch) -> ElementSketch:
        return ElementSketch(self.sums.merged(other.sums), self.bins.merged(other.bins))

    @property
    def count(self) -> int:
        return self.sums.count

    @property
    def largest_magnitude(self) -> float:
        """max |w|."""
        return max(abs(self.sums.smallest), abs(self.sums.largest))

    @cached_property
    def levels(self) -> int:
        """Number of different values in the middle half of the numbers, as far as the bins resolve them.

        A bin in which numbers differ counts as its number of numbers, or twelve if it holds more.
        """
        low, high = self.quantile((0.25, 0.75))
        middle = (self.bins.mean >= low) & (self.bins.mean <= high)
        return int(np.where(self.bins.tied, 1, np.minimum(self.bins.count, 12))[middle].sum())

    @cached_property
    def equal(self) -> int:
        """Largest count among the bins in which nearly all numbers are equal."""
        close = self.bins.variance < self.bins.width**2 / 120.0
        return int(np.max(self.bins.count, where=close, initial=0))

    @cached_property
    def unexplained_zeros(self) -> bool:
        """True if there are more zeros than rounding of the numbers near zero explains.

        Rounding to multiples of the smallest magnitude m makes one zero for every sixteen numbers up to 8 m.
        """
        magnitudes = self.bins.magnitudes
        if magnitudes.number[0] != 0 or magnitudes.number.size == 1:
            return self.bins.zeros > 0
        near = magnitudes.mean[1:] <= 8.0 * magnitudes.mean[1]
        expected = magnitudes.count[1:][near].sum() / 16.0
        return bool(magnitudes.count[0] > expected + 5.0 * math.sqrt(expected + 1.0))

    def moments(self) -> ElementMoments:
        return self.sums.moments()

    def quantile(self, probability: ArrayLike) -> Float[np.ndarray, "..."]:
        """Quantiles, as ``numpy.quantile`` of the whole sample, to 2^-10 of the value or better."""
        return quantiles(self.bins, parameters.require_probabilities("probability", probability))

    def magnitude_quantile(self, probability: ArrayLike) -> Float[np.ndarray, "..."]:
        return quantiles(self.bins.magnitudes, parameters.require_probabilities("probability", probability))

    def histogram(self, edges: ArrayLike) -> Float[np.ndarray, " bin"]:
        """Count the numbers between edges, as ``numpy.histogram`` does; the counts may be fractional.

        If an edge cuts a bin of the sketch, its numbers are taken as evenly spread about their mean, with their
        variance. Numbers of half precision are spread over the interval that is rounded to them, so that the histogram
        shows no comb.

        Raises:
            ParameterError: the edges are not two or more ascending numbers.
        """
        ends = parameters.require_finite_numbers("edges", edges)
        if ends.ndim != 1 or ends.size < 2 or not (np.diff(ends) > 0).all():
            raise ParameterError("edges", edges, "two or more ascending numbers")
        return histogram(self.bins, ends)

    def weibull_fit(self, trim: float | Fraction = 0.1) -> WeibullFit:
        """Fit the Weibull law, as :func:`weibull_fit` of the whole sample; see :func:`weibull_fit_of_bins`."""
        return weibull_fit_of_bins(self.bins, self.sums.root_mean_square, trim)

    @cached_property
    def l_moments(self) -> LMoments:
        """L-moments of the numbers; a :class:`ParameterError` if there are fewer than four."""
        return l_moments(self.bins)

    @cached_property
    def magnitude_l_moments(self) -> LMoments:
        return l_moments(self.bins.magnitudes)

    @cached_property
    def core(self) -> NormalPlot:
        """Normal law of the core, by least squares on the normal probability plot of the middle 80 %."""
        return normal_plot(self.bins)

    @cached_property
    def body(self) -> WeibullFit:
        """Weibull law of the body: trim 0.1, numbers of half precision spread over the interval rounded to them."""
        return weibull_fit_of_bins(self.bins.positive, self.sums.root_mean_square, 0.1, unrounded=True)

    @cached_property
    def whole(self) -> WeibullFit:
        return weibull_fit_of_bins(self.bins.positive, self.sums.root_mean_square, 0.0, unrounded=True)

    @cached_property
    def weibull_likelihood_fit(self) -> WeibullLikelihoodFit:
        """Maximum likelihood fit; zeros are replaced by a typical value of the numbers that are rounded to zero."""
        return weibull_likelihood_of_bins(self.bins.positive)

    def entropy(self) -> float:
        """Differential entropy in nats, corrected for bias. A :class:`ParameterError` if all numbers are equal."""
        return cell_entropy(self._spread_sums, self.bins)

    def histogram_entropy(self) -> float:
        """Differential entropy in nats of a histogram of 100 bins over the sample's range."""
        return range_histogram_entropy(self._spread_sums, self.bins)

    def kernel_entropy(self) -> float:
        """Differential entropy in nats of a Gaussian kernel density estimate with Scott's bandwidth."""
        return kernel_entropy(self._spread_sums, self.bins)

    def kl_to_normal(self, location: float, scale: float) -> float:
        """D_KL(w ‖ N(location, scale²)) in nats, corrected for the bias of counting."""
        centre = parameters.require_finite_number("location", location)
        return cell_divergence(self._spread_sums, self.bins, centre, parameters.require_positive_number("scale", scale))

    def matched_entropy(self) -> float:
        """½ ln(2πe s²), the entropy of the normal law with the same standard deviation."""
        return 0.5 * math.log(2.0 * math.pi * math.e) + math.log(self.moments().std)

    @property
    def _spread_sums(self) -> CentralSums:
        if self.moments().std == 0.0:
            raise ParameterError("sample", "numbers that are all equal", "numbers with a spread")
        return self.sums


def element_sketch(blocks: Iterable[ArrayLike]) -> ElementSketch:
    """Sketch a matrix that comes in blocks of any shape, size and real dtype; iterating over a matrix gives its rows.

    The numbers are gathered in their own dtype into spans of 2^21: the result does not depend, to the bit, on the
    division into blocks, and on the order of the numbers only to rounding. The moments equal those of
    :func:`element_moments` of the whole to the bit, unless the dtype changes from block to block. Memory: 70 MB in
    addition to the current block.

    Args:
        blocks: the numbers, in order; read once.

    Raises:
        ParameterError: there are no numbers, or some are not finite or masked; a dtype is not real; or fourth powers
            exceed float64.
    """
    sketch: ElementSketch | None = None
    for span in _spans(blocks):
        bins = signed_bins(span)
        if bins.not_finite:
            raise ParameterError("blocks", f"{bins.not_finite} numbers that are not finite", "finite numbers")
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            part = ElementSketch(span_sums(span), bins)
            sketch = part if sketch is None else sketch.merged(part)
    if sketch is None:
        raise ParameterError("blocks", "no number", "at least one")
    if not sketch.sums.has_sound_powers:
        span = f"numbers from {sketch.sums.smallest:g} to {sketch.sums.largest:g}"
        raise ParameterError("blocks", span, "numbers whose fourth powers float64 can hold: rescale them")
    return sketch


def _spans(blocks: Iterable[ArrayLike]) -> Iterator[Shaped[np.ndarray, " number"]]:
    """Yield the numbers of all blocks in arrays of one size (the last of a dtype is shorter), valid until the next."""
    pending: list[Shaped[np.ndarray, " number"]] = []
    size = 0
    for block in blocks:
        numbers = parameters.require_real_array("blocks", block).reshape(-1)
        if pending and numbers.dtype != pending[0].dtype:
            yield np.concatenate(pending)
            pending, size = [], 0
        while size + numbers.size >= _SPAN:
            part, numbers = numbers[: _SPAN - size], numbers[_SPAN - size :]
            yield np.concatenate([*pending, part]) if pending else part
            pending, size = [], 0
        if numbers.size:
            pending.append(numbers.copy())  # the caller may reuse the memory of its blocks
            size += numbers.size
    if pending:
        yield np.concatenate(pending)
