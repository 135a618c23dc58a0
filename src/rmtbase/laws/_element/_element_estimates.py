"""Averages over the elements of one W_QK, which depend on each other, and estimates of entropy and divergence."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Unpack

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray, Moments
from rmtbase.laws._element._product_element import ProductElement, chi_square_rule, product_element
from rmtbase.laws._parameters import ProductKeywords, takes
from rmtbase.parameters import require_interval, require_positive_integer, require_positive_number

_LOG_STEP = 0.125
_LOG_REACH = 37.0  # a normal variable is below e^-37 of its standard deviation with probability 1e-16
_METHOD = "asymptotic: leading order in 1/d_model; error is an estimate of the neglected terms"
_SMALLEST_HEAD = 3


@takes(ProductKeywords)
def element_average(
    function: Callable[[FloatArray], ArrayLike], d_model: int, d_head: int, **scale: Unpack[ProductKeywords]
) -> Moments:
    """Return mean and standard deviation of Σ_ij f(w_ij) / d², over the d² elements of one W_QK, d = d_model.

    Elements share only the χ² variable of their row or column (Hoeffding 1948), so the variance is, for every d,
    [Var f(w) + 2 (d - 1) Var E(f(w) | |q|²)] / d²; numerical to 1e-12 for f analytic in ln |w|.
    """
    law = product_element(d_model, d_head, **scale)
    mean, spread, shared = _average_parts(function, law)
    return Moments(mean, math.sqrt(spread + 2.0 * (d_model - 1) * shared) / d_model, "exact")


def _average_parts(function: Callable[[FloatArray], ArrayLike], law: ProductElement) -> tuple[float, float, float]:
    x, kernel, weights = _normal_mixture(law)
    values = np.stack([np.asarray(function(side), dtype=np.float64) for side in (x, -x)])
    if values.shape != (2, x.size) or not np.isfinite(values).all():
        raise ParameterError("function", function, "a function that returns one finite number per element")
    conditional = kernel @ values.sum(axis=0)
    mean = float(weights @ conditional)
    spread = float(weights @ (kernel @ ((values - mean) ** 2).sum(axis=0)))
    return mean, spread, float(weights @ (conditional - mean) ** 2)


def _normal_mixture(law: ProductElement) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return x > 0, the kernel (node, x) and weights (node) with E f(w) = weights @ kernel @ (f(x) + f(-x))."""
    # Trapezoidal rule in ln x, where x times a normal density is analytic in a strip of width π/2 for all variances.
    v, weights = chi_square_rule(law.d_head)
    log_std = 0.5 * v
    t = np.arange(log_std[0] - _LOG_REACH, log_std[-1] + math.log(9.5), _LOG_STEP)
    ratio = t - log_std[:, None]
    kernel = _LOG_STEP / math.sqrt(2.0 * math.pi) * np.exp(ratio - 0.5 * np.exp(2.0 * ratio))
    return law.std() * np.exp(t), kernel, weights


@takes(ProductKeywords)
def nearest_neighbour_entropy(d_model: int, d_head: int, k: int = 1, **scale: Unpack[ProductKeywords]) -> Moments:
    """Return mean and standard deviation of the k-th neighbour entropy of the N = d_model² elements of one W_QK.

    The estimate is :func:`rmtbase.statistics.nearest_neighbour_entropy`. With p the law of one element and p(·|s) the
    law in one row,

        mean = entropy - χ/d_model,    χ = E ∫ p(x|s)²/p(x) dx - 1, about 1/d_head,
        variance = [Var ln p + c_k + 2 (d_model - 1) Var E(ln p | s)] / N.

    c_k is the contribution of the distances, 2.14114 for k = 1 and near 1.8/k for larger k (Delattre & Fournier 2017).

    Raises:
        ParameterError: as :func:`rmtbase.laws.low_rank_product`, for a d_head below 3, for which χ is infinite, and for
            a k that is not a positive integer or leaves no k-th neighbour.
    """
    law = _require_law(d_model, d_head, scale)
    return _moments(law, d_model, k, law.entropy(), -1.0, 0.0, False)


@takes(ProductKeywords)
def nearest_neighbour_kl(
    d_model: int, d_head: int, k: int = 1, reference_sigma: float | None = None, **scale: Unpack[ProductKeywords]
) -> Moments:
    """Return mean and standard deviation of the k-th neighbour estimate of D_KL(w ‖ normal) from one W_QK.

    The estimate is :func:`rmtbase.statistics.nearest_neighbour_kl`, with N(0, reference_sigma²), or σ fitted if that is
    None. The bias is χ/d_model; at a fitted σ, minus Var(mean w²)/(4 (E w²)²), about 1/(d_model d_head). Accuracy,
    arguments and errors as for :func:`nearest_neighbour_entropy`; ``reference_sigma`` must be positive and finite.
    """
    law = _require_law(d_model, d_head, scale)
    if reference_sigma is None:
        # Relative variance of mean(w²), exact: (2 + 6/h + 4 (d - 1)/h) / d².
        fitted = (2.0 + (4.0 * d_model + 2.0) / law.d_head) / d_model**2
        return _moments(law, d_model, k, law.kl_to_normal() - 0.25 * fitted, 1.0, 0.5 / law.var(), True)
    weight = 0.5 / require_positive_number("reference_sigma", reference_sigma) ** 2
    cross_entropy = 0.5 * math.log(math.pi / weight) + weight * law.var()
    return _moments(law, d_model, k, cross_entropy - law.entropy(), 1.0, weight, False)


def _require_law(d_model: int, d_head: int, scale: ProductKeywords) -> ProductElement:
    law = product_element(d_model, d_head, **scale)
    if law.d_head < _SMALLEST_HEAD:
        raise ParameterError("d_head", d_head, f"at least {_SMALLEST_HEAD}: the density of an element must be finite")
    return law


def _moments(
    law: ProductElement, d_model: int, k: int, value: float, sign: float, square_weight: float, fitted: bool
) -> Moments:
    """Return the moments of the mean of sign ln p(w) + square_weight w² over one matrix, p estimated by neighbours."""
    count = d_model**2
    if require_positive_integer("k", k) >= count:
        raise ParameterError("k", k, f"less than the number of elements, {count}")
    _, spread, shared = _average_parts(lambda w: sign * law.logpdf(w) + square_weight * w * w, law)
    _, kernel, weights = _normal_mixture(law)
    shift = (2.0 * float(np.sum(weights @ kernel**2 / (weights @ kernel))) - 1.0) / d_model
    std = math.sqrt((spread + _distance_variance(k) + 2.0 * (d_model - 1) * shared) / count)
    return Moments(value + sign * shift, std, _METHOD, shift**2 + k / count, shift**2 / std)


@lru_cache(maxsize=64)
def _distance_variance(k: int) -> float:
    """c_k = lim n Var(Σ ln ρ_i / n), ρ_i the k-th neighbour distances of n uniform points; 2.14114 for k = 1.

    With those of a Poisson process, and h(r) = P(D > r), c_k = ψ'(k) - 1 + ∫ dy ∫∫ [P(D_0 > r, D_y > t) - P(D_0 > r)
    h(t) - h(r) P(D_y > t) + h(r) h(t)] dr dt/(r t), conditional on points at 0 and y.
    """
    # Gauss–Legendre quadrature in t/r, y/r and r over the pieces on which the integrand is analytic, to 1e-10.
    nodes, gauss = np.polynomial.legendre.leggauss(24)
    end = 0.5 * (k + 12.0 * math.sqrt(k) + 40.0)
    fine, fine_gauss = np.polynomial.legendre.leggauss(64)
    r, r_weight = 0.5 * end * (fine + 1.0), 0.5 * end * fine_gauss
    total = 0.0
    for low, high in ((0.0, 0.5), (0.5, 1.0)):
        for node, weight in zip(nodes, gauss, strict=True):
            u = 0.5 * (low + high + (high - low) * node)
            for start, stop in pairwise(sorted((0.0, u, 1.0 - u, 1.0, 1.0 + u))):
                z = 0.5 * (start + stop + (stop - start) * nodes)[:, None]
                inner = 0.5 * (stop - start) * gauss @ _pair_excess(k, r, u, z) @ r_weight
                total += 4.0 * 0.5 * (high - low) * weight / u * float(inner)
    return float(special.polygamma(1, k)) - 1.0 + total


def _pair_excess(k: int, r: FloatArray, u: float, z: FloatArray) -> FloatArray:
    # Lengths of the overlap of the intervals (-r, r) and (y - t, y + t), and of the rest of each.
    overlap = r * np.minimum(2.0 * u, 1.0 + u - z)
    left, right = 2.0 * r - overlap, 2.0 * u * r - overlap
    near, far = (z < 1.0).astype(int), (z < u).astype(int)  # each point counts among the other's neighbours
    together = sum(
        np.exp(special.xlogy(j, overlap) - overlap - special.gammaln(j + 1))
        * _fewer(k - near - j, left)
        * _fewer(k - far - j, right)
        for j in np.arange(k)
    )
    alone, alone_other = _fewer(k, 2.0 * r), _fewer(k, 2.0 * u * r)
    return (
        together - _fewer(k - near, 2.0 * r) * alone_other - alone * _fewer(k - far, 2.0 * u * r) + alone * alone_other
    )


def _fewer(count: NDArray[np.integer] | int, mean: FloatArray) -> FloatArray:
    return np.where(np.asarray(count) > 0, special.pdtr(np.maximum(count, 1) - 1, np.maximum(mean, 0.0)), 0.0)


_DELTA_METHOD = "second-order delta method on exact covariances; error is an estimate of the neglected terms"
_FEW = 60.0  # expected count below which the expectation of n ln n is summed exactly
_MOST = 200  # a count that such a bin never exceeds
_MOST_BINS = 10_000  # whose covariances take 800 MB
_NEVER = 1e-9  # expected count below which a bin is taken as empty


@takes(ProductKeywords)
def histogram_entropy(
    d_model: int, d_head: int, bins: int, range: tuple[float, float], **scale: Unpack[ProductKeywords]
) -> Moments:
    """Return mean and standard deviation of the histogram entropy of the N = d_model² elements of one W_QK.

    The estimate is :func:`rmtbase.statistics.histogram_entropy`, with ``bins`` equal bins in ``range``, (low, high).
    Its mean is the entropy of the law, plus the effects of binning (width²/(24 variance)) and of the cut, minus
    (occupied bins - 1)/(2N) (Miller 1955), minus about 1/(d_model d_head), the effect of the dependence. Its standard
    deviation is near √((1/2 + d_model/d_head)/N), for independent elements √(1/(2N)). Moments of the counts, and the
    expectation of n ln n, are exact. ``error`` and ``std_error`` are the next orders of the dependence and the spread.

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
        math.log(high - low) - divergence.mean, divergence.std, _DELTA_METHOD, divergence.error, divergence.std_error
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

    The estimate is :func:`rmtbase.statistics.histogram_kl`: that from N(0, reference_sigma²), whose σ, if None, is the
    root mean square of the same elements. Its mean is the divergence of the binned law, plus (occupied bins - 1)/(2N),
    minus 1/(2N) if σ is fitted, plus the effect of the dependence: 1/(d_model d_head) at a given σ, nearly zero at a
    fitted σ, which follows the width of the density of the matrix. Accuracy, arguments and errors as for
    :func:`histogram_entropy`; ``reference_sigma`` must be positive and finite.
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
        return Moments(mean, std, _DELTA_METHOD, abs(beyond), abs(std - math.sqrt(first)))


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
