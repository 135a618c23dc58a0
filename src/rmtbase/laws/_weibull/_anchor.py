"""The Weibull anchor: what a probability-plot fit of a Weibull law gives for a parent law, without sampling error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from rmtbase.errors import ParameterError
from rmtbase.laws._weibull._arithmetic import Number, decimal, multiprecision
from rmtbase.laws._weibull._double_exponential import integrate, quantile, working_digits
from rmtbase.laws._weibull._plot import weibull_plot
from rmtbase.laws._weibull.parents import Laplace, Logistic, Normal, Parent, TruncatedNormal, Uniform
from rmtbase.parameters import require_positive_integer, require_trim

PARENTS: dict[str, Parent] = {
    "normal": Normal(),
    "uniform": Uniform(),
    "truncated_normal": TruncatedNormal(),
    "laplace": Laplace(),
    "logistic": Logistic(),
}
"""The parents that need no parameter, by name."""

_DOUBLE_DIGITS = 15  # up to which the floats come from double-precision panels


class Decimals(NamedTuple):
    """The anchor as decimal strings."""

    shape: str
    scale: str
    r_squared: str


@dataclass(frozen=True)
class WeibullAnchor:
    """The Weibull fit of a parent law.

    Attributes:
        trim: t, the probability that is left out at either end.
        parent: the law of the weights.
        digits: significant digits asked for.
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

        with mp.workdps(working_digits(self.digits)):
            values = _exact_anchor(self.trim, self.parent, self.digits)
            return Decimals(*(decimal(value, self.digits) for value in values))


def weibull_anchor(
    trim: float | Fraction = 0.1, distribution: str | Parent = "normal", digits: int = _DOUBLE_DIGITS
) -> WeibullAnchor:
    """Shape, scale and R² of the least-squares line on the Weibull plot of a parent law.

    Y = ln(−ln(1−F)) is regressed on X = ln x(F), x(F) the quantile function of |w|, over F uniform on [t, 1−t]:
    k₀ = Cov(X, Y)/Var(X), λ₀ = exp(mean X − mean Y/k₀), R² = Cov(X, Y)²/(Var(X) Var(Y)).

    Args:
        trim: t, 0 ≤ t < 1/2; 0.1 is the "middle 80 %". A float is taken as it is written: 0.1 means 1/10.
        distribution: a parent law, or the name of one that needs no parameter: "normal", "uniform",
            "truncated_normal" (at 2 σ), "laplace" or "logistic", each at σ = 1.
        digits: significant digits of :attr:`WeibullAnchor.decimals`, any number.

    Returns:
        The anchor. Numerical: up to 15 digits the floats come from double-precision panels and are within 1e-14 of the
        exact values, relatively (1e-10 for trims near 1/2 and at the ends of the ranges of the parents' parameters);
        above, they are rounded from mpmath's.

    Raises:
        ParameterError: a trim outside [0, 1/2), an unknown distribution, digits < 1.

    Source: T. Ding, arXiv:2605.18898 (2026), appendix A.1, for the half-normal law at t = 0.1.
    """
    trim, parent = require_trim(trim), require_parent(distribution)
    digits = require_positive_integer("digits", digits)
    if digits <= _DOUBLE_DIGITS:
        return WeibullAnchor(trim, parent, digits, *_float_anchor(trim, parent))
    values = _exact_anchor(trim, parent, digits)
    return WeibullAnchor(trim, parent, digits, *(float(value) for value in values))


def require_parent(distribution: object) -> Parent:
    """The parent itself, or the one of that name; a :class:`ParameterError` if there is none."""
    if isinstance(distribution, Parent):
        return distribution
    if isinstance(distribution, str) and distribution in PARENTS:
        return PARENTS[distribution]
    names = ", ".join(repr(name) for name in PARENTS)
    raise ParameterError(
        "distribution", distribution, f"{names}, or a parent law such as StudentT(df=4), VarianceGamma(h=64), Mixture"
    )


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

    tail_digits = math.ceil(-math.log10(trim)) if trim else 0  # which S = 1 − F loses at the upper trim
    with mp.workdps(working_digits(digits) + tail_digits):
        t = fn.number(trim)
        low = quantile(parent, t, False, digits) if trim else mp.zero
        high = quantile(parent, t, True, digits) if trim else parent.upper(fn)
        mass, x, y, xx, xy, yy = integrate(parent, low, high, plot, digits)
        x, y, xx, xy, yy = (value / mass for value in (x, y, xx, xy, yy))
        covariance, x_variance, y_variance = xy - x * y, xx - x * x, yy - y * y
        shape = covariance / x_variance
        return shape, mp.exp(x - y / shape), shape * covariance / y_variance
