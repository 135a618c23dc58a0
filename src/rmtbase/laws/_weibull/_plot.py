"""The Weibull plot of a parent law in double precision: its line, the influence of a weight, the noise along it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._weibull._arithmetic import FLOAT, GUARD, decimal
from rmtbase.laws._weibull.parents import Parent, require_parent
from rmtbase.parameters import require_positive_integer
from rmtbase.shown import in_one_line

_ORDER = 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)
_LEGENDRE = np.polynomial.legendre.legvander(_NODES, _ORDER - 1)
_SPREAD = 1.0  # logits per panel: the nearest singularity is then farther from a panel than its own width
_TINY = 1e-300
_FAR = 42.0  # logit of the outermost panels: what lies beyond has the probability 1e-18


def _running_integral_matrix() -> FloatArray:
    """Row i integrates the polynomial through the nodes from −1 to node i."""
    values_to_coefficients = (np.arange(_ORDER)[:, None] + 0.5) * (_LEGENDRE * _WEIGHTS[:, None]).T
    coefficients = np.polynomial.legendre.legint(values_to_coefficients, lbnd=-1)
    return np.polynomial.legendre.legvander(_NODES, _ORDER) @ coefficients


_RUNNING = _running_integral_matrix()


@dataclass(frozen=True)
class Panels:
    """Gauss–Legendre panels in ln x between quantiles of a parent, with running integrals. Double precision.

    Panels end at quantiles a logit apart, which grades them towards an end of the support where ln(−ln S) is singular.

    Attributes:
        edges: ln x at the ends of the panels, ascending.
        parent: whose law is integrated over.
    """

    edges: Float[np.ndarray, " end"]
    parent: Parent

    @cached_property
    def log_x(self) -> FloatArray:
        """Nodes, ascending, shape (panel · node,)."""
        half = np.diff(self.edges) / 2
        return ((self.edges[:-1] + half)[:, None] + half[:, None] * _NODES).ravel()

    @cached_property
    def _law(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.parent.law(np.exp(self.log_x), FLOAT)

    @cached_property
    def cdf(self) -> FloatArray:
        """F at the nodes."""
        return self._law[1]

    @cached_property
    def log_hazard(self) -> FloatArray:
        """Y = ln(−ln S) at the nodes, the ordinate of the Weibull plot."""
        _, cdf, sf = self._law
        with np.errstate(divide="ignore"):
            return np.log(np.where(cdf < 0.5, -np.log1p(-np.minimum(cdf, 0.5)), -np.log(np.clip(sf, _TINY, 0.5))))

    @cached_property
    def density(self) -> FloatArray:
        """dF/d ln x at the nodes."""
        return self._law[0] * np.exp(self.log_x)

    @cached_property
    def probability(self) -> FloatArray:
        """The quadrature weights dF of the nodes."""
        return self.density * (np.diff(self.edges)[:, None] / 2 * _WEIGHTS).ravel()

    def running_integral(self, values: FloatArray) -> FloatArray:
        """∫ values d ln x from the first edge to each node."""
        half = np.diff(self.edges)[:, None] / 2
        panel = values.reshape(-1, _ORDER) * half
        before = np.concatenate([[0.0], np.cumsum(panel @ _WEIGHTS)[:-1]])
        return (before[:, None] + panel @ _RUNNING.T).ravel()


def panels(parent: Parent, breaks: Sequence[float] = ()) -> Panels:
    """Panels over the whole support of |w|, with ends at the given magnitudes and at the parent's kinks.

    A parent with power-law tails is followed until its moments have converged as well.
    """
    order = parent.moment_order()
    far = _FAR if math.isinf(order) else max(_FAR, min(650.0, 230.0 * order))
    ends = parent.landmarks(np.arange(-_FAR, far + _SPREAD / 2, _SPREAD))
    inner = [x for x in (*breaks, *parent.kinks(FLOAT)) if 0.0 < x < parent.upper(FLOAT)]
    return Panels(np.log(np.unique(np.concatenate([ends, inner]))), parent)


@dataclass(frozen=True)
class WeibullPlot:
    """Y = ln(−ln(1−F)) against X = ln x(F) over F uniform on [t, 1−t], and its least-squares line Y = k (X − ln λ).

    The influence function of a statistic T is IF(x) = lim (T((1−ε)F + ε δ_x) − T(F))/ε: T of N independent weights is
    T(F) + (1/N) Σ IF(x_i) + O(1/N), so that N Cov(T, T') → E[IF IF'] (von Mises 1947; Hampel 1974). A change δX(F) of
    the quantile function changes a smooth functional of it by the mean of a δX over [t, 1−t], and for one weight at x
    δX = (F − 1{x ≤ x(F)}) dX/dF. Hence IF(x) = (A(x) − E A)/(1−2t), where A(x) = ∫ a dX from x(t) to x is constant
    beyond the trims: two one-dimensional integrals in place of the double integral of min(p, q) − pq.

    Attributes:
        grid: panels over the whole law, with ends at both trims.
        trim: t.
        ends: x(t) and x(1−t).
    """

    grid: Panels
    trim: float
    ends: tuple[float, float]

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """The nodes between the trims."""
        low, high = np.log(self.ends) if self.trim else (-math.inf, math.inf)
        return (self.grid.log_x > low) & (self.grid.log_x < high)

    def average(self, values: FloatArray) -> float:
        """Mean of node values over F in [t, 1−t]."""
        weight = self.grid.probability[self.kept]
        return float(weight @ values[self.kept] / weight.sum())

    @cached_property
    def x_mean(self) -> float:
        return self.average(self.grid.log_x)

    @cached_property
    def y_mean(self) -> float:
        return self.average(self.grid.log_hazard)

    @cached_property
    def x(self) -> FloatArray:
        """X less its mean, at all nodes."""
        return self.grid.log_x - self.x_mean

    @cached_property
    def y(self) -> FloatArray:
        """Y less its mean, at all nodes."""
        return self.grid.log_hazard - self.y_mean

    @cached_property
    def x_variance(self) -> float:
        return self.average(self.x * self.x)

    @cached_property
    def y_variance(self) -> float:
        return self.average(self.y * self.y)

    @cached_property
    def covariance(self) -> float:
        return self.average(self.x * self.y)

    @property
    def shape(self) -> float:
        """The slope k = Cov(X, Y)/Var X."""
        return self.covariance / self.x_variance

    @property
    def scale(self) -> float:
        """The scale λ = exp(mean X − mean Y/k)."""
        return math.exp(self.x_mean - self.y_mean / self.shape)

    @property
    def r_squared(self) -> float:
        """R² = Cov(X, Y)²/(Var X Var Y)."""
        return self.shape * self.covariance / self.y_variance

    def influence(self, slope: FloatArray) -> FloatArray:
        """IF at the nodes of the functional whose change is the mean of ``slope`` δX over F in [t, 1−t]."""
        antiderivative = self.grid.running_integral(np.where(self.kept, slope, 0.0))
        return (antiderivative - self.grid.probability @ antiderivative) / (1 - 2 * self.trim)

    @cached_property
    def shape_influence(self) -> FloatArray:
        """IF of k: a = (Y − mean Y − 2k (X − mean X))/Var X."""
        return self.influence((self.y - 2 * self.shape * self.x) / self.x_variance)

    @cached_property
    def log_scale_influence(self) -> FloatArray:
        """IF of ln λ: that of mean X, plus mean Y/k² times that of k."""
        return self.influence(np.ones_like(self.x)) + self.y_mean / self.shape**2 * self.shape_influence

    @cached_property
    def r_squared_influence(self) -> FloatArray:
        """IF of R²: a = (2k/Var Y)(Y − mean Y − k (X − mean X))."""
        return self.influence(2 * self.shape / self.y_variance * (self.y - self.shape * self.x))

    def product_mean(self, first: FloatArray, second: FloatArray) -> float:
        """E[first second] over the whole law: N times the covariance of two statistics."""
        return float(self.grid.probability @ (first * second))


def weibull_plot(parent: Parent, trim: Fraction, other_trims: Sequence[Fraction] = ()) -> WeibullPlot:
    """The Weibull plot of a parent; panels end at ``other_trims`` too, so that plots at those share their nodes."""
    ends = [_ends(parent, t) for t in (trim, *other_trims)]
    grid = panels(parent, [x for pair in ends for x in pair])
    return WeibullPlot(grid, float(trim), ends[0])


def _ends(parent: Parent, trim: Fraction) -> tuple[float, float]:
    if not trim:
        return 0.0, float(parent.upper(FLOAT))
    logit = math.log(trim) - math.log1p(-trim)
    low, high = parent.quantile_at_logit([logit, -logit])
    return float(low), float(high)


def weibull_plot_noise(p: ArrayLike) -> FloatArray:
    """N Var(Y) = p/((1−p) ln²(1−p)) of the i-th of N order statistics, p = i/N, Y = ln(−ln(1 − F(x_(i)))).

    It is the noise of k X as well where the parent is Weibull; :func:`weibull_quantile_noise` is that of X for any
    parent. Same shape as ``p``; inf at 0 and 1, nan outside [0, 1]. Asymptotic: 1 + O(1/N).
    """
    p = np.asarray(p, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = p / ((1 - p) * np.log1p(-p) ** 2)
    return np.where((p == 0) | (p == 1), np.inf, np.where((p > 0) & (p < 1), noise, np.nan))


def weibull_quantile_noise(p: ArrayLike, distribution: str | Parent = "normal") -> FloatArray:
    """N Var(ln |w|_(i)) = p(1−p)/(x f(x))², x = x(p): the noise of the abscissa, which is what a sample scatters.

    Same shape as ``p``; nan outside (0, 1). Asymptotic: 1 + O(1/N). ``distribution`` as in :func:`weibull_anchor`.
    """
    p, parent = np.asarray(p, dtype=np.float64), require_parent(distribution)
    inside = (p > 0) & (p < 1)
    x = parent.ppf(np.where(inside, p, 0.5))
    density, cdf, sf = parent.law(x, FLOAT)
    return np.where(inside, cdf * sf / (x * density) ** 2, np.nan)


@in_one_line
@dataclass(frozen=True)
class NoiseOptimum:
    """Where :func:`weibull_plot_noise` is least.

    Attributes:
        probability: p*.
        noise: N Var(Y) there.
        decimals: p* and the noise as decimal strings of the digits asked for.
    """

    probability: float
    noise: float
    decimals: tuple[str, str]


def weibull_noise_optimum(digits: int = 15) -> NoiseOptimum:
    """The minimum of p/((1−p) ln²(1−p)): p* = 1 − exp(−2p*) = 1 + W₀(−2e⁻²)/2, and 1/(4p*(1−p*)) there.

    Args:
        digits: significant digits of the strings. Exact to the last but one.

    Raises:
        ParameterError: digits < 1.
    """
    from mpmath import mp

    digits = require_positive_integer("digits", digits)
    with mp.workdps(digits + GUARD):
        p = 1 + mp.lambertw(-2 * mp.exp(-2)).real / 2
        noise = 1 / (4 * p * (1 - p))
        return NoiseOptimum(float(p), float(noise), (decimal(p, digits), decimal(noise, digits)))
