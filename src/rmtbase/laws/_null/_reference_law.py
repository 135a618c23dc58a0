"""Statistics of the elements of a matrix, expanded to second order about the law of an element, and that law itself."""

import math
from functools import lru_cache

import numpy as np
from scipy import special

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._expansion import (
    Expansion,
    Panels,
    average,
    mean_square,
    ordered_average,
    panels,
    root,
    substituted,
    variance,
)
from rmtbase.laws._element.parents import FLOAT, Parent
from rmtbase.laws._weibull._plot import weibull_maximum_likelihood

LOG_TWO_PI = math.log(2.0 * math.pi)
_NORMAL_IQR = 1.3489795003921634
_STEP = 1e-4  # in ln x, for the slope of a density


def excess_kurtosis(grid: Panels) -> Expansion:
    square, fourth = mean_square(grid), average(grid, np.exp(4.0 * grid.log_x))
    about_mean = fourth.drifting(6.0 * square.value**2 - 4.0 * fourth.value)
    return about_mean / square.drifting(-square.value).power(2.0) + -3.0


def l_moment(grid: Panels, order: int) -> Expansion:
    """λ₂ or λ₄ = E w P₍₁,₃₎(2F − 1) of the signed w, unbiased (Hosking, J. R. Stat. Soc. B 52, 105 (1990))."""
    legendre = np.polynomial.Legendre.basis(order - 1)
    x = np.exp(grid.log_x)
    moment = ordered_average(grid, x, x, legendre(grid.cdf), legendre.deriv()(grid.cdf), signed=True)
    return moment.drifting(-moment.drift)


def l_scale(grid: Panels) -> Expansion:
    return l_moment(grid, 2) / variance(grid).power(0.5)


def l_kurtosis(grid: Panels) -> Expansion:
    return l_moment(grid, 4) / l_moment(grid, 2)


def gini(grid: Panels) -> Expansion:
    """λ₂/λ₁ of the magnitudes x = |w|, with λ₂ = ∫ x (2F − 1) dF, which is unbiased in a sample."""
    x = np.exp(grid.log_x)
    scale = ordered_average(grid, x, x, grid.cdf - grid.sf, np.full(x.shape, 2.0))
    return scale.drifting(-scale.drift) / average(grid, x)


def core_sigma(grid: Panels, trim: float, end: float) -> Expansion:
    """σ_fit/s with σ_fit = ∫ w Φ⁻¹(p) dp/∫ (Φ⁻¹)² dp over p in [t, 1 − t]; ``end`` = w(1 − t) is an end of a panel."""
    x, core = np.exp(grid.log_x), grid.log_x < math.log(end)
    normal = np.where(core, special.ndtri(0.5 * (1.0 + np.where(core, grid.cdf, 0.0))), 0.0)
    slope = np.where(core, 0.5 * math.sqrt(2.0 * math.pi) * np.exp(0.5 * normal**2), 0.0)
    last = float(special.ndtri(1.0 - trim))
    square = 1.0 - 2.0 * trim - 2.0 * last * math.exp(-0.5 * last**2) / math.sqrt(2.0 * math.pi)
    density = float(grid.parent.law(np.array(end), FLOAT)[0])
    fitted = ordered_average(
        grid, x, x, normal / square, slope / square, [(end, -last / square / density)], signed=True
    )
    return fitted / variance(grid).power(0.5)


def log_quantile(grid: Panels, p: float, x: float, offset: float) -> Expansion:
    """Ln of the p-quantile x of |w|, an end of a panel: with g = dF/d ln x, −δF/g + (δF δg − δF² g′/(2g))/g²."""
    # At the jump of an influence, which is at the quantile itself, δg is the mean of both sides.
    node = int(np.searchsorted(grid.log_x, math.log(x)))
    around = x * np.exp(_STEP * np.arange(-1, 2))
    below, density, above = grid.parent.law(around, FLOAT)[0] * around
    bend = (above - below) / (2.0 * _STEP * density**3)

    def curvature(direction: FloatArray) -> float:
        mass = float((grid.probability * direction)[:node].sum())
        return mass * float(direction[node - 1] + direction[node]) / density - mass**2 * bend

    influence = (p - (np.arange(grid.log_x.size) < node)) / density
    return Expansion(grid, math.log(x), influence, offset / density - 0.5 * p * (1.0 - p) * bend, curvature)


def skewness_influence(grid: Panels) -> FloatArray:
    """Return the influence of m₃/m₂^(3/2) at positive w; it is odd in w."""
    z = np.exp(grid.log_x) / math.sqrt(mean_square(grid).value)
    return z**3 - 3.0 * z


def l_skewness_influence(grid: Panels) -> FloatArray:
    """Return the influence ∫ P₂(2F − 1) dw/λ₂ of λ₃/λ₂ at positive w; it is odd in w."""
    x, u = np.exp(grid.log_x), grid.cdf
    # Both terms of P₂(u) = (3u² − 1)/2, without their cancellation at the first node.
    return grid.running_integral(x * (1.5 * u * u - 0.5)) / l_moment(grid, 2).value


def maximum_likelihood(grid: Panels) -> tuple[Expansion, Expansion]:
    def score(k: float) -> Expansion:
        powers = np.exp(k * grid.log_x)
        return average(grid, powers * grid.log_x) / average(grid, powers) - average(grid, grid.log_x) + -1.0 / k

    shape = root(score, weibull_maximum_likelihood(grid.parent).shape)
    return shape, substituted(lambda k: average(grid, np.exp(k * grid.log_x)).log() / k, shape)


class ReferenceLaw:
    def __init__(self, parent: Parent) -> None:
        self.parent = parent  # the law of w
        core_end, median = float(parent.ppf(0.8)), float(parent.ppf(0.5))
        self.grid = grid = panels(parent, [median, core_end])
        self.sigma = sigma = math.sqrt(mean_square(grid).value)
        self.x = x = np.exp(grid.log_x) / sigma
        self.upper = float(parent.upper(FLOAT)) / sigma
        self.log_s = 0.5 * variance(grid).log()
        # ln(σ_fit/s), where the normal law of the core is fitted to the middle 80 %.
        self.core = core = core_sigma(grid, 0.1, core_end).log()
        # Influence at w > 0 of the centre of the core (the mean of the middle 80 %), in units of σ; odd in w.
        self.core_centre = np.minimum(x, core_end / sigma) / 0.8
        # ln of min(s, interquartile range/1.349)/σ, and √n times the std of the log-ratio if both agree, else 0.
        log_s = self.log_s - math.log(sigma)
        log_iqr = log_quantile(grid, 0.5, median, 0.0) - math.log(0.5 * _NORMAL_IQR * sigma)
        distance = log_iqr - log_s
        self.spread = (log_s if distance.value > 0.0 else log_iqr), 0.0
        if abs(distance.value) < 1e-9:
            self.spread = log_s, math.sqrt(distance.variance)
        # True if the normal fits are exact, so that estimates of the divergence from them have no influence.
        self.is_normal = abs(core.value) < 1e-9 and abs(float(grid.probability @ x**4) - 3.0) < 1e-9
        # D_KL(w ‖ N(0, σ²)) and D_KL(w ‖ N(0, σ_fit²)) in nats.
        log_density = np.log(0.5 * np.maximum(grid.density, 1e-300)) - np.log(x)
        self.divergence = float(grid.probability @ log_density) + 0.5 * (LOG_TWO_PI + 1.0)
        self.core_divergence = self.divergence + core.value + 0.5 * math.expm1(-2.0 * core.value)

    def masses(self, edges: FloatArray) -> FloatArray:
        """P(w/σ in cell) for cells between ascending edges along the last axis, from the smaller tail."""
        at = np.clip(np.abs(edges), 1e-300, np.nextafter(self.upper, 0.0)) * self.sigma
        tail = 0.5 * np.where(np.abs(edges) >= self.upper, 0.0, self.parent.law(at, FLOAT)[2])
        low, high = tail[..., :-1], tail[..., 1:]
        left, right = edges[..., 1:] <= 0.0, edges[..., :-1] >= 0.0
        return np.where(right, low - high, np.where(left, high - low, 1.0 - low - high))

    def centred(self, even: FloatArray) -> FloatArray:
        return even - self.grid.probability @ even


reference_law = lru_cache(maxsize=64)(ReferenceLaw)
