"""Sampling laws of the Weibull fit of N weights, and of its Γ closure: fitted moments over those of the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, Unpack

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import ndtr

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray, Moments
from rmtbase.laws._element._expansion import Expansion, mean_square
from rmtbase.laws._element._product_element import product_element
from rmtbase.laws._element._product_sum import SharedNorms
from rmtbase.laws._element.parents import Parent, VarianceGamma, require_parent
from rmtbase.laws._parameters import ProductKeywords, takes
from rmtbase.laws._weibull._plot import WeibullPlot, weibull_plot
from rmtbase.parameters import require_positive_integer, require_real_numbers, require_trim
from rmtbase.shown import in_one_line

_STRAIGHT = 1e-12  # a Weibull plot with 1 − R² below this is a straight line
_METHOD = (
    "influence functions at the elements' exact covariance; neglected in the mean: the dependence, 1/(d_model d_head)"
)


@dataclass(frozen=True)
class LargeSampleLaw:
    """Mean ``limit`` + ``drift``/N and standard deviation ``spread``/√N; both neglect terms of order N^(-3/2).

    Attributes:
        limit: the value for N → ∞, which is that of the parent law itself.
        spread: √N times the standard deviation; nan if the variance is infinite.
        drift: N times the bias; nan if it is unknown or not of order 1/N, and then left out of the mean.
    """

    limit: float
    spread: float
    drift: float = math.nan

    @classmethod
    def from_expansion(cls, statistic: Expansion) -> LargeSampleLaw:
        return cls(statistic.value, math.sqrt(statistic.variance), statistic.drift)

    def mean(self, n: int) -> float:
        n = require_positive_integer("n", n)
        return self.limit + (0.0 if math.isnan(self.drift) else self.drift / n)

    def std(self, n: int) -> float:
        return self.spread / math.sqrt(require_positive_integer("n", n))

    def z_score(self, observed: ArrayLike, n: int) -> FloatArray:
        """(observed − mean)/std, same shape as ``observed``."""
        return (require_real_numbers("observed", observed) - self.mean(n)) / self.std(n)

    def p_value(self, observed: ArrayLike, n: int) -> FloatArray:
        """Two-sided P(|Z| ≥ |z|), same shape as ``observed``."""
        return 2.0 * ndtr(-np.abs(self.z_score(observed, n)))


@in_one_line
@dataclass(frozen=True)
class WeibullNull:
    """Large-sample laws of the Weibull fit of N independent weights from a parent law.

    Attributes:
        trim, parent: t, and the law of the weights.
        shape, scale: laws of k̂, and of λ̂ in the units of the parent's σ.
        r_squared: law of R². Its spread is nan for a Weibull parent, for which 1 − R² is of order 1/N and not normal.
        scale_to_rms: law of λ̂ over the root mean square of the same sample, which does not require σ. Its spread is
            nan if the parent has no fourth moment, and the ratio is 0 if it has no second moment.
        covariance: N times the covariance matrix of (k̂, λ̂, R²).
    """

    trim: Fraction
    parent: Parent
    shape: LargeSampleLaw
    scale: LargeSampleLaw
    r_squared: LargeSampleLaw
    scale_to_rms: LargeSampleLaw
    covariance: Float[np.ndarray, "3 3"] = field(compare=False)

    @property
    def correlation(self) -> float:
        return float(self.covariance[0, 1] / math.sqrt(self.covariance[0, 0] * self.covariance[1, 1]))


def weibull_null(trim: float | Fraction = 0.1, distribution: str | Parent = "normal") -> WeibullNull:
    """Return the large-sample law of :func:`rmtbase.statistics.weibull_fit` for independent weights from a parent law.

    k̂, λ̂ and R² are smooth functionals of the empirical law (:class:`Expansion`). Their covariances are E[IF IF']/N,
    and their biases of order 1/N are those for plotting positions (i − 1/2)/N. At t = 0 the bias is of order ln N/N and
    is left out. Standard deviations are right to a relative O(1/N), means to O(N^(-3/2)) where Nt is an integer and to
    O(1/N) where the trim is rounded. The constants are numerical, to 1e-11. Arguments and errors as for
    :func:`weibull_anchor`.
    """
    return _null(require_trim(trim), require_parent(distribution))


@lru_cache(maxsize=256)
def _null(trim: Fraction, parent: Parent) -> WeibullNull:
    plot = weibull_plot(parent, trim)
    fitted = (plot.sample_shape, plot.sample_log_scale.exp(), plot.sample_r_squared)
    covariance = np.array([[first.covariance(second) for second in fitted] for first in fitted])
    covariance.flags.writeable = False
    shape, scale, r_squared = map(LargeSampleLaw.from_expansion, fitted)
    if 1 - r_squared.limit < _STRAIGHT:
        r_squared = replace(r_squared, spread=math.nan)
    order, to_rms = parent.moment_order(), LargeSampleLaw(0.0, math.nan)
    if order > 2:
        square = mean_square(plot.grid)
        to_rms = LargeSampleLaw(plot.scale / math.sqrt(square.value), math.nan)
        if order > 4:
            to_rms = LargeSampleLaw.from_expansion((plot.sample_log_scale - 0.5 * square.log()).exp())
    return WeibullNull(trim, parent, shape, scale, r_squared, to_rms, covariance)


def weibull_body_tail_gap(
    distribution: str | Parent = "normal", body: float | Fraction = 0.1, full: float | Fraction = 0.0
) -> LargeSampleLaw:
    """Return the law of k̂(body) − k̂(full), the difference of the shapes at two trims of one sample.

    The weights are independent. The "body–tail gap" k(80 %) − k(100 %) is a property of the fit and the parent before
    any training: 0.0543677 for normal weights. Its spread comes from the joint influence of a weight on both fits.
    Arguments and errors as for :func:`weibull_anchor`; ``body`` must exceed ``full``.
    """
    inner, outer, parent = require_trim(body, "body"), require_trim(full, "full"), require_parent(distribution)
    if inner <= outer:
        raise ParameterError("body", body, f"a trim above full = {full}")
    return LargeSampleLaw.from_expansion(body_tail_gap(parent, inner, outer))


@lru_cache(maxsize=64)
def body_tail_gap(parent: Parent, inner: Fraction, outer: Fraction) -> Expansion:
    body, full = weibull_plot(parent, inner, (outer,)), weibull_plot(parent, outer, (inner,))
    return body.sample_shape - full.sample_shape


@in_one_line
class WeibullProductNull(NamedTuple):
    """Mean and standard deviation of the Weibull fit of one matrix."""

    shape: Moments  # moments of k̂
    scale: Moments  # moments of λ̂, in the units of the elements
    r_squared: Moments  # moments of R²


@takes(ProductKeywords)
def weibull_product_null(
    d_model: int, d_head: int, trim: float | Fraction = 0.1, **scale: Unpack[ProductKeywords]
) -> WeibullProductNull:
    """Return the law of :func:`rmtbase.statistics.weibull_fit` for the N = d_model² elements of one W_QK = W_Qᵀ W_K.

        variance = [Var IF(w) + 2 (d_model - 1) Var E(IF(w) | |q|²)] / N,

    IF the influence function (as ``laws.element_average``). Standard deviations are right to 1 % at (64, 8), 2 % at
    (200, 16); the dependence biases k̂ by 0.07, λ̂ by 0.03 and R² by -0.06 of them at (64, 8). ``trim`` is t, 0 ≤ t <
    1/2.
    """
    law = product_element(d_model, d_head, **scale)
    trim, parent, n = require_trim(trim), VarianceGamma(law.std(), law.d_head), d_model**2
    plot = weibull_plot(parent, trim)
    norms = SharedNorms(plot.grid)

    def moments(statistic: Expansion) -> Moments:
        independent = LargeSampleLaw.from_expansion(statistic)
        variance = independent.spread**2 + 2.0 * (d_model - 1) * norms.shared(statistic.influence, statistic.influence)
        return Moments(independent.mean(n), math.sqrt(variance / n), _METHOD)

    return WeibullProductNull(
        moments(plot.sample_shape), moments(plot.sample_log_scale.exp()), moments(plot.sample_r_squared)
    )


@in_one_line
@dataclass(frozen=True)
class WeibullClosure:
    """Laws of the ratios (moment of the fitted Weibull law)/(same moment of the weights), which are 1 if closure holds.

    Attributes:
        mean: λ̂ Γ(1+1/k̂) over the mean of |w|.
        rms: λ̂ √Γ(1+2/k̂) over √⟨w²⟩.
        std: λ̂ √(Γ(1+2/k̂) − Γ²(1+1/k̂)) over the standard deviation of |w|.
        std_to_rms: the same Weibull standard deviation over √⟨w²⟩, the standard deviation of the signed weights.
        trimmed_mean, trimmed_rms, trimmed_std: the same for the middle 1 − 2t of both laws.
    """

    mean: LargeSampleLaw
    rms: LargeSampleLaw
    std: LargeSampleLaw
    std_to_rms: LargeSampleLaw
    trimmed_mean: LargeSampleLaw
    trimmed_rms: LargeSampleLaw
    trimmed_std: LargeSampleLaw


def weibull_closure(trim: float | Fraction = 0.1, distribution: str | Parent = "normal") -> WeibullClosure:
    """Return the laws of all closure ratios of the Weibull fit of N independent weights from a parent law.

    The spread of each ratio comes from the joint influence of a weight on k̂, λ̂ and the sample moment. If the parent
    does not have the moment, the ratio is 0 and its spread nan; if the moment has infinite variance, the spread is nan.
    Numerical to 1e-11; asymptotic in N. Arguments and errors as for :func:`weibull_anchor`.
    """
    return _closure(require_trim(trim), require_parent(distribution))


@lru_cache(maxsize=64)
def _closure(trim: Fraction, parent: Parent) -> WeibullClosure:
    plot = weibull_plot(parent, trim)
    untrimmed = WeibullPlot(plot.grid, 0.0, (0.0, math.inf))
    order = parent.moment_order()

    def compare(window: WeibullPlot) -> list[LargeSampleLaw]:
        fitted, moments = _fitted_moments(plot, window), _moments(window)
        pairs = [*zip(fitted, moments, strict=True), (fitted[2], moments[1])]
        return [LargeSampleLaw.from_expansion(first / second) for first, second in pairs]

    with np.errstate(over="ignore", invalid="ignore"):  # moments that do not exist are replaced below
        ratios = compare(untrimmed)
    for index, power in enumerate((1, 2, 2, 2)):
        if order <= 2 * power:
            ratios[index] = LargeSampleLaw(ratios[index].limit if order > power else 0.0, math.nan)
    return WeibullClosure(*ratios, *compare(plot)[:3])


def std_closure(parent: Parent) -> Expansion:
    """Return the expansion of the closure of the standard deviation, minus 1, of a sample at a trim of 0.1."""
    plot = weibull_plot(parent)
    untrimmed = WeibullPlot(plot.grid, 0.0, (0.0, math.inf))
    return _fitted_moments(plot, untrimmed)[2] / _moments(untrimmed)[2] + -1.0


def _moments(window: WeibullPlot) -> list[Expansion]:
    first, second = (
        window.trimmed_mean(lambda x, p=p: np.exp(p * x), lambda x, p=p: p * np.exp(p * x)) for p in (1, 2)
    )
    return _mean_rms_std(first, second)


def _fitted_moments(plot: WeibullPlot, window: WeibullPlot) -> list[Expansion]:
    y, stretch = window.grid.log_hazard, plot.sample_shape.power(-1.0)

    def moment(power: int) -> Expansion:
        relative = np.exp(power * y * stretch.value)
        derivatives = (window.average((power * y) ** order * relative) for order in range(3))
        return stretch.map(*derivatives) * (power * plot.sample_log_scale).exp()

    return _mean_rms_std(moment(1), moment(2))


def _mean_rms_std(first: Expansion, second: Expansion) -> list[Expansion]:
    return [first, second.power(0.5), (second - first * first).power(0.5)]
