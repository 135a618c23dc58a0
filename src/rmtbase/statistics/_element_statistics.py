"""Registry of element statistics: name, symbol, formula and code, each a function of an element sketch.

w are the n elements of a matrix, w̄ and s their mean and deviation (n − 1), |w|_(i) their ascending magnitudes, k̂ and
λ̂ the Weibull shape and scale by :func:`weibull_fit` with trim 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special

from rmtbase.reasons import Reason
from rmtbase.shown import in_one_line
from rmtbase.statistics._element_sketch import ElementSketch
from rmtbase.statistics._registry import registered

FEWEST_ELEMENTS = 100
"""Fewest numbers for which element statistics are given; for fewer, no null is known well enough."""

_COARSE, _FINE = 16, 64
_ENOUGH = 0.8  # share of distinct values in the middle half that suffices for small samples
_MOST_AT_ONCE = 8  # numbers that may coincide by chance in a small sample
_MOST_EQUAL = 0.025  # largest share of one value: more than that of any of 64 levels in the middle half


@in_one_line
@dataclass(frozen=True)
class ElementStatistic:
    """Scale-free statistic of the elements of a matrix."""

    name: str  #: its name in code, files and reports
    long_name: str  #: its name in words, for axes and tables
    symbol: str  #: in LaTeX
    formula: str  #: in LaTeX, or in words
    function: Callable[[ElementSketch], float]  #: maps a sketch to the statistic
    #: number of different values that the middle half of the numbers must take; with fewer, the statistic would only
    #: reflect how the numbers are stored. Statistics that need 64 levels use a density or ln |w|, and so also need
    #: numbers few of which are equal.
    levels: int = 0


def _tail(sketch: ElementSketch) -> float:
    fit = sketch.body
    return math.log10(fit.number) - (sketch.largest_magnitude / fit.scale) ** fit.shape / math.log(10.0)


def _closure(sketch: ElementSketch) -> float:
    fit, mean = sketch.body, sketch.magnitude_l_moments.location
    first, second = special.gamma(1.0 + np.array([1.0, 2.0]) / fit.shape)
    return fit.scale * math.sqrt((second - first**2) / (fit.rms**2 - mean**2)) - 1.0


def _decile_ratio(sketch: ElementSketch) -> float:
    low, high = sketch.magnitude_quantile((0.1, 0.9))
    return high / low


def _kl_matched(sketch: ElementSketch) -> float:
    # The two fitted parameters reduce the divergence by 1/n on average.
    return sketch.kl_to_normal(sketch.sums.mean, sketch.moments().std) + 1.0 / sketch.count


_ROWS: tuple[tuple[Any, ...], ...] = (
    ("mean", "mean", r"\bar w / s", r"\bar w / s", lambda x: x.moments().mean / x.moments().std),
    ("skewness", "skewness", r"\gamma_1", r"m_3 / m_2^{3/2}", lambda x: x.moments().skewness),
    ("excess_kurtosis", "excess kurtosis", r"\gamma_2", r"m_4 / m_2^2 - 3", lambda x: x.moments().excess_kurtosis),
    ("largest_magnitude", "largest magnitude", r"\max|w - \bar w| / s", r"\max_i |w_i - \bar w| / s",
     lambda x: x.moments().largest_magnitude),
    ("l_scale", "L-scale", r"\lambda_2 / s", r"\lambda_2 / s", lambda x: x.l_moments.scale / x.moments().std, _COARSE),
    ("l_skewness", "L-skewness", r"\tau_3", r"\lambda_3 / \lambda_2",
     lambda x: x.l_moments.third / x.l_moments.scale, _COARSE),
    ("l_kurtosis", "L-kurtosis", r"\tau_4", r"\lambda_4 / \lambda_2",
     lambda x: x.l_moments.fourth / x.l_moments.scale, _COARSE),
    ("entropy_residual", "entropy residual", r"\Delta S", r"S - \tfrac12 \ln(2 \pi e s^2)",
     lambda x: x.entropy() - x.matched_entropy(), _FINE),
    ("kl_matched_normal", "divergence from the matched normal law", r"D_{\mathrm{KL}}",
     r"D_{\mathrm{KL}}(w \,\|\, N(\bar w, s^2))", _kl_matched, _FINE),
    ("core_sigma", "standard deviation of the core", r"\sigma_{\mathrm{fit}} / s",
     r"\sigma_{\mathrm{fit}} / s, w_{(i)} \approx c + \sigma_{\mathrm{fit}} \Phi^{-1}(p_i)",
     lambda x: x.core.scale / x.moments().std, _COARSE),
    ("kl_core_normal", "divergence from the core's normal law", r"D_{\mathrm{KL}}^{\mathrm{core}}",
     r"D_{\mathrm{KL}}(w \,\|\, N(c, \sigma_{\mathrm{fit}}^2))", lambda x: x.kl_to_normal(*x.core), _FINE),
    ("histogram_entropy_residual", "entropy residual by a histogram", r"\Delta S_{\mathrm{hist}}",
     r"S_{\mathrm{hist}} - \tfrac12 \ln(2 \pi e s^2)", lambda x: x.histogram_entropy() - x.matched_entropy(), _FINE),
    ("kde_entropy_residual", "entropy residual by a kernel estimate", r"\Delta S_{\mathrm{KDE}}",
     r"S_{\mathrm{KDE}} - \tfrac12 \ln(2 \pi e s^2)", lambda x: x.kernel_entropy() - x.matched_entropy(), _FINE),
    ("max_to_q99", "largest magnitude over the 99th percentile", r"\max|w| / q_{99}", r"\max|w| / q_{99}(|w|)",
     lambda x: x.largest_magnitude / float(x.magnitude_quantile(0.99)), _COARSE),
    ("gini", "Gini index of magnitudes", "G", r"\lambda_2(|w|) / \lambda_1(|w|)",
     lambda x: x.magnitude_l_moments.scale / x.magnitude_l_moments.location, _COARSE),
    ("q90_to_q10", "ratio of the outer deciles of magnitudes", r"q_{90} / q_{10}", r"q_{90}(|w|) / q_{10}(|w|)",
     _decile_ratio, _FINE),
    ("log10_tail_probability", "log₁₀ of n times the body fit's tail probability of the largest magnitude",
     r"\log_{10} n P_{\mathrm{tail}}", r"\log_{10} n - (\max|w| / \hat\lambda)^{\hat k} / \ln 10", _tail, _FINE),
    ("weibull_shape", "Weibull shape", r"\hat k", r"\mathrm{Cov}(X, Y) / \mathrm{Var}(X)",
     lambda x: x.body.shape, _FINE),
    ("weibull_scale", "Weibull scale", r"\hat\lambda / \mathrm{rms}",
     r"\exp(\bar X - \bar Y / \hat k) / \mathrm{rms}", lambda x: x.body.scale / x.body.rms, _FINE),
    ("weibull_r_squared", "R² of the Weibull plot", "R^2", r"\mathrm{Corr}(X, Y)^2", lambda x: x.body.r_squared, _FINE),
    ("weibull_closure", "error of the Γ closure", r"\Delta_\Gamma",
     r"\hat\lambda \sqrt{\Gamma(1 + 2/\hat k) - \Gamma^2(1 + 1/\hat k)} / \mathrm{sd}(|w|) - 1", _closure, _FINE),
    ("body_tail_gap", "body-tail gap", r"\hat k_{0.1} - \hat k_0", r"\hat k_{0.1} - \hat k_0",
     lambda x: x.body.shape - x.whole.shape, _FINE),
    ("weibull_shape_ml", "Weibull shape by maximum likelihood", r"\hat k_{\mathrm{ML}}",
     r"1/k = \sum |w|^k \ln |w| / \sum |w|^k - \langle \ln |w| \rangle",
     lambda x: x.weibull_likelihood_fit.shape, _FINE),
    ("weibull_scale_ml", "Weibull scale by maximum likelihood", r"\hat\lambda_{\mathrm{ML}} / \mathrm{rms}",
     r"\langle |w|^{\hat k} \rangle^{1/\hat k} / \mathrm{rms}",
     lambda x: x.weibull_likelihood_fit.scale / x.sums.root_mean_square, _FINE),
)  # fmt: skip

ELEMENT_STATISTICS = {statistic.name: statistic for statistic in starmap(ElementStatistic, _ROWS)}
"""Element statistics by name, in the order in which tables list them; none depends on the scale of the elements."""

MOMENT_STATISTICS = tuple(ELEMENT_STATISTICS)[:4]
"""Names of the statistics that follow from the moments."""


def element_statistics(
    sketch: ElementSketch, names: Iterable[str] = tuple(ELEMENT_STATISTICS)
) -> Float[np.ndarray, " statistic"]:
    """Element statistics of a sketch, in the order of ``names``; NaN if :func:`reason_against` gives a reason.

    Raises:
        ParameterError: a name is unknown.
    """
    return np.array([_value(sketch, registered(ELEMENT_STATISTICS, name, "names"))[0] for name in names])


def reason_against(sketch: ElementSketch, name: str) -> Reason:
    return _value(sketch, registered(ELEMENT_STATISTICS, name))[1]


def _value(sketch: ElementSketch, statistic: ElementStatistic) -> tuple[float, Reason]:
    n, levels, reason = int(sketch.count), statistic.levels, Reason()
    if n < FEWEST_ELEMENTS:
        reason = Reason("few_numbers", {"count": n, "fewest": FEWEST_ELEMENTS})
    elif sketch.moments().std == 0.0:
        reason = Reason("all_equal")
    elif sketch.levels < min(levels, _ENOUGH * n / 2):
        reason = Reason("tied", {"levels": int(sketch.levels), "needed": levels})
    elif levels >= _FINE and sketch.unexplained_zeros:
        reason = Reason("zeros", {"zeros": int(sketch.bins.zeros), "count": n})
    elif levels >= _FINE and sketch.equal > _MOST_EQUAL * n + _MOST_AT_ONCE:
        reason = Reason("equal_numbers", {"equal": int(sketch.equal), "count": n})
    value = math.nan if reason else statistic.function(sketch)
    if reason or math.isfinite(value):
        return value, reason
    extremes = {"smallest": float(sketch.sums.smallest), "largest": float(sketch.sums.largest)}
    return math.nan, Reason("not_finite", extremes)
