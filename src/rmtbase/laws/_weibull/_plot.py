"""Weibull plot of a parent law in double precision: its line, that of a sample, and its noise; maximum likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._expansion import Expansion, Panels, ordered_average, panels
from rmtbase.laws._element.parents import FLOAT, GUARD, Number, Parent, decimal, multiprecision, require_parent
from rmtbase.parameters import require_positive_integer, require_real_numbers, require_trim
from rmtbase.shown import in_one_line

_SHAPES = (1e-3, 1e3)  # of the Weibull law of maximum likelihood


class WeibullPlot:
    """Y = ln(−ln(1−F)) against X = ln x(F) over F uniform on [t, 1−t], and its least-squares line Y = k (X − ln λ)."""

    def __init__(self, grid: Panels, trim: float, ends: tuple[float, float]) -> None:
        self.grid = grid  # panels over the whole law, with ends at both trims
        self.trim = trim  # t
        self.ends = ends  # x(t) and x(1−t)
        low, high = np.log(ends) if trim else (-math.inf, math.inf)
        self.kept = (grid.log_x > low) & (grid.log_x < high)  # nodes between the trims
        self.x_mean, self.y_mean = self.average(grid.log_x), self.average(grid.log_hazard)
        self.y = grid.log_hazard - self.y_mean  # at all nodes
        x = grid.log_x - self.x_mean
        covariance, self.y_variance = self.average(x * self.y), self.average(self.y * self.y)
        self.shape = covariance / self.average(x * x)
        self.scale = math.exp(self.x_mean - self.y_mean / self.shape)
        self.r_squared = self.shape * covariance / self.y_variance

    def average(self, values: FloatArray) -> float:
        weight = self.grid.probability[self.kept]
        return float(weight @ values[self.kept] / weight.sum())

    def trimmed_mean(
        self,
        function: Callable[[FloatArray], FloatArray],
        slope: Callable[[FloatArray], FloatArray],
        with_y: bool = False,
    ) -> Expansion:
        """Return the mean of h(X), or of h(X) (Y − mean Y), of a sample between the trims; h and h′ are given."""
        grid, share = self.grid, np.where(self.kept, 1.0 / (1.0 - 2.0 * self.trim), 0.0)
        weight, weight_slope = share, np.zeros_like(share)
        if with_y:
            weight = share * np.where(self.kept, self.y, 0.0)
            weight_slope = share * np.where(self.kept, np.exp(-grid.log_hazard) / grid.sf, 0.0)  # dY/dp = 1/(−S ln S)
        jumps: list[tuple[float, float]] = []
        if self.trim:
            x, at_ends = np.array(self.ends), np.ones(2)
            if with_y:
                at_ends = np.log([-math.log1p(-self.trim), -math.log(self.trim)]) - self.y_mean
            density = grid.parent.law(x, FLOAT)[0] * x  # dF/dX
            heights = slope(np.log(x)) * at_ends / (1.0 - 2.0 * self.trim) / density
            jumps = [(self.ends[0], float(heights[0])), (self.ends[1], -float(heights[1]))]
        return ordered_average(grid, function(grid.log_x), slope(grid.log_x), weight, weight_slope, jumps)

    # The expansions are those of a sample with plotting positions (i − 1/2)/N; at t = 0 their drift is nan.

    @cached_property
    def _sample_mean(self) -> Expansion:
        mean = self.trimmed_mean(lambda x: x - self.x_mean, np.ones_like)
        return mean if self.trim else mean.drifting(math.nan)

    @cached_property
    def _sample_covariance(self) -> Expansion:
        covariance = self.trimmed_mean(lambda x: x - self.x_mean, np.ones_like, with_y=True)
        return covariance if self.trim else covariance.drifting(math.nan)

    @cached_property
    def sample_shape(self) -> Expansion:
        square = self.trimmed_mean(lambda x: (x - self.x_mean) ** 2, lambda x: 2.0 * (x - self.x_mean))
        return self._sample_covariance / (square - self._sample_mean * self._sample_mean)

    @cached_property
    def sample_log_scale(self) -> Expansion:
        return self._sample_mean + self.x_mean - self.y_mean * self.sample_shape.power(-1.0)

    @cached_property
    def sample_r_squared(self) -> Expansion:
        return self.sample_shape * self._sample_covariance / self.y_variance


@lru_cache(maxsize=64)
def weibull_plot(
    parent: Parent, trim: Fraction = Fraction(1, 10), other_trims: tuple[Fraction, ...] = ()
) -> WeibullPlot:
    """Return the Weibull plot of a parent; panels also end at ``other_trims``, so that those plots share its nodes."""
    ends = []
    for fraction in (trim, *other_trims):
        low, high = 0.0, float(parent.upper(FLOAT))
        if fraction:
            logit = math.log(fraction) - math.log1p(-fraction)
            low, high = map(float, parent.quantile_at_logit([logit, -logit]))
        ends.append((low, high))
    return WeibullPlot(panels(parent, [x for pair in ends for x in pair]), float(trim), ends[0])


def weibull_quantile_noise(p: ArrayLike, distribution: str | Parent = "normal") -> FloatArray:
    """N Var(ln |w|_(i)) = p(1−p)/(x f(x))², x = x(p), same shape as ``p``; nan outside (0, 1). Asymptotic."""
    p, parent = require_real_numbers("p", p), require_parent(distribution)
    inside = (p > 0) & (p < 1)
    x = parent.ppf(np.where(inside, p, 0.5))
    density, cdf, sf = parent.law(x, FLOAT)
    return np.where(inside, cdf * sf / (x * density) ** 2, np.nan)


@in_one_line
@dataclass(frozen=True)
class NoiseOptimum:
    """Minimum over p of the noise N Var(Y) = p/((1−p) ln²(1−p)) of the ordinates Y = ln(−ln(1 − F(x_(i)))), p = i/N.

    Attributes:
        probability: p*, the position of the minimum.
        noise: N Var(Y) there.
        decimals: p* and the noise as decimal strings with the requested digits.
    """

    probability: float
    noise: float
    decimals: tuple[str, str]


def weibull_noise_optimum(digits: int = 15) -> NoiseOptimum:
    """Return the minimum of p/((1−p) ln²(1−p)): 1/(4p*(1−p*)) at p* = 1 − exp(−2p*) = 1 + W₀(−2e⁻²)/2.

    ``digits`` are the significant digits of the strings, 1 to 1000; all but the last are exact.
    """
    from mpmath import mp

    digits = require_positive_integer("digits", digits, 1_000)
    with mp.workdps(digits + GUARD):
        p = 1 + mp.lambertw(-2 * mp.exp(-2)).real / 2
        noise = 1 / (4 * p * (1 - p))
        return NoiseOptimum(float(p), float(noise), (decimal(p, digits), decimal(noise, digits)))


@in_one_line
@dataclass(frozen=True)
class WeibullProjection:
    shape: float  # k
    scale: float  # λ, in the units of the parent's σ


def weibull_maximum_likelihood(distribution: str | Parent = "normal") -> WeibullProjection:
    """Return the Weibull law nearest in D_KL(parent ‖ Weibull): E[|w|^k ln|w|]/E[|w|^k] − 1/k = E[ln|w|], to 1e-13."""
    grid = panels(require_parent(distribution))
    probability, log_x = grid.probability, grid.log_x
    log_mean = float(probability @ log_x)

    def weights(shape: float) -> tuple[np.ndarray, float]:
        powers = shape * log_x
        with np.errstate(divide="ignore"):
            logs = powers + np.log(probability)
        top = logs.max()
        shares = np.exp(logs - top)
        return shares / shares.sum(), top + math.log(shares.sum())

    def score(log_shape: float) -> float:
        shape = math.exp(log_shape)
        return float(weights(shape)[0] @ log_x) - 1 / shape - log_mean

    low, high = _SHAPES[0], min(_SHAPES[1], grid.parent.moment_order())
    shape = math.exp(float(brentq(score, math.log(low), math.log(high), xtol=1e-15)))  # type: ignore[arg-type]
    return WeibullProjection(shape, math.exp(weights(shape)[1] / shape))


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
        plot = weibull_plot(parent, trim)
        return WeibullAnchor(trim, parent, digits, plot.shape, plot.scale, plot.r_squared)
    values = _exact_anchor(trim, parent, digits)
    return WeibullAnchor(trim, parent, digits, *(float(value) for value in values))


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
