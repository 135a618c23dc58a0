"""Weibull plot of a parent law in double precision: its line, that of a sample, and its noise; maximum likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._arithmetic import FLOAT, GUARD, decimal
from rmtbase.laws._element._expansion import Expansion, Panels, ordered_average, panels
from rmtbase.laws._element.parents import Parent, require_parent
from rmtbase.parameters import require_positive_integer, require_real_numbers
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
        """Mean X of a sample minus that of the parent."""
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


def weibull_plot(parent: Parent, trim: Fraction, other_trims: Sequence[Fraction] = ()) -> WeibullPlot:
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
