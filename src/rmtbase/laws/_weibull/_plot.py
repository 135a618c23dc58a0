"""The Weibull plot of a parent law in double precision: the line fitted to it, and the influence of one weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rmtbase.laws._arrays import FloatArray
from rmtbase.laws._weibull._arithmetic import FLOAT
from rmtbase.laws._weibull._panels import Panels, panels
from rmtbase.laws._weibull.parents import Parent


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
        """Mean of X."""
        return self.average(self.grid.log_x)

    @cached_property
    def y_mean(self) -> float:
        """Mean of Y."""
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
        """Var X."""
        return self.average(self.x * self.x)

    @cached_property
    def y_variance(self) -> float:
        """Var Y."""
        return self.average(self.y * self.y)

    @cached_property
    def covariance(self) -> float:
        """Cov(X, Y)."""
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
