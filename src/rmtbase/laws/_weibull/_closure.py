"""The Γ closure: how well the moments of the fitted Weibull law reproduce those of the weights it was fitted to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._weibull._null import LargeSampleLaw
from rmtbase.laws._weibull._plot import WeibullPlot, weibull_plot
from rmtbase.laws._weibull.parents import Parent, require_parent
from rmtbase.parameters import require_trim
from rmtbase.shown import in_one_line


@in_one_line
@dataclass(frozen=True)
class WeibullClosure:
    """Laws of the ratios (moment of the fitted Weibull law)/(the same moment of the weights), 1 where closure holds.

    Attributes:
        mean: λ̂ Γ(1+1/k̂) over the mean of |w|.
        rms: λ̂ √Γ(1+2/k̂) over √⟨w²⟩.
        std: λ̂ √(Γ(1+2/k̂) − Γ²(1+1/k̂)) over the standard deviation of |w|.
        std_to_rms: the same Weibull standard deviation over √⟨w²⟩, the standard deviation of the signed weights.
        trimmed_mean: the means of the middle 1 − 2t of both laws.
        trimmed_rms: the root mean squares of the middle 1 − 2t of both laws.
        trimmed_std: the standard deviations of the middle 1 − 2t of both laws.
    """

    mean: LargeSampleLaw
    rms: LargeSampleLaw
    std: LargeSampleLaw
    std_to_rms: LargeSampleLaw
    trimmed_mean: LargeSampleLaw
    trimmed_rms: LargeSampleLaw
    trimmed_std: LargeSampleLaw


def weibull_closure(trim: float | Fraction = 0.1, distribution: str | Parent = "normal") -> WeibullClosure:
    """The closure ratios of the Weibull fit of N independent weights from a parent law, under every reading.

    The spread of each ratio comes from the joint influence of a weight on k̂, λ̂ and the sample moment. A moment that
    the parent does not have makes the ratio 0 and its spread nan, one whose variance is infinite the spread nan.
    Numerical to 1e-11; asymptotic in N, without the bias of order 1/N. Arguments and errors as :func:`weibull_anchor`.
    """
    return _closure(require_trim(trim), require_parent(distribution))


@dataclass(frozen=True)
class _Positive:
    """A positive statistic and the influence function of its logarithm."""

    value: float
    log_influence: FloatArray

    def ratio_to(self, other: _Positive, probability: FloatArray) -> LargeSampleLaw:
        ratio = self.value / other.value
        difference = self.log_influence - other.log_influence
        return LargeSampleLaw(ratio, ratio * math.sqrt(probability @ (difference * difference)))


@lru_cache(maxsize=64)
def _closure(trim: Fraction, parent: Parent) -> WeibullClosure:
    plot = weibull_plot(parent, trim)
    whole = WeibullPlot(plot.grid, 0.0, (0.0, math.inf))
    order, probability = parent.moment_order(), plot.grid.probability

    def compare(window: WeibullPlot) -> list[LargeSampleLaw]:
        fitted, found = _fitted_moments(plot, window), _moments(window)
        pairs = [*zip(fitted, found, strict=True), (fitted[2], found[1])]
        return [first.ratio_to(second, probability) for first, second in pairs]

    with np.errstate(over="ignore", invalid="ignore"):  # of moments that do not exist, replaced below
        ratios = compare(whole)
    for index, power in enumerate((1, 2, 2, 2)):
        if order <= 2 * power:
            ratios[index] = LargeSampleLaw(ratios[index].limit if order > power else 0.0, math.nan)
    return WeibullClosure(*ratios, *compare(plot)[:3])


def _moments(window: WeibullPlot) -> list[_Positive]:
    """Mean, root mean square and standard deviation of the weights inside the window's trims."""
    x = np.exp(window.grid.log_x)
    first, second = window.average(x), window.average(x * x)
    return _mean_rms_std(first, second, window.influence(x), window.influence(2 * x * x))


def _fitted_moments(plot: WeibullPlot, window: WeibullPlot) -> list[_Positive]:
    """The same of the Weibull law fitted to ``plot``, with quantile function λ exp(Y/k)."""
    k = plot.shape
    x = np.exp(window.grid.log_hazard / k) * plot.scale

    def moment(power: int) -> tuple[float, FloatArray]:
        value = window.average(x**power)
        by_shape = -power / k**2 * window.average(window.grid.log_hazard * x**power)
        return value, power * value * plot.log_scale_influence + by_shape * plot.shape_influence

    (first, first_influence), (second, second_influence) = moment(1), moment(2)
    return _mean_rms_std(first, second, first_influence, second_influence)


def _mean_rms_std(
    first: float, second: float, first_influence: FloatArray, second_influence: FloatArray
) -> list[_Positive]:
    """From the moments of orders 1 and 2 and their influence functions."""
    variance = second - first * first
    return [
        _Positive(first, first_influence / first),
        _Positive(math.sqrt(second), second_influence / (2 * second)),
        _Positive(math.sqrt(variance), (second_influence - 2 * first * first_influence) / (2 * variance)),
    ]
