"""The sampling law of the Weibull fit of N weights, independent or the elements of one W_QK."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import ndtr

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray, Moments
from rmtbase.laws._element._product_element import chi_square_rule, product_element
from rmtbase.laws._parameters import ProductKeywords, takes
from rmtbase.laws._weibull._arithmetic import FLOAT
from rmtbase.laws._weibull._plot import WeibullPlot, weibull_plot
from rmtbase.laws._weibull.parents import Parent, VarianceGamma, require_parent
from rmtbase.parameters import require_positive_integer, require_trim
from rmtbase.shown import in_one_line

if TYPE_CHECKING:
    from rmtbase.statistics import WeibullFit

_STRAIGHT = 1e-12  # a Weibull plot with 1 − R² below this is a straight line
_METHOD = (
    "influence functions at the elements' exact covariance; neglected in the mean: the dependence, 1/(d_model d_head)"
)


@dataclass(frozen=True)
class LargeSampleLaw:
    """Mean ``limit`` + ``drift``/N and standard deviation ``spread``/√N. Asymptotic: O(N^(-3/2)) is left out of both.

    Attributes:
        limit: the value that N → ∞ gives, that of the parent law itself.
        spread: √N times the standard deviation; nan where the variance is infinite.
        drift: N times the bias; nan where it is not known or not of the order 1/N, and then left out of the mean.
    """

    limit: float
    spread: float
    drift: float = math.nan

    def mean(self, n: int) -> float:
        """Mean over samples of n weights."""
        n = require_positive_integer("n", n)
        return self.limit + (0.0 if math.isnan(self.drift) else self.drift / n)

    def std(self, n: int) -> float:
        """Standard deviation over samples of n weights."""
        return self.spread / math.sqrt(require_positive_integer("n", n))

    def z_score(self, observed: ArrayLike, n: int) -> FloatArray:
        """(observed − mean)/std, same shape as ``observed``."""
        return (np.asarray(observed, dtype=np.float64) - self.mean(n)) / self.std(n)

    def p_value(self, observed: ArrayLike, n: int) -> FloatArray:
        """Two-sided P(|Z| ≥ |z|), same shape as ``observed``."""
        return 2.0 * ndtr(-np.abs(self.z_score(observed, n)))


class WeibullScore(NamedTuple):
    """z-scores of one fit, in the order of :class:`WeibullNull`."""

    shape: float
    scale: float
    r_squared: float
    scale_to_rms: float


@in_one_line
@dataclass(frozen=True)
class WeibullNull:
    """How the Weibull fit of N independent weights from a parent law is distributed, for large N.

    Attributes:
        trim: t.
        parent: the law of the weights.
        shape: law of k̂.
        scale: law of λ̂, in the units of the parent's σ.
        r_squared: law of R². Its spread is nan for a parent that is itself Weibull, whose 1 − R² is of the order 1/N
            and not normal.
        scale_to_rms: law of λ̂ over the root mean square of the same sample, which does not ask for σ; its spread
            is nan where the parent has no fourth moment, and the ratio 0 where it has no second.
        covariance: N times the covariance matrix of (k̂, λ̂, R²).
    """

    trim: Fraction
    parent: Parent
    shape: LargeSampleLaw
    scale: LargeSampleLaw
    r_squared: LargeSampleLaw
    scale_to_rms: LargeSampleLaw
    covariance: Float[np.ndarray, "3 3"] = field(compare=False)

    def z_scores(self, fit: WeibullFit) -> WeibullScore:
        """z-scores of a fit with the same trim: (observed − mean)/standard deviation at the fit's N."""
        observed = (fit.shape, fit.scale, fit.r_squared, fit.scale / fit.rms)
        laws = (self.shape, self.scale, self.r_squared, self.scale_to_rms)
        return WeibullScore(*(float(law.z_score(x, fit.number)) for law, x in zip(laws, observed, strict=True)))

    @property
    def correlation(self) -> float:
        return float(self.covariance[0, 1] / math.sqrt(self.covariance[0, 0] * self.covariance[1, 1]))


def weibull_null(trim: float | Fraction = 0.1, distribution: str | Parent = "normal") -> WeibullNull:
    """The large-sample law of the fit of :func:`rmtbase.statistics.weibull_fit` to weights that come from a parent law.

    k̂, λ̂ and R² are smooth functionals of the empirical quantile function; their covariances are E[IF IF']/N with the
    influence functions of :class:`WeibullPlot`. The means carry the bias of order 1/N. With h = p(1−p), dX = dx/x along
    the parent's quantile function, brackets for means over [t, 1−t] and [·] for the difference of end values,

        N E δCov(X, Y) = ([h (Y − ⟨Y⟩) dX/dp] − ∫ h dY/dp dX) / (2(1−2t)),
        N E δVar(X)    = [h (X − ⟨X⟩) dX/dp] / (1−2t) − Var IF_⟨X⟩,    N E δ⟨X⟩ = [h dX/dp] / (2(1−2t)),

    for the plotting positions (i − 1/2)/N; they enter k̂ = Cov/Var to second order. At t = 0 the bias is of the order
    ln N/N and is left out.

    For independent weights (the elements of one product matrix are not). Asymptotic: standard deviations to a relative
    O(1/N), means to O(N^(-3/2)) where Nt is an integer and to O(1/N) where the trim rounds. The constants are
    numerical, to 1e-11. Arguments and errors as :func:`weibull_anchor`.
    """
    return _null(require_trim(trim), require_parent(distribution))


@lru_cache(maxsize=256)
def _null(trim: Fraction, parent: Parent) -> WeibullNull:
    plot = weibull_plot(parent, trim)
    influences = np.stack([plot.shape_influence, plot.scale * plot.log_scale_influence, plot.r_squared_influence])
    covariance = (influences * plot.grid.probability) @ influences.T
    covariance.flags.writeable = False
    limits = (plot.shape, plot.scale, plot.r_squared)
    shape, scale, r_squared = (
        LargeSampleLaw(limit, math.sqrt(variance), drift)
        for limit, variance, drift in zip(limits, np.diag(covariance), _drifts(plot), strict=True)
    )
    if 1 - r_squared.limit < _STRAIGHT:
        r_squared = replace(r_squared, spread=math.nan)
    return WeibullNull(trim, parent, shape, scale, r_squared, _scale_to_rms(plot), covariance)


def _scale_to_rms(plot: WeibullPlot) -> LargeSampleLaw:
    order = plot.grid.parent.moment_order()
    if order <= 2:
        return LargeSampleLaw(0.0, math.nan)
    square = np.exp(2 * plot.grid.log_x)
    mean_square = float(plot.grid.probability @ square)
    ratio = plot.scale / math.sqrt(mean_square)
    if order <= 4:
        return LargeSampleLaw(ratio, math.nan)
    influence = plot.log_scale_influence - (square / mean_square - 1) / 2
    return LargeSampleLaw(ratio, ratio * math.sqrt(plot.product_mean(influence, influence)))


def _drifts(plot: WeibullPlot) -> tuple[float, float, float]:
    """N times the bias of k̂, λ̂ and R²."""
    if not plot.trim:
        return math.nan, math.nan, math.nan
    k, c, v = plot.shape, plot.covariance, plot.x_variance
    mean_influence = plot.influence(np.ones_like(plot.x))
    c_influence, v_influence = plot.influence(plot.y), plot.influence(2 * plot.x)

    x_ends = np.log(plot.ends) - plot.x_mean
    density, cdf, sf = plot.grid.parent.law(np.array(plot.ends), FLOAT)
    edge = cdf * sf / (density * np.array(plot.ends))  # h dX/dp
    y_ends = np.log([-math.log1p(-plot.trim), -math.log(plot.trim)]) - plot.y_mean
    width = 1 - 2 * plot.trim
    # h dY/dp = p / (−ln S): the integral over dX of what the sampling error of X takes from Cov(X, Y)
    shared = plot.grid.running_integral(np.where(plot.kept, plot.grid.cdf / np.exp(plot.grid.log_hazard), 0.0))[-1]

    mean_drift = (edge[1] - edge[0]) / (2 * width)
    c_drift = (edge[1] * y_ends[1] - edge[0] * y_ends[0] - shared) / (2 * width)
    v_drift = (edge[1] * x_ends[1] - edge[0] * x_ends[0]) / width - plot.product_mean(mean_influence, mean_influence)
    shape_drift = (c_drift - k * v_drift - plot.product_mean(v_influence, plot.shape_influence)) / v
    shape_variance = plot.product_mean(plot.shape_influence, plot.shape_influence)
    log_scale_drift = mean_drift + plot.y_mean * (shape_drift - shape_variance / k) / k**2
    log_scale_variance = plot.product_mean(plot.log_scale_influence, plot.log_scale_influence)
    relative = c_influence / c - v_influence / v
    r_squared_drift = 2 * c_drift / c - v_drift / v + plot.product_mean(relative, relative)
    scale_drift = plot.scale * (log_scale_drift + log_scale_variance / 2)
    return float(shape_drift), float(scale_drift), float(plot.r_squared * r_squared_drift)


def weibull_body_tail_gap(
    distribution: str | Parent = "normal", body: float | Fraction = 0.1, full: float | Fraction = 0.0
) -> LargeSampleLaw:
    """The law of k̂(body) − k̂(full), shapes that two trims give for one and the same sample of independent weights.

    The "body–tail gap" k(80 %) − k(100 %) is a property of the fit and the parent before any training: 0.0543677 for
    normal weights. Its spread comes from the joint influence of a weight on both fits.

    ``distribution`` is that of :func:`weibull_anchor`, ``body`` the larger trim and ``full`` the smaller one.

    Raises:
        ParameterError: a trim outside [0, 1/2), body ≤ full, or an unknown distribution.
    """
    inner, outer, parent = require_trim(body), require_trim(full), require_parent(distribution)
    if inner <= outer:
        raise ParameterError("body", body, f"a trim above full = {full}")
    return _gap(parent, inner, outer)


@lru_cache(maxsize=64)
def _gap(parent: Parent, inner: Fraction, outer: Fraction) -> LargeSampleLaw:
    body, full = weibull_plot(parent, inner, [outer]), weibull_plot(parent, outer, [inner])
    influence = body.shape_influence - full.shape_influence
    spread = math.sqrt(body.product_mean(influence, influence))
    return LargeSampleLaw(body.shape - full.shape, spread, _drifts(body)[0] - _drifts(full)[0])


@in_one_line
class WeibullProductNull(NamedTuple):
    """Mean and standard deviation of the fit of one matrix.

    Attributes:
        shape: of k̂.
        scale: of λ̂, in the units of the elements.
        r_squared: of R².
    """

    shape: Moments
    scale: Moments
    r_squared: Moments


@takes(ProductKeywords)
def weibull_product_null(
    d_model: int,
    d_head: int,
    trim: float | Fraction = 0.1,
    **scale: Unpack[ProductKeywords],
) -> WeibullProductNull:
    """The law of :func:`rmtbase.statistics.weibull_fit` of the N = d_model² elements of one W_QK = W_Qᵀ W_K.

    Each statistic is its limit plus the average of an influence function IF over the elements. Elements that share a
    row or a column share its |q|², others nothing, so that (as :func:`rmtbase.laws.element_average`)

        variance = [Var IF(w) + 2 (d_model - 1) Var E(IF(w) | |q|²)] / N,

    where :func:`weibull_null` has the first term alone. The second makes the spread of λ̂ several times larger where
    d_model ≫ d_head, and leaves that of k̂ nearly as it is.

    Simulated: standard deviations right to 1 % at (64, 8), within the error of 2 % at (200, 16). The dependence biases
    k̂ by 0.07, λ̂ by 0.03 and R² by -0.06 standard deviations at (64, 8), by less than 0.03 at (200, 16).

    ``trim`` is t, 0 ≤ t < 1/2, the share left out at either end.

    Raises:
        ParameterError: as :func:`rmtbase.laws.low_rank_product`; a trim outside [0, 1/2).
    """
    law = product_element(d_model, d_head, **scale)
    trim, parent, n = require_trim(trim), VarianceGamma(law.std(), law.d_head), d_model**2
    plot, independent = weibull_plot(parent, trim), weibull_null(trim, parent)
    # The conditional law of |w| in a row, as weights on the nodes that carry the law of |w| itself.
    log_variance, weights = chi_square_rule(law.d_head)
    u = np.exp(plot.grid.log_x - 0.5 * log_variance[:, None]) / law.std()
    density = np.exp(-0.5 * u * u - 0.5 * log_variance[:, None])
    conditional = plot.grid.probability * density / (weights @ density)

    def moments(influence: np.ndarray, mean: float, spread: float) -> Moments:
        given_row = conditional @ influence
        shared = float(weights @ (given_row - weights @ given_row) ** 2)
        return Moments(mean, math.sqrt((spread**2 + 2.0 * (d_model - 1) * shared) / n), _METHOD)

    return WeibullProductNull(
        moments(plot.shape_influence, independent.shape.mean(n), independent.shape.spread),
        moments(plot.scale * plot.log_scale_influence, independent.scale.mean(n), independent.scale.spread),
        moments(plot.r_squared_influence, independent.r_squared.mean(n), independent.r_squared.spread),
    )
