"""Mean and spread of histogram estimates of entropy and divergence from the elements of one W_QK."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
import scipy
from scipy import special

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray, Moments
from rmtbase.laws._element._product_element import ProductElement, chi_square_rule, product_element
from rmtbase.laws._parameters import ProductKeywords, takes
from rmtbase.parameters import require_interval, require_positive_integer, require_positive_number

_METHOD = "second-order delta method on exact covariances; error is an estimate of the neglected terms"
_FEW = 60.0  # expected count below which the expectation of n ln n is summed exactly
_MOST = 200  # a count that such a bin never exceeds
_MOST_BINS = 10_000  # whose covariances take 800 MB
_NEVER = 1e-9  # expected count below which a bin is taken as empty


@takes(ProductKeywords)
def histogram_entropy(
    d_model: int, d_head: int, bins: int, range: tuple[float, float], **scale: Unpack[ProductKeywords]
) -> Moments:
    """Return mean and standard deviation of the histogram entropy of the N = d_model² elements of one W_QK.

    The estimate is :func:`rmtbase.statistics.histogram_entropy`, -Σ p ln(p/width) with p the fractions of the elements
    within ``range``, (low, high), in ``bins`` equal bins. Its mean is the entropy of the law, plus the effects of
    binning (width²/(24 variance)) and of the cut, minus (occupied bins - 1)/(2N) (Miller 1955), minus the effect of the
    dependence, about 1/(d_model d_head). Its standard deviation is near √((1/2 + d_model/d_head)/N); for independent
    elements it would be √(1/(2N)).

    Means, variances and covariances of the counts are exact (as in :func:`element_average`), and so is the expectation
    of n ln n for a binomial count n. ``error`` and ``std_error`` are the next orders of the dependence and the spread.

    Raises:
        ParameterError: as :func:`rmtbase.laws.low_rank_product`, and for a number of bins that is not a positive
            integer or a range that is not an interval or holds no elements.
    """
    law = product_element(d_model, d_head, **scale)
    low, high = require_interval("range", range)
    cells = _Cells(law, d_model, np.linspace(low, high, require_positive_integer("bins", bins, _MOST_BINS) + 1))
    # -Σ p ln(p/width) is ln(high - low) minus the divergence of p from the uniform law.
    divergence = cells.divergence(np.full((3, cells.share.size), [[-math.log(bins)], [0.0], [0.0]]))
    return Moments(
        math.log(high - low) - divergence.mean, divergence.std, _METHOD, divergence.error, divergence.std_error
    )


@takes(ProductKeywords)
def histogram_kl(
    d_model: int,
    d_head: int,
    bins: int,
    range: tuple[float, float],
    reference_sigma: float | None = None,
    **scale: Unpack[ProductKeywords],
) -> Moments:
    """Return mean and standard deviation of the histogram estimate of D_KL(w ‖ normal) from one W_QK.

    The estimate is :func:`rmtbase.statistics.histogram_kl`, Σ p ln(p/q) with p the fractions of the elements within
    ``range`` in ``bins`` equal bins, and q the probabilities of these bins under N(0, reference_sigma²). If
    ``reference_sigma`` is None, σ is fitted: it is the root mean square of the same elements. The mean of the estimate
    is the divergence of the binned law, plus (occupied bins - 1)/(2N), minus 1/(2N) if σ is fitted, plus the effect of
    the dependence between elements. That effect is 1/(d_model d_head) at a given σ, and nearly zero at a fitted σ,
    which follows the width of the density of the matrix.

    Accuracy, arguments and errors as for :func:`histogram_entropy`; ``reference_sigma`` must be positive and finite.
    """
    law = product_element(d_model, d_head, **scale)
    edges = np.linspace(*require_interval("range", range), require_positive_integer("bins", bins, _MOST_BINS) + 1)
    cells = _Cells(law, d_model, edges)
    if reference_sigma is None:
        return cells.divergence(_log_normal_shares(edges / law.std())[:, cells.kept])
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = require_positive_number("reference_sigma", reference_sigma)
        reference = _log_normal_shares(edges / spread)[:, cells.kept]
    if not np.isfinite(reference).all():
        raise ParameterError("reference_sigma", reference_sigma, "less: the normal law is flat over a bin")
    return cells.divergence(reference * [[1.0], [0.0], [0.0]])


class _Cells:
    """Fractions of the elements of one matrix in the bins, and their mean square: means and exact covariances."""

    def __init__(self, law: ProductElement, d_model: int, edges: FloatArray) -> None:
        v, weights = chi_square_rule(law.d_head)
        u = edges / (law.std() * np.exp(0.5 * v[:, None]))
        # P(low < z < high) for a standard normal z, without cancellation in the right tail.
        low, high = u[:, :-1], u[:, 1:]
        flip = low > 0.0
        given_row = special.ndtr(np.where(flip, -low, high)) - special.ndtr(np.where(flip, -high, low))
        density = np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
        square_given_row = np.exp(v[:, None]) * (given_row - np.diff(u * density))
        # Bins that can be occupied; the other attributes are for these. ``share`` is P(w in bin).
        self.kept = d_model**2 * (weights @ given_row) > _NEVER
        if not self.kept.any():
            raise ParameterError("range", (edges[0], edges[-1]), "an interval that holds elements of the matrix")
        given_row, square_given_row = given_row[:, self.kept], square_given_row[:, self.kept]
        self.count, self.share = d_model**2, weights @ given_row
        conditional = np.column_stack([given_row - self.share, np.expm1(v)])
        weighted = conditional * weights[:, None]
        covariance = np.zeros((self.share.size + 1,) * 2)
        covariance[:-1, :-1] = np.diag(self.share) - np.outer(self.share, self.share)
        covariance[:-1, -1] = covariance[-1, :-1] = weights @ square_given_row - self.share
        covariance[-1, -1] = 2.0 + 6.0 / law.d_head
        # Covariance of (fractions of the N elements, mean square over the variance) for independent elements, the part
        # that the dependence adds, and its part of the third central moments of the fractions, of order 1/d_model².
        self.independent = covariance / self.count
        self.dependent = 2.0 * (d_model - 1) * (weighted.T @ conditional) / self.count
        self.third = 2.0 * (weights @ conditional[:, :-1] ** 3) / self.count

    def divergence(self, reference: FloatArray) -> Moments:
        """Return the moments of Σ p ln(p/q); ``reference`` is ln q with two derivatives in ln σ², (3, bin)."""
        share, total = self.share, self.share.sum()
        log_q, slope, curvature = reference
        excess = np.log(share) - log_q
        value = float(share @ excess) / total - math.log(total)
        mean_slope = share @ slope / total
        centred = excess - share @ excess / total
        gradient = np.append(centred / total, -mean_slope)
        hessian = np.zeros_like(self.independent)
        hessian[:-1, :-1] = -(centred[:, None] + centred + 1.0) / total**2
        hessian[:-1, -1] = hessian[-1, :-1] = -(slope - mean_slope) / total
        hessian[-1, -1] = mean_slope - share @ curvature / total  # d²/dx² at x = 1 is d²/d(ln x)² - d/d(ln x)
        bins = np.arange(share.size)
        hessian[bins, bins] += 1.0 / (share * total)
        covariance = self.independent + self.dependent
        curved = hessian @ covariance
        bias, spread = _beyond_second_order(self.count, share, centred)
        first = float(gradient @ covariance @ gradient)
        second = 0.5 * float(np.sum(curved * curved.T)) + spread / total**2
        shared = self.dependent[bins, bins]
        beyond = float(np.sum(-self.third / (6.0 * share**2) + shared**2 / (4.0 * share**3))) / total
        mean, std = value + 0.5 * float(np.trace(curved)) + bias / total, math.sqrt(max(first + second, 0.0))
        return Moments(mean, std, _METHOD, abs(beyond), abs(std - math.sqrt(first)))


def _beyond_second_order(count: int, share: FloatArray, slope: FloatArray) -> tuple[float, float]:
    """Mean and variance of Σ_b g_b(n/count) beyond second order, g_b(c) = c ln c + a c, g_b'(p) = ``slope``."""
    p, q = share, 1.0 - share
    third = -q * (1.0 - 2.0 * p) / (6.0 * p * count**2)
    fourth = q * q / (4.0 * p * count**2) + q * (1.0 - 6.0 * p * q) / (12.0 * p**2 * count**3)
    higher = q * q * (q - 1.0 + 2.0 * p) / (2.0 * p**2 * count**3)
    few = count * p < _FEW
    p, q, slope = p[few, None], q[few], slope[few, None]
    c = np.arange(min(count, _MOST) + 1) / count
    mass = scipy.stats.binom.pmf(np.arange(c.size), count, p)
    term = special.xlogy(c, c) + (slope - np.log(p) - 1.0) * c
    mean = np.sum(mass * term, axis=1)
    variance = np.sum(mass * (term - mean[:, None]) ** 2, axis=1)
    p, slope = p[:, 0], slope[:, 0]
    bias = mean - (slope - 1.0) * p - q / (2.0 * count)
    spread = variance - slope**2 * p * q / count - q * q / (2.0 * count**2)
    return float(np.sum((third + fourth + higher)[~few]) + np.sum(bias)), float(np.sum(spread))


def _log_normal_shares(edges: FloatArray) -> FloatArray:
    """ln of the probabilities of the bins under N(0, 1) within the range, and two derivatives in ln variance."""
    log_mass = log_normal_mass(edges[:-1], edges[1:])
    log_total = np.logaddexp.reduce(log_mass)
    log_density = -0.5 * edges**2 - 0.5 * math.log(2.0 * math.pi)
    derivatives = []
    for factor in (-0.5 * edges, 0.25 * edges * (1.0 - edges**2)):
        upper = factor[1:] * np.exp(log_density[1:] - log_mass)
        derivatives.append(upper - factor[:-1] * np.exp(log_density[:-1] - log_mass))
    weights = np.exp(log_mass - log_total)
    first, second = derivatives[0], derivatives[1] - derivatives[0] ** 2
    mean_first = weights @ first
    mean_second = weights @ derivatives[1] - mean_first**2
    return np.stack([log_mass - log_total, first - mean_first, second - mean_second])


def log_normal_mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """ln P(low < z < high) for a standard normal z, finite far into the tails."""
    # Intervals right of zero are reflected: on the left the larger of the two logarithms carries the digits.
    flip = low > 0.0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    larger, smaller = special.log_ndtr(high), special.log_ndtr(low)
    return larger + np.log(-np.expm1(smaller - larger))
