"""Law of one element of W_QK: the variance-gamma law, a normal law whose variance is a χ² variable."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicHermiteSpline
from scipy.special import erf, erfcx, gammaln, k0e

from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._parameters import ChainParameters, ProductKeywords, as_float, takes
from rmtbase.parameters import require_order, require_positive_integer, require_positive_number

_NEAREST = 2.0**-66  # in units of scale: for d_head > 1 no function changes by 1e-16 between here and zero
_LOWEST_LOG = -760.0  # below ln of the smallest positive double
_ROWS = 4096
_NEWTON_STEPS = 2
_CENTRAL = 0.45  # tail probability above which a quantile is found from its distance to 1/2
_NEGLIGIBLE = 40.0  # terms e^-40 below the largest one are left out
_FRACTIONS = np.geomspace(0.05, 1.0, 60)
_REMAINDER_SERIES = [1.0 / math.factorial(k) for k in range(17, 1, -1)]


@dataclass(frozen=True)
class ProductElement(Distribution):
    """Law of one element w = scale Σ_{i≤h} a_i b_i of W_QK, with a_i and b_i independent N(0, 1) and h = d_head.

    The symmetric variance-gamma law (the Laplace law at h = 2): w is N(0, scale² s) with s ~ χ² of h degrees of
    freedom. With x = |w|/scale and ν = (h - 1)/2,

        pdf = x^ν K_ν(x) / (√π Γ(h/2) 2^ν) / scale,    characteristic function (1 + scale² t²)^(-h/2)

    (Pearson, Jeffery & Elderton 1929 and Wishart & Bartlett 1932 for h > 1, Craig 1936 for h = 1; Madan, Carr & Chang
    1998). Exact; computed from the scale mixture, by the trapezoidal rule in ln s about its saddle, where nothing
    overflows as K_ν does. Against 40-digit evaluations for h = 1 ... 16 384, relative errors are below 2e-13 for pdf
    and sf down to 1e-300, and 1e-14 for ppf and kl_to_normal.

    Attributes:
        d_head: the number h of products, a positive integer.
        scale: standard deviation of one product a_i b_i, positive: σ_Q σ_K, divided by √d_model for ``sqrt_d``.
    """

    d_head: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "d_head", require_positive_integer("d_head", self.d_head))
        object.__setattr__(self, "scale", require_positive_number("scale", self.scale))

    def logpdf(self, x: ArrayLike) -> FloatArray:
        """ln of the density at ``x``, finite for every finite x (except x = 0 at d_head = 1)."""
        return self._inside(x, self._log_pdf, -math.inf, -math.inf)

    def logcdf(self, x: ArrayLike) -> FloatArray:
        """ln P(w ≤ x), finite for every finite x."""
        return self._inside(x, lambda w: self._log_sf(-w), -math.inf, 0.0)

    def logsf(self, x: ArrayLike) -> FloatArray:
        """ln P(w > x), finite for every finite x."""
        return self._inside(x, self._log_sf, 0.0, -math.inf)

    def _pdf(self, x: FloatArray) -> FloatArray:
        return np.exp(self._log_pdf(x))

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self._sf(-x)

    def _sf(self, x: FloatArray) -> FloatArray:
        tail = np.exp(self._of_magnitude(x, _log_sf))
        return np.where(x < 0.0, 1.0 - tail, tail)

    def _log_pdf(self, x: FloatArray) -> FloatArray:
        return self._of_magnitude(x, _log_pdf) - math.log(self.scale)

    def _log_sf(self, x: FloatArray) -> FloatArray:
        log_tail = self._of_magnitude(x, _log_sf)
        return np.where(x < 0.0, np.log1p(-np.exp(log_tail)), log_tail)

    def _ppf(self, q: FloatArray) -> FloatArray:
        lower = np.minimum(q, 1.0 - q)
        magnitude = np.zeros(q.shape)
        apart = lower < 0.5
        magnitude[apart] = self.scale * _magnitude_quantile(self.d_head, lower[apart])
        return np.where(q < 0.5, -magnitude, magnitude)

    def _isf(self, q: FloatArray) -> FloatArray:
        return -self._ppf(q)

    def moment(self, k: int) -> float:
        """E[w^k], k = 0, 1, 2, ...: 0 for odd k, scale^k (k - 1)!! h (h + 2) ... (h + k - 2) for even k.

        Exact, rounded once; inf if it is too large for a double.
        """
        order = require_order(k)
        if order % 2:
            return 0.0
        product = math.prod((2 * j + 1) * (self.d_head + 2 * j) for j in range(order // 2))
        return as_float(Fraction(self.scale) ** order * product)

    def var(self) -> float:
        """Variance, scale² h."""
        return self.moment(2)

    def std(self) -> float:
        """Return the standard deviation, scale √h."""
        return self.scale * math.sqrt(self.d_head)

    def kurtosis(self) -> float:
        """Excess kurtosis, 6/h."""
        return 6.0 / self.d_head

    def entropy(self) -> float:
        """Differential entropy -∫ p ln p in nats: the entropy of the matched normal law minus :meth:`kl_to_normal`."""
        return 0.5 * math.log(2.0 * math.pi * math.e * self.d_head) + math.log(self.scale) - self.kl_to_normal()

    def kl_to_normal(self) -> float:
        """D_KL(p ‖ N(0, scale² h)) in nats, for the law itself; the mean of an estimate from a matrix differs from it.

        The relative error is small also where the divergence is tiny (2.8e-9 at h = 16 384).
        """
        return _kl_to_normal(self.d_head)

    def _of_magnitude(self, x: FloatArray, log_function: Callable[[int, FloatArray], FloatArray]) -> FloatArray:
        """Apply ``log_function`` to |x|/scale, octave by octave; -inf where |x|/scale overflows."""
        with np.errstate(over="ignore"):
            values = np.abs(x) / self.scale
        result = np.full(x.shape, -np.inf)
        finite = np.isfinite(values)
        result[finite] = _by_octave(log_function, self.d_head, values[finite])
        return result


@takes(ProductKeywords)
def product_element(d_model: int, d_head: int, **scale: Unpack[ProductKeywords]) -> ProductElement:
    """Return the law of one element of W_QK = W_Qᵀ W_K with Gaussian W_Q, W_K of shape (d_head, d_model).

    Its variance is d_head σ_q² σ_k², divided by d_model for ``sqrt_d``. The law is exact for every element, but the
    d_model² elements of one matrix depend on each other; see :func:`element_average`. Errors as for
    :func:`rmtbase.laws.low_rank_product`.
    """
    chain = ChainParameters(d_model=d_model, d_head=d_head, **scale)
    width, head, _ = chain.dims
    return ProductElement(
        head, math.prod(chain.sigmas) / (math.sqrt(width) if chain.normalization == "sqrt_d" else 1.0)
    )


def _by_octave(function: Callable[[int, FloatArray], FloatArray], d_head: int, x: FloatArray) -> FloatArray:
    """Apply ``function`` to groups of x ≥ 0 within a factor of two, which share one quadrature rule."""
    octave = np.frexp(np.maximum(x, _NEAREST))[1]
    order = np.argsort(octave, kind="stable")
    result = np.empty(x.shape)
    for group in np.split(order, np.flatnonzero(np.diff(octave[order])) + 1):
        for start in range(0, group.size, _ROWS):
            rows = group[start : start + _ROWS]
            result[rows] = function(d_head, x[rows])
    return result


def _log_pdf(d_head: int, x: FloatArray) -> FloatArray:
    if d_head == 1:  # K_0(x)/π, whose mixture has no peak as x → 0
        return np.log(k0e(x) / np.pi) - x
    x = np.maximum(x, _NEAREST)
    log_peak, saddle, v, terms, step = _mixture(d_head, x, 0.5)
    return log_peak + np.log(step * (terms @ np.exp(-0.5 * v)) / np.sqrt(2.0 * np.pi * saddle))


def _log_sf(d_head: int, x: FloatArray) -> FloatArray:
    x = np.maximum(x, _NEAREST)
    log_peak, saddle, v, terms, step = _mixture(d_head, x, 0.0)
    terms *= erfcx(np.multiply.outer(x / np.sqrt(2.0 * saddle), np.exp(-0.5 * v)))
    return log_peak + np.log(0.5 * step * terms.sum(axis=1))


def _mixture(d_head: int, x: FloatArray, tilt: float) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]:
    """Return ln of the peak, saddle, v (node), terms (x, node) relative to the peak, and step of the density of ln s.

    It is exp(log_peak - P(e^v - 1 - v) - X(e^-v - 1 + v)) with s = saddle e^v, P = saddle/2, X = x²/(2 saddle).
    """
    half = 0.5 * d_head
    upper = 0.5 * (half + np.hypot(half, x))
    lower = x * (0.25 * (x / upper))
    step = _trapezoidal_step(float(np.max(upper + lower)))
    v = _trapezoidal_points(float(upper.min()), float(upper.min()) - tilt, step)
    rise, fall = _exponential_remainder(v), _exponential_remainder(-v)
    decay = upper.min() * rise + lower.min() * fall + tilt * v
    near = decay < decay.min() + _NEGLIGIBLE
    terms = np.exp(-(np.multiply.outer(upper, rise[near]) + np.multiply.outer(lower, fall[near])))
    log_peak = _log_gamma_peak(half) + half * np.log1p(lower / half) - 2.0 * lower
    return log_peak, 2.0 * upper, v[near], terms, step


def _log_central_mass(d_head: int, x: FloatArray) -> FloatArray:
    """ln P(0 < w < x) at scale 1 for x > 0 in one octave, with a small relative error for any x."""
    half = 0.5 * d_head
    reach = x / math.sqrt(2.0 * d_head)
    step = _trapezoidal_step(half)
    v = _trapezoidal_points(half, half, step)
    # To the left of ln reach² the error function is 1, so the terms start to decay only there.
    v = np.concatenate([v[0] + step * np.arange(-math.ceil(max(0.0, -2.0 * math.log(reach.min())) / step), 0), v])
    exponent = half * _exponential_remainder(v)
    decay = exponent - np.log(erf(np.minimum(reach.min() * np.exp(-0.5 * v), 10.0)))
    near = decay < decay.min() + _NEGLIGIBLE
    within = erf(np.multiply.outer(reach, np.exp(-0.5 * v[near])))
    return np.log(0.5 * step * math.exp(_log_gamma_peak(half)) * (within @ np.exp(-exponent[near])))


def _log_gamma_peak(shape: float) -> float:
    """ln of n^n e^-n / Γ(n), the maximum of the density of the logarithm of a gamma variable of ``shape`` n."""
    if shape < 20.0:
        return shape * math.log(shape) - shape - float(gammaln(shape))
    # Stirling's series; the next term is below 1e-14.
    series = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
    remainder = sum(c / shape ** (2 * j + 1) for j, c in enumerate(series))
    return 0.5 * math.log(shape / (2.0 * math.pi)) - remainder


def _magnitude_quantile(d_head: int, lower: FloatArray) -> FloatArray:
    """Find x > 0 with P(w > x) = ``lower`` in (0, 1/2) at scale 1, by Newton's method in ln x from a table."""
    central, tail = _quantile_tables(d_head)
    magnitude = np.empty(lower.shape)
    for chosen, goal, table, log_mass, sign in (
        (lower > _CENTRAL, np.log(0.5 - lower), central, _log_central_mass, 1.0),
        (lower <= _CENTRAL, np.log(lower), tail, _log_sf, -1.0),
    ):
        target = goal[chosen]
        log_x = table(target)
        for _ in range(_NEWTON_STEPS):
            x = np.exp(log_x)
            mass, density = _by_octave(log_mass, d_head, x), _by_octave(_log_pdf, d_head, x)
            log_x = log_x - sign * (mass - target) / np.exp(log_x + density - mass)
        magnitude[chosen] = np.exp(log_x)
    return magnitude


@lru_cache(maxsize=128)
def _quantile_tables(d_head: int) -> tuple[CubicHermiteSpline, CubicHermiteSpline]:
    std = math.sqrt(d_head)
    furthest = std
    while _log_sf(d_head, np.array([furthest]))[0] > _LOWEST_LOG:
        furthest *= 2.0
    tables = []
    for log_mass, start, end, count, sign in (
        (_log_central_mass, _NEAREST * std, std, 100, 1.0),
        (_log_sf, 0.02 * std, furthest, 300, -1.0),
    ):
        x = np.geomspace(start, end, count)
        mass = _by_octave(log_mass, d_head, x)
        slope = sign * np.exp(mass - _by_octave(_log_pdf, d_head, x)) / x
        order = slice(None, None, int(sign))  # a spline wants increasing abscissae
        tables.append(CubicHermiteSpline(mass[order], np.log(x)[order], slope[order]))
    return tables[0], tables[1]


@lru_cache(maxsize=256)
def _kl_to_normal(d_head: int) -> float:
    """D_KL(p ‖ N(0, h)) in nats: ∫ φ(y) (r ln r - r + 1) dy over y = w/√h, r = p/φ."""
    # y = exp(t - e^-t) moves the singularity of p at 0 and the tails to infinity; the trapezoidal rule is exact there.
    step = 1.0 / 32.0
    t = np.arange(-4.5, 4.0, step)
    y = np.exp(t - np.exp(-t))
    log_normal = -0.5 * y * y - 0.5 * math.log(2.0 * math.pi)
    log_density = ProductElement(d_head, 1.0 / math.sqrt(d_head)).logpdf(y)
    normal, density, log_ratio = np.exp(log_normal), np.exp(log_density), log_density - log_normal
    integrand = density * log_ratio - density + normal
    near = np.abs(log_ratio) < 0.3
    # There r - 1 = δ comes from the mixture at variance 1 + ε, φ(y) exp(L), L = ε(y² - 1)/2 + O(ε²), whose linear term,
    # of mean 0, is subtracted before averaging, and (1 + δ) ln(1 + δ) - δ from its series Σ_{k≥2} (-δ)^k / (k(k - 1)).
    v, weights = chi_square_rule(d_head)
    square = 0.5 * y[near, None] ** 2
    exponent = square * (-np.expm1(-v)) - 0.5 * v
    delta = (np.expm1(exponent) - (square - 0.5) * np.expm1(v)) @ weights
    series = np.polyval([(-1.0) ** k / (k * (k - 1)) for k in range(14, 1, -1)], delta) * delta**2
    term = np.where(np.abs(delta) < 0.05, series, (1.0 + delta) * np.log1p(delta) - delta)
    integrand[near] = normal[near] * term
    return float(2.0 * step * np.sum(integrand * y * (1.0 + np.exp(-t))))


def _exponential_remainder(v: FloatArray) -> FloatArray:
    near = np.clip(v, -0.5, 0.5)
    series = near * near * np.polyval(_REMAINDER_SERIES, near)
    return np.asarray(np.where(np.abs(v) < 0.5, series, np.expm1(v) - v), dtype=np.float64)


def _trapezoidal_step(curvature: float) -> float:
    """Step for ∫ exp(-P(e^v - 1 - v) - X(e^-v - 1 + v)) dv, P + X = ``curvature`` (Trefethen & Weideman 2014)."""
    angles = _FRACTIONS * min(1.5, math.sqrt(2.0 * _NEGLIGIBLE / curvature))
    growth = -0.5 * curvature * np.log1p(-(np.sin(angles) ** 2))
    return 2.0 * math.pi / float(np.min((_NEGLIGIBLE + growth) / angles))


def _trapezoidal_points(curvature: float, left_slope: float, step: float) -> FloatArray:
    """Return the multiples of ``step`` up to where exp(-P(e^v - 1 - v)) is negligible, P = left_slope on the left."""
    # e^v - 1 - v is at least v²/2 for v > 0, and at least v²/(2 - v) for v < 0.
    right = math.sqrt(2.0 * _NEGLIGIBLE / curvature)
    ratio = _NEGLIGIBLE / left_slope
    left = 0.5 * (ratio + math.sqrt(ratio * (ratio + 8.0)))
    return step * np.arange(-math.ceil(left / step), math.ceil(right / step) + 1, dtype=np.float64)


@lru_cache(maxsize=128)
def chi_square_rule(d_head: float) -> tuple[FloatArray, FloatArray]:
    """Nodes v, weights w with E f(S) = Σ w f(d_head e^v), S ~ χ² of ``d_head``; to 1e-15 for f analytic in ln S."""
    half = 0.5 * d_head
    v = _trapezoidal_points(half, half, _trapezoidal_step(half))
    exponent = half * _exponential_remainder(v)
    v, exponent = v[exponent < _NEGLIGIBLE], exponent[exponent < _NEGLIGIBLE]
    weights = np.exp(-exponent)
    return v, weights / weights.sum()
