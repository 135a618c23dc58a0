"""The Weibull plot of a parent law in double precision: the line fitted to it, and the influence of one weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._weibull._arithmetic import FLOAT
from rmtbase.laws._weibull.parents import Parent

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
