"""Integrals over the law of |w| at any precision: the double exponential rule, halved until it no longer moves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise

from rmtbase.laws._weibull._arithmetic import Number, multiprecision
from rmtbase.laws._weibull.parents import Parent

Integrand = Callable[[Number, Number, Number], tuple[Number, ...]]
"""(x, F, S) ↦ the values whose mean is wanted."""

_GUARD = 15  # decimal digits carried beyond those asked for
_MOST_HALVINGS = 14
_MOST_NEWTON_STEPS = 60


def working_digits(digits: int) -> int:
    """The decimal digits that a result of ``digits`` digits is computed with."""
    return digits + _GUARD


def integrate(parent: Parent, low: Number, high: Number, integrand: Integrand, digits: int) -> list[Number]:
    """∫ integrand dF over low < x < high to ``digits`` decimal digits, at mpmath's working precision.

    Tanh–sinh on a bounded interval, x = low + u·exp((π/2) sinh t) on an unbounded one (Takahasi and Mori 1974), which
    bears the logarithmic singularities of ln x at 0 and of ln(−ln S) at the upper end. Intervals end at the parent's
    kinks. Numerical: the step is halved until the values agree to ``digits`` + 3 digits.
    """
    fn = multiprecision()
    inner = [kink for kink in parent.kinks(fn) if low < kink < high]
    parts = [_integrate(parent, a, b, integrand, digits) for a, b in pairwise([low, *inner, high])]
    return [sum(values) for values in zip(*parts, strict=True)]


def _integrate(parent: Parent, low: Number, high: Number, integrand: Integrand, digits: int) -> list[Number]:
    from mpmath import mp

    fn, unit = multiprecision(), parent.unit(multiprecision())
    negligible, tolerance = mp.eps, mp.mpf(10) ** -(digits + 3)

    def abscissa(t: Number) -> tuple[Number, Number]:
        """X and dx/dt."""
        if mp.isinf(high):
            step = unit * mp.exp(mp.pi / 2 * mp.sinh(t))
            return low + step, step * mp.pi / 2 * mp.cosh(t)
        tail = mp.exp(-mp.pi * mp.sinh(abs(t)))
        near = (high - low) * tail / (1 + tail)
        return (high - near if t > 0 else low + near), near / (1 + tail) * mp.pi * mp.cosh(t)

    def half_line(step: Number, direction: int, first: int, stride: int) -> list[Number]:
        total = None
        for index in count(first, stride):
            x, slope = abscissa(direction * index * step)
            density, cdf, sf = parent.law(x, fn)
            weight = density * slope
            if (weight < negligible and index * step > 1) or not (cdf > 0 and sf > 0 and low < x < high):
                break
            values = [weight * value for value in integrand(x, cdf, sf)]
            total = values if total is None else [a + b for a, b in zip(total, values, strict=True)]
        return total or []

    step = mp.mpf(1) / 2
    sums = half_line(step, 1, 0, 1)
    sums = [a + b for a, b in zip(sums, half_line(step, -1, 1, 1), strict=True)]
    for _ in range(_MOST_HALVINGS):
        step /= 2
        odd = (half_line(step, 1, 1, 2), half_line(step, -1, 1, 2))
        finer = [a + b + c for a, b, c in zip(sums, *odd, strict=True)]
        moved = max(abs(2 * a - b) * step / max(1, abs(b) * step) for a, b in zip(sums, finer, strict=True))
        sums = finer
        if moved < tolerance:
            return [value * step for value in sums]
    raise ArithmeticError(f"the double exponential rule has not converged to {digits} digits for {parent}")


def quantile(parent: Parent, probability: Number, upper: bool, digits: int) -> Number:
    """The x with F(x) = ``probability``, or with S(x) = ``probability`` where ``upper``; Newton's iteration in ln x."""
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
