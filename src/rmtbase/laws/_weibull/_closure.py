"""Γ closure: ratios of the moments of the fitted Weibull law to the moments of the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from rmtbase.laws._element._expansion import Expansion
from rmtbase.laws._element.parents import Parent, require_parent
from rmtbase.laws._weibull._null import LargeSampleLaw
from rmtbase.laws._weibull._plot import WeibullPlot, weibull_plot
from rmtbase.parameters import require_trim
from rmtbase.shown import in_one_line


@in_one_line
@dataclass(frozen=True)
class WeibullClosure:
    """Laws of the ratios (moment of the fitted Weibull law)/(same moment of the weights), which are 1 if closure holds.

    Attributes:
        mean: λ̂ Γ(1+1/k̂) over the mean of |w|.
        rms: λ̂ √Γ(1+2/k̂) over √⟨w²⟩.
        std: λ̂ √(Γ(1+2/k̂) − Γ²(1+1/k̂)) over the standard deviation of |w|.
        std_to_rms: the same Weibull standard deviation over √⟨w²⟩, the standard deviation of the signed weights.
        trimmed_mean: ratio of the means of the middle 1 − 2t of both laws.
        trimmed_rms: ratio of the root mean squares of the middle 1 − 2t of both laws.
        trimmed_std: ratio of the standard deviations of the middle 1 − 2t of both laws.
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
    plot = weibull_plot(parent, Fraction(1, 10))
    untrimmed = WeibullPlot(plot.grid, 0.0, (0.0, math.inf))
    return _fitted_moments(plot, untrimmed)[2] / _moments(untrimmed)[2] + -1.0


def _moments(window: WeibullPlot) -> list[Expansion]:
    """Return mean, root mean square and standard deviation of the weights between the trims of the window."""
    first, second = (
        window.trimmed_mean(lambda x, p=p: np.exp(p * x), lambda x, p=p: p * np.exp(p * x)) for p in (1, 2)
    )
    return _mean_rms_std(first, second)


def _fitted_moments(plot: WeibullPlot, window: WeibullPlot) -> list[Expansion]:
    """Return the same three for the Weibull law fitted to ``plot``, with quantile function λ exp(Y/k)."""
    y, stretch = window.grid.log_hazard, plot.sample_shape.power(-1.0)

    def moment(power: int) -> Expansion:
        relative = np.exp(power * y * stretch.value)
        derivatives = (window.average((power * y) ** order * relative) for order in range(3))
        return stretch.map(*derivatives) * (power * plot.sample_log_scale).exp()

    return _mean_rms_std(moment(1), moment(2))


def _mean_rms_std(first: Expansion, second: Expansion) -> list[Expansion]:
    """Return mean, root mean square and standard deviation from the moments of orders 1 and 2."""
    return [first, second.power(0.5), (second - first * first).power(0.5)]
