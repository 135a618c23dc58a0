"""Quantiles, histograms, L-moments and normal plot of :class:`SignedBins`, a bin's numbers taken as equally spaced."""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import special

from rmtbase.errors import ParameterError
from rmtbase.statistics._signed_bins import SignedBins
from rmtbase.statistics._weibull_fit import trimmed_ranks


class LMoments(NamedTuple):
    """First four L-moments, in the units of the numbers: J. R. M. Hosking, J. R. Stat. Soc. B 52, 105 (1990)."""

    location: float
    scale: float
    third: float
    fourth: float


class NormalPlot(NamedTuple):
    location: float
    scale: float


def quantiles(bins: SignedBins, probability: ArrayLike) -> Float[np.ndarray, "..."]:
    last = int(bins.end[-1]) - 1
    place = last * np.asarray(probability, dtype=np.float64)
    below = np.floor(place).astype(np.int64)
    rank = np.stack([below, np.minimum(below + 1, last)])
    bin_of = np.searchsorted(bins.end, rank, side="right")
    count = bins.count[bin_of]
    within = rank - (bins.end[bin_of] - count) - 0.5 * (count - 1)
    low, high = bins.mean[bin_of] + bins.unrounded_spacing[bin_of] * within
    return low + (place - below) * (high - low)


def histogram(bins: SignedBins, edges: Float[np.ndarray, " edge"]) -> Float[np.ndarray, " interval"]:
    """Count the numbers from edge to edge, the last included; a bin that an edge cuts is spread without gaps."""
    width = bins.count * bins.unrounded_spacing
    width[bins.count == 1] = 0.0
    low, high = bins.mean - width / 2.0, bins.mean + width / 2.0
    edges = np.append(edges[:-1], np.nextafter(edges[-1], np.inf))
    place = np.searchsorted(high, edges)  # of the first bin that does not end before the edge
    below = np.append(0, bins.end)[place]
    cut = np.minimum(place, width.size - 1)
    inside = (place < width.size) & (low[cut] < edges)
    part = np.divide(edges - low[cut], width[cut], out=np.zeros(edges.size), where=inside)
    return np.diff(below + part * bins.count[cut])


def l_moments(bins: SignedBins) -> LMoments:
    """Unbiased L-moments, by b_r = Σ_i C(i − 1, r) w_(i) / (n C(n − 1, r)), with sums over a bin in closed form."""
    n = int(bins.end[-1])
    if n < 4:
        raise ParameterError("sample", f"{n} numbers", "at least four")
    count = bins.count.astype(float)
    origin = float(bins.count @ bins.mean) / n
    w, spacing = bins.mean - origin, bins.spacing
    second = (count**2 - 1.0) / 12.0  # mean square and mean fourth power of the ranks about their mean
    fourth = second * (3.0 * count**2 - 7.0) / 20.0
    j = bins.end - 0.5 * (count + 1.0)  # the mean of i - 1
    weight = [
        (1.0, 0.0),
        (j, second),
        (j * (j - 1.0) + second, second * (2.0 * j - 1.0)),
        (j * (j - 1.0) * (j - 2.0) + 3.0 * (j - 1.0) * second, second * (3.0 * j**2 - 6.0 * j + 2.0) + fourth),
    ]
    b0, b1, b2, b3 = (
        float(count @ (level * w + slope * spacing)) / (n * math.perm(n - 1, r))
        for r, (level, slope) in enumerate(weight)
    )
    return LMoments(origin + b0, 2.0 * b1 - b0, 6.0 * b2 - 6.0 * b1 + b0, 20.0 * b3 - 30.0 * b2 + 12.0 * b1 - b0)


def normal_plot(bins: SignedBins, trim: Fraction = Fraction(1, 10)) -> NormalPlot:
    """Fit w_(i) to Φ⁻¹(p_i) by least squares, p_i = (i − 1/2)/n, over the i with t ≤ p_i ≤ 1 − t."""
    n = int(bins.end[-1])
    dropped = trimmed_ranks(n, trim)
    if dropped == 0:
        raise ParameterError("sample", f"{n} numbers", f"so many that some are beyond the trims of {float(trim):g}")
    first = bins.end - bins.count
    low, high = np.clip(first, dropped, n - dropped), np.clip(bins.end, dropped, n - dropped)
    number = (high - low).astype(float)
    w = bins.mean + 0.5 * (low + high - first - bins.end) * bins.spacing
    w_mean = float(number @ w) / number.sum()
    # Σ Φ⁻¹(p_i) and Σ Φ⁻¹(p_i)² from the integrals -φ and Φ − z φ at z = Φ⁻¹(p), by the Euler–Maclaurin formula.
    z = special.ndtri(np.append(low, high[-1]) / n)
    height = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    z_sum = np.diff(-n * height - 1.0 / (24.0 * n * height))
    z_squared = float(number.sum() - 2.0 * n * z[-1] * height[-1] - z[-1] / (6.0 * n * height[-1]))
    slope = 0.5 * (1.0 / height[1:] + 1.0 / height[:-1]) / n  # derivative of z with respect to the rank
    within = number * (number**2 - 1.0) / 12.0 * slope * bins.spacing
    return NormalPlot(w_mean, float(z_sum @ (w - w_mean) + within.sum()) / z_squared)
