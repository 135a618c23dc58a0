"""Entropy of a sample of numbers, and its divergence from the normal law, by histogram and by nearest neighbours."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import special

from rmtbase.errors import ParameterError
from rmtbase.parameters import (
    require_bins,
    require_interval,
    require_positive_integer,
    require_positive_number,
    require_real_numbers,
)

_NARROW = 1e-6  # width of a bin, in standard deviations, within which the density hardly changes


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
    return entropy_of_counts(*_histogram(_pooled(sample), bins, range))


def histogram_kl(
    sample: ArrayLike, bins: int, range: tuple[float, float], reference_sigma: float | None = None
) -> float:
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
    counts, edges = _histogram(x, bins, range)
    return kl_of_counts(counts, edges, _spread(x, reference_sigma))


def entropy_of_counts(counts: Int[np.ndarray, " bin"], edges: Float[np.ndarray, " edge"]) -> float:
    shares = _shares(counts, edges)
    return float(special.entr(shares).sum() + math.log(edges[1] - edges[0]))


def kl_of_counts(counts: Int[np.ndarray, " bin"], edges: Float[np.ndarray, " edge"], sigma: float) -> float:
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
    x, k = np.sort(_pooled(sample)), require_positive_integer("k", k)
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
    x = require_real_numbers("sample", sample).reshape(-1)
    if x.size == 0 or not np.isfinite(x).all():
        raise ParameterError(
            "sample", f"{x.size} numbers, {np.isfinite(x).sum()} finite", "finite numbers, at least one"
        )
    return x


def _histogram(
    x: Float[np.ndarray, " number"], bins: int, interval: tuple[float, float]
) -> tuple[Int[np.ndarray, " bin"], Float[np.ndarray, " edge"]]:
    low, high = require_interval("range", interval)
    return np.histogram(x, require_bins(bins), (low, high))


def _shares(counts: Int[np.ndarray, " bin"], edges: Float[np.ndarray, " edge"]) -> Float[np.ndarray, " bin"]:
    if not counts.any():
        raise ParameterError("range", (edges[0], edges[-1]), "an interval that holds some of the sample")
    return counts / counts.sum()


def _spread(x: Float[np.ndarray, " number"], reference_sigma: float | None) -> float:
    if reference_sigma is not None:
        return require_positive_number("reference_sigma", reference_sigma)
    largest = float(np.abs(x).max())
    if largest == 0.0:
        raise ParameterError("sample", "zeros", "numbers with a spread, to which a normal law can be fitted")
    return largest * math.sqrt(np.mean((x / largest) ** 2))


def log_normal_mass(
    low: Float[np.ndarray, " bin"], high: Float[np.ndarray, " bin"], width: Float[np.ndarray, " bin"]
) -> Float[np.ndarray, " bin"]:
    """ln of the mass of N(0, 1) between low and high, finite far into the tails and for the narrowest bins.

    The width is given separately, because high - low loses digits far from the centre.
    """
    flip = low > 0.0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    narrow = width < _NARROW
    larger = special.log_ndtr(high)
    beyond = larger == -np.inf  # so far out that the logarithm overflows
    share = np.where(narrow | beyond, 1.0, -np.expm1(special.log_ndtr(low) - np.where(beyond, 0.0, larger)))
    with np.errstate(over="ignore"):
        density = -0.5 * ((0.5 * (low + high)) ** 2 + math.log(2.0 * math.pi))
    return np.where(narrow, np.log(width) + density, larger + np.log(share))
