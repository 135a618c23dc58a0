"""Entropy of numbers and their divergence from normal laws: by histograms, nearest neighbours, cells and kernels.

Edges of the sketch's cells lie where no number can be, so rounding moves none and widths are known. Under a normal law
the divergence is too large by less than 2.7/n, three tenths of its standard error.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import special

from rmtbase import parameters
from rmtbase.errors import ParameterError
from rmtbase.statistics._elements import CentralSums
from rmtbase.statistics._order_statistics import histogram, quantiles
from rmtbase.statistics._signed_bins import SignedBins

_NARROW = 1e-6  # width of a bin, in standard deviations, within which the density hardly changes
_NARROWEST = 1.0 / 16.0  # width of a cell, in spreads: several steps of bfloat16
_SCOTT = 3.49  # width of a cell, in spreads, times n^(1/3): D. W. Scott, Biometrika 66, 605 (1979)
_NORMAL_IQR = 1.3489795003921634
_MOST_CELLS = 1 << 12  # of equal width, on either side of the mean
_OUTER = 256  # cells per octave farther out
_FEW = 16  # numbers in a cell
_HISTOGRAM_BINS = 100
_PER_BANDWIDTH = 16  # points of the kernel's grid
_REACH = 9.0  # bandwidths of the kernel
_LONGEST_GRID = 1 << 22

Bins = Float[np.ndarray, " bin"]
Counts = Int[np.ndarray, " bin"]
Interval = tuple[float, float]
Edges = Float[np.ndarray, " edge"]


def histogram_entropy(sample: ArrayLike, bins: int, range: tuple[float, float]) -> float:
    """Differential entropy -Σ p_b ln(p_b/width) in nats, p_b the shares in ``bins`` equal bins over ``range``.

    The shares are relative to the numbers within the range, as in ``numpy.histogram(..., density=True)``. The bias is
    about -(occupied bins - 1)/(2n) for n independent numbers; :func:`rmtbase.laws.histogram_entropy` is the null for
    W_QK.

    Args:
        sample: finite numbers of any shape, pooled.
        bins: number of bins.
        range: (low, high).

    Raises:
        ParameterError: the sample is empty, not real, masked, not finite or wholly outside the range; the number of
            bins is not a positive integer; or the range is not an interval.
    """
    limits = parameters.require_interval("range", range)
    return entropy_of_counts(*np.histogram(_pooled(sample), parameters.require_bins(bins), limits))


def histogram_kl(sample: ArrayLike, bins: int, range: Interval, reference_sigma: float | None = None) -> float:
    """D_KL(sample ‖ N(0, reference_sigma²)) in nats, both binned: Σ p_b ln(p_b/q_b) ≥ 0.

    p_b are the shares of the numbers in ``bins`` equal bins over ``range``, and q_b the shares of the normal law, both
    relative to the range. q_b is the integral over the bin, not the density at its centre, so that binning by itself
    adds nothing. The bias is about (occupied bins - 1)/(2n) for n independent numbers, and smaller by 1/(2n) at a
    fitted σ; :func:`rmtbase.laws.histogram_kl` is the null for W_QK.

    Args:
        sample: finite numbers of any shape, pooled.
        bins: number of bins.
        range: (low, high).
        reference_sigma: standard deviation of the normal law; None for the root mean square of the sample, its maximum
            likelihood value.

    Raises:
        ParameterError: as :func:`histogram_entropy`; also if σ is not positive and finite, or the sample is all zeros.
    """
    x = _pooled(sample)
    counts, edges = np.histogram(x, parameters.require_bins(bins), parameters.require_interval("range", range))
    return kl_of_counts(counts, edges, _spread(x, reference_sigma))


def entropy_of_counts(counts: Counts, edges: Edges) -> float:
    shares = _shares(counts, edges)
    return float(special.entr(shares).sum() + math.log(edges[1] - edges[0]))


def kl_of_counts(counts: Counts, edges: Edges, sigma: float) -> float:
    shares = _shares(counts, edges)
    log_normal = log_normal_mass(edges[:-1] / sigma, edges[1:] / sigma, np.diff(edges) / sigma)
    log_normal = log_normal - np.logaddexp.reduce(log_normal)
    occupied = shares > 0.0  # an empty bin counts nothing, even if the normal law's mass underflows
    return float(np.sum(special.xlogy(shares, shares)[occupied] - shares[occupied] * log_normal[occupied]))


def nearest_neighbour_entropy(sample: ArrayLike, k: int = 1) -> float:
    """Differential entropy in nats by the distances ρ_i to the k-th nearest neighbour: Σ ln(2 ρ_i)/n + ψ(n) - ψ(k).

    Asymptotically unbiased for n independent numbers. It is -inf if more than k numbers coincide (as numbers stored in
    few bits do), because such a sample has no density. :func:`rmtbase.laws.nearest_neighbour_entropy` is the null for
    W_QK.

    Args:
        sample: finite numbers of any shape, pooled.
        k: rank of the neighbour, less than the size of the sample.

    Raises:
        ParameterError: the sample is not real, masked, not finite or has no k-th neighbours; or k is not a positive
            integer.

    Source: L. F. Kozachenko and N. N. Leonenko, Probl. Inf. Transm. 23, 95 (1987).
    """
    x, k = np.sort(_pooled(sample)), parameters.require_positive_integer("k", k)
    n = x.size
    if k >= n:
        raise ParameterError("k", k, f"less than the number of elements, {n}")
    # The k nearest to x_i are j below it and k - j above it, with the j whose farther end is nearest to x_i.
    padded = np.concatenate([np.full(k, -np.inf), x, np.full(k, np.inf)])
    distance = np.full(n, np.inf)
    for j in np.arange(k + 1):
        below, above = padded[k - j : k - j + n], padded[2 * k - j : 2 * k - j + n]
        np.minimum(distance, np.maximum(x - below, above - x), out=distance)
    with np.errstate(divide="ignore"):  # coinciding numbers give an infinity
        return float(np.mean(np.log(2.0 * distance)) + special.digamma(n) - special.digamma(k))


def nearest_neighbour_kl(sample: ArrayLike, k: int = 1, reference_sigma: float | None = None) -> float:
    """D_KL(sample ‖ N(0, s²)) in nats, s = reference_sigma: the cross-entropy minus :func:`nearest_neighbour_entropy`.

    ln(2π s²)/2 + Σ x²/(2 n s²) - entropy; it can be negative. Arguments and errors are those of
    :func:`nearest_neighbour_entropy` and :func:`histogram_kl`; :func:`rmtbase.laws.nearest_neighbour_kl` is the null.
    """
    x = _pooled(sample)
    spread = _spread(x, reference_sigma)
    cross_entropy = 0.5 * math.log(2.0 * math.pi) + math.log(spread) + 0.5 * float(np.mean((x / spread) ** 2))
    return cross_entropy - nearest_neighbour_entropy(x, k)


def _pooled(sample: ArrayLike) -> Float[np.ndarray, " number"]:
    x = parameters.require_real_numbers("sample", sample).reshape(-1)
    if x.size == 0 or not np.isfinite(x).all():
        finite = np.isfinite(x).sum()
        raise ParameterError("sample", f"{x.size} numbers, {finite} finite", "finite numbers, at least one")
    return x


def _shares(counts: Counts, edges: Edges) -> Bins:
    if not counts.any():
        raise ParameterError("range", (edges[0], edges[-1]), "an interval that holds some of the sample")
    return counts / counts.sum()


def _spread(x: Float[np.ndarray, " number"], reference_sigma: float | None) -> float:
    if reference_sigma is not None:
        return parameters.require_positive_number("reference_sigma", reference_sigma)
    largest = float(np.abs(x).max())
    if largest == 0.0:
        raise ParameterError("sample", "zeros", "numbers with a spread, to which a normal law can be fitted")
    return largest * math.sqrt(np.mean((x / largest) ** 2))


def log_normal_mass(low: Bins, high: Bins, width: Bins) -> Bins:
    """ln of the mass of N(0, 1) between low and high, also in far tails; high - low would lose digits of the width."""
    flip = low > 0.0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    narrow = width < _NARROW
    larger = special.log_ndtr(high)
    beyond = larger == -np.inf  # so far out that the logarithm overflows
    share = np.where(narrow | beyond, 1.0, -np.expm1(special.log_ndtr(low) - np.where(beyond, 0.0, larger)))
    with np.errstate(over="ignore"):
        density = -0.5 * ((0.5 * (low + high)) ** 2 + math.log(2.0 * math.pi))
    return np.where(narrow, np.log(width) + density, larger + np.log(share))


def cell_entropy(sums: CentralSums, bins: SignedBins) -> float:
    """Entropy -⟨ln q⟩ − D_KL(w ‖ q) in nats, q = N(w̄, s²); the first term needs no cells, nor their width."""
    n, spread = sums.count, sums.moments().std
    cross_entropy = 0.5 * math.log(2.0 * math.pi) + math.log(spread) + 0.5 * (n - 1) / n
    return cross_entropy - cell_divergence(sums, bins, sums.mean, spread)


def cell_divergence(sums: CentralSums, bins: SignedBins, location: float, scale: float) -> float:
    """D_KL(w ‖ N(location, scale²)) in nats, Σ p ln(p/q) over cells, q their masses: P. Grassberger, physics/0307138.

    Cells of max(3.49 n^(-1/3), 1/16) spreads, min(s, interquartile range/1.349), reduce it by h²/24 ∫ p (ln(p/q))'²,
    which vanishes where p is q. One lies about the mean, or about the median if the mean is not in the middle half; an
    outermost one that holds many numbers ends at the sample's extreme, where the law must end.

    Σ p ln p is Σ N G(N)/n − ln n, G(N) = ψ(N) + (−1)^N (ψ((N + 1)/2) − ψ(N/2))/2 for N < 16. Of a Poisson count of mean
    μ, ⟨N ψ(N)⟩ = μ (ln μ + E₁(μ)); the second term cancels E₁, and would only be noise of ±1/2 at larger μ.
    """
    n, lower, median, upper = sums.count, *quantiles(bins, (0.25, 0.5, 0.75)).tolist()
    centre = sums.mean if lower <= sums.mean <= upper else median
    spread = math.sqrt(sums.square / (n - 1))
    if upper > lower:
        spread = min(spread, (upper - lower) / _NORMAL_IQR)
    width = spread * max(_SCOTT * n ** (-1.0 / 3.0), _NARROWEST)
    first, last = ((end - centre) / width for end in (sums.smallest, sums.largest))
    places = np.arange(int(max(first, -_MOST_CELLS)) - 1, int(min(last, _MOST_CELLS)) + 3) - 0.5
    reach = max(last, -first) / _MOST_CELLS
    if reach > 1.0:
        outer = (_MOST_CELLS + 3) * 2.0 ** np.arange(0.0, math.log2(reach) + 2.0 / _OUTER, 1.0 / _OUTER)
        places = np.concatenate([-outer, places, outer])
    edges = np.unique(bins.between(centre + places * width))
    count = np.bincount(np.searchsorted(edges[1:-1], bins.mean, side="right"), bins.count, edges.size - 1)
    occupied = np.flatnonzero(count)
    count, low, high = count[occupied].astype(np.int64), edges[occupied], edges[occupied + 1]
    if count[0] >= _FEW:
        low[0] = max(low[0], sums.smallest)
    if count[-1] >= _FEW:
        high[-1] = min(high[-1], sums.largest)
    few, total = np.minimum(count, _FEW), count.sum()
    parity = np.where(count < _FEW, 0.5 - (few % 2), 0.0)
    g = special.digamma(count) + parity * (special.digamma((few + 1) / 2) - special.digamma(few / 2))
    log_mass = log_normal_mass((low - location) / scale, (high - location) / scale, (high - low) / scale)
    return -(math.log(total) - float(count @ g) / total) - float((count / total) @ log_mass)


def range_histogram_entropy(sums: CentralSums, bins: SignedBins) -> float:
    """Entropy -Σ p ln(p/width) of 100 equal bins over the range, biased by (width)²/(24 s²) − (occupied − 1)/(2n)."""
    edges = np.linspace(sums.smallest, sums.largest, _HISTOGRAM_BINS + 1)
    return entropy_of_counts(histogram(bins, edges), edges)


def kernel_entropy(sums: CentralSums, bins: SignedBins) -> float:
    """Entropy of ``scipy.stats.gaussian_kde`` with Scott's bandwidth s n^(-1/5), by Fourier transform, to 1e-6."""
    n = sums.count
    bandwidth = math.sqrt(sums.square / (n - 1)) * n**-0.2
    low, reach = sums.smallest - _REACH * bandwidth, sums.largest - sums.smallest + 2 * _REACH * bandwidth
    points = min(1 << math.ceil(math.log2(reach / bandwidth * _PER_BANDWIDTH)), _LONGEST_GRID)
    step = reach / points
    place = (bins.mean - low) / step
    below = np.floor(place).astype(np.int64)
    above = place - below
    mass = np.bincount(below, bins.count * (1.0 - above), points) + np.bincount(below + 1, bins.count * above, points)
    frequency = 2.0 * math.pi * np.arange(points // 2 + 1) / reach
    kernel = np.exp(-0.5 * max(bandwidth**2 - step**2 / 6.0, 0.0) * frequency**2)
    share = np.maximum(np.fft.irfft(np.fft.rfft(mass / n) * kernel, points), 0.0)
    return float(special.entr(share).sum() + math.log(step))
