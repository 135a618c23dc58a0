"""Weibull anchor: the probability-plot fit of a Weibull law to a parent law, without sampling error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmtbase.laws._element._arithmetic import GUARD, Number, decimal, multiprecision
from rmtbase.laws._element.parents import Parent, require_parent
from rmtbase.laws._weibull._plot import weibull_plot
from rmtbase.parameters import require_positive_integer, require_trim
from rmtbase.shown import in_one_line

_MOST_HALVINGS, _MOST_NEWTON_STEPS = 14, 60
_DOUBLE_DIGITS = 15  # up to this number the floats come from double-precision panels


class Decimals(NamedTuple):
    shape: str
    scale: str
    r_squared: str


@in_one_line
@dataclass(frozen=True)
class WeibullAnchor:
    """Weibull fit of a parent law.

    Attributes:
        trim: t, the probability that is left out at either end.
        parent: the law of the weights.
        digits: requested number of significant digits.
        shape: k₀, dimensionless.
        scale: λ₀, in the units of the parent's σ.
        r_squared: the squared correlation of X and Y.
    """

    trim: Fraction
    parent: Parent
    digits: int
    shape: float
    scale: float
    r_squared: float

    @property
    def decimals(self) -> Decimals:
        """Shape, scale and R² rounded to :attr:`digits` significant digits, by mpmath; computed on first use."""
        from mpmath import mp

        with mp.workdps(self.digits + GUARD):
            values = _exact_anchor(self.trim, self.parent, self.digits)
            return Decimals(*(decimal(value, self.digits) for value in values))


def weibull_anchor(
    trim: float | Fraction = 0.1, distribution: str | Parent = "normal", digits: int = _DOUBLE_DIGITS
) -> WeibullAnchor:
    """Return shape, scale and R² of the least-squares line on the Weibull plot of a parent law.

    Y = ln(−ln(1−F)) is regressed on X = ln x(F), with x(F) the quantile function of |w|, over F uniform on [t, 1−t]: k₀
    = Cov(X, Y)/Var(X), λ₀ = exp(mean X − mean Y/k₀), R² = Cov(X, Y)²/(Var(X) Var(Y)) (T. Ding, arXiv:2605.18898 (2026),
    appendix A.1, for the half-normal law at t = 0.1).

    Args:
        trim: t, 0 ≤ t < 1/2; 0.1 keeps the "middle 80 %". A float is taken as a decimal: 0.1 means 1/10.
        distribution: a parent law, or the name of one that needs no parameter: "normal", "uniform",
            "truncated_normal" (at 2 σ), "laplace" or "logistic", each at σ = 1.
        digits: significant digits of :attr:`WeibullAnchor.decimals`, 1 to 1000. Up to 15 the floats come from
            double-precision panels, with relative errors within 1e-14 (1e-10 for trims near 1/2 and at the ends of the
            ranges of a parent's parameters); for more they are rounded from mpmath's.

    Raises:
        ParameterError: for a trim outside [0, 1/2), an unknown distribution, or other digits.
    """
    trim, parent = require_trim(trim), require_parent(distribution)
    digits = require_positive_integer("digits", digits, 1_000)
    if digits <= _DOUBLE_DIGITS:
        return WeibullAnchor(trim, parent, digits, *_float_anchor(trim, parent))
    values = _exact_anchor(trim, parent, digits)
    return WeibullAnchor(trim, parent, digits, *(float(value) for value in values))


@lru_cache(maxsize=256)
def _float_anchor(trim: Fraction, parent: Parent) -> tuple[float, float, float]:
    plot = weibull_plot(parent, trim)
    return plot.shape, plot.scale, plot.r_squared


@lru_cache(maxsize=64)
def _exact_anchor(trim: Fraction, parent: Parent, digits: int) -> tuple[Number, Number, Number]:
    from mpmath import mp

    fn = multiprecision()

    def plot(x: Number, cdf: Number, sf: Number) -> tuple[Number, ...]:
        log_x, y = mp.log(x), mp.log(-mp.log(sf) if sf < 0.5 else -mp.log1p(-cdf))
        return mp.one, log_x, y, log_x * log_x, log_x * y, y * y

    tail_digits = math.ceil(-math.log10(trim)) if trim else 0  # lost by S = 1 − F at the upper trim
    with mp.workdps(digits + GUARD + tail_digits):
        t = fn.number(trim)
        low = _quantile(parent, t, False, digits) if trim else mp.zero
        high = _quantile(parent, t, True, digits) if trim else parent.upper(fn)
        inner = [kink for kink in parent.kinks(fn) if low < kink < high]
        pieces = [_integral(parent, start, stop, plot, digits) for start, stop in pairwise([low, *inner, high])]
        mass, *sums = np.sum(pieces, axis=0)
        x, y, xx, xy, yy = (value / mass for value in sums)
        covariance, x_variance, y_variance = xy - x * y, xx - x * x, yy - y * y
        shape = covariance / x_variance
        return shape, mp.exp(x - y / shape), shape * covariance / y_variance


def _integral(
    parent: Parent, low: Number, high: Number, integrand: Callable[..., tuple[Number, ...]], digits: int
) -> NDArray[np.object_]:
    """∫ integrand(x, F, S) dF between kinks, by tanh–sinh; x = low + u·exp((π/2) sinh t) on an unbounded interval."""
    from mpmath import mp

    fn, unit = multiprecision(), parent.unit(multiprecision())
    negligible, tolerance = mp.eps, mp.mpf(10) ** -(digits + 3)

    def abscissa(t: Number) -> tuple[Number, Number]:
        if mp.isinf(high):
            step = unit * mp.exp(mp.pi / 2 * mp.sinh(t))
            return low + step, step * mp.pi / 2 * mp.cosh(t)
        tail = mp.exp(-mp.pi * mp.sinh(abs(t)))
        near = (high - low) * tail / (1 + tail)
        return (high - near if t > 0 else low + near), near / (1 + tail) * mp.pi * mp.cosh(t)

    def half_line(step: Number, direction: int, first: int, stride: int) -> Number:
        total = 0
        for index in count(first, stride):
            x, slope = abscissa(direction * index * step)
            density, cdf, sf = parent.law(x, fn)
            weight = density * slope
            if (weight < negligible and index * step > 1) or not (cdf > 0 and sf > 0 and low < x < high):
                break
            total = np.array(integrand(x, cdf, sf), dtype=object) * weight + total
        return total

    step = mp.mpf(1) / 2
    sums = half_line(step, 1, 0, 1) + half_line(step, -1, 1, 1)
    for _ in range(_MOST_HALVINGS):
        step /= 2
        finer = sums + half_line(step, 1, 1, 2) + half_line(step, -1, 1, 2)
        moved = max(abs(2 * a - b) * step / max(1, abs(b) * step) for a, b in zip(sums, finer, strict=True))
        sums = finer
        if moved < tolerance:
            return sums * step
    raise ArithmeticError(f"the double exponential rule has not converged to {digits} digits for {parent}")


def _quantile(parent: Parent, probability: Number, upper: bool, digits: int) -> Number:
    """Find x with F(x) = ``probability``, or S(x) = ``probability`` if ``upper``, by Newton's method in ln x."""
    from mpmath import mp

    fn = multiprecision()
    logit = float(mp.log(probability) - mp.log1p(-probability))
    log_x = mp.log(mp.mpf(float(parent.quantile_at_logit(-logit if upper else logit))))
    for _ in range(_MOST_NEWTON_STEPS):
        x = mp.exp(log_x)
        density, cdf, sf = parent.law(x, fn)
        change = (probability - sf if upper else cdf - probability) / (density * x)
        log_x -= change
        if abs(change) < mp.mpf(10) ** -(digits + 5):
            return mp.exp(log_x)
    raise ArithmeticError(f"the quantile at {probability} has not converged for {parent}")
