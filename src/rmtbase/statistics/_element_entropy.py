"""Entropy of the numbers in a sketch, and their divergence from normal laws, by cells and by kernels.

The cells have nearly equal widths. Their edges are moved to where no number can lie: to an edge of the sketch's bins,
or, for numbers stored in few bits, halfway between two values that can be stored. So rounding moves no number to
another cell, and the widths are known. Grassberger's estimator turns the counts into an entropy. Under a normal law the
divergence is then too large by less than 2.7/n, three tenths of its standard error.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from rmtbase.statistics._elements import CentralSums
from rmtbase.statistics._entropy import entropy_of_counts, log_normal_mass
from rmtbase.statistics._order_statistics import histogram, quantiles
from rmtbase.statistics._signed_bins import SignedBins

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


def cell_entropy(sums: CentralSums, bins: SignedBins) -> float:
    """Differential entropy in nats: the cross-entropy with the normal law of the same moments, minus the divergence.

    -⟨ln q⟩ − D_KL(w ‖ q), q = N(w̄, s²), in which the first term follows from the moments without any cells. So the
    width h of the cells adds neither the bias h²/(24 s²) nor the noise h/(s √(12 n)) of -Σ p ln(p/h), which exceeds the
    standard error under the normal law, some 10/n.
    """
    n, spread = sums.count, sums.moments().std
    return (
        0.5 * math.log(2.0 * math.pi)
        + math.log(spread)
        + 0.5 * (n - 1) / n
        - cell_divergence(sums, bins, sums.mean, spread)
    )


def cell_divergence(sums: CentralSums, bins: SignedBins, location: float, scale: float) -> float:
    """D_KL(w ‖ N(location, scale²)) in nats, Σ p ln(p/q) over cells, q their masses under the normal law.

    The width h of the cells is max(3.49 n^(-1/3), 1/16) spreads, the spread min(s, interquartile range/1.349). It
    reduces the divergence by h²/24 ∫ p (ln(p/q))'², which vanishes where p is q. One cell lies about the centre: the
    mean, or the median if the mean is not in the middle half of the numbers. An outermost cell ends at the sample's
    extreme if it holds so many numbers that the law must end there.

    Σ p ln p from counts N is Σ N G(N)/n − ln n, G(N) = ψ(N) + (−1)^N (ψ((N + 1)/2) − ψ(N/2))/2 for N < 16. For a
    Poisson count of mean μ, ⟨N ψ(N)⟩ = μ (ln μ + E₁(μ)). The second term cancels the E₁ part, which matters at small μ;
    at larger μ it would only be noise of ±1/2.

    Source: P. Grassberger, arXiv:physics/0307138 (2003).
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
    """Differential entropy of a usual histogram, with 100 equal bins over the sample's range, without bias correction.

    -Σ p ln(p/width). Its bias is about (bin width)²/(24 s²) − (occupied bins − 1)/(2n) for a normal law.
    """
    edges = np.linspace(sums.smallest, sums.largest, _HISTOGRAM_BINS + 1)
    return entropy_of_counts(histogram(bins, edges), edges)


def kernel_entropy(sums: CentralSums, bins: SignedBins) -> float:
    """Differential entropy -∫ p̂ ln p̂ of ``scipy.stats.gaussian_kde`` with its default bandwidth, Scott's s n^(-1/5).

    The counts are spread over a grid whose step is at most a sixteenth of the bandwidth, and convolved by Fourier
    transform; the variance added by the grid is subtracted from the kernel's. The result agrees with the integral over
    SciPy's density to 1e-6. Its bias is about n^(-2/5)/2 for a normal law.
    """
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
