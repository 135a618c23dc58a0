"""Finite-size laws of the largest and the smallest eigenvalue of a Gaussian chain."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
from numpy.polynomial.chebyshev import Chebyshev
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import chain_map, chain_scale
from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._edge._edge_coordinate import EdgeCoordinate, Side, edge_coordinate
from rmtbase.laws._edge._tracy_widom import TracyWidom
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes, variance_factor
from rmtbase.laws._scale import own_variance_log_cumulants
from rmtbase.parameters import require_flag, require_moderate_sigmas, require_order

NEARLY_HARD = 8
"""Where the next dimension exceeds the smallest by less, the lower edge is hard in all but name."""

_TRACY_WIDOM = TracyWidom(1)
_SCORE_ENDS = (-10.0, -4.0, 3.0, 20.0)
_LARGEST_CORRECTION = 0.75  # of a variance of 1.6; from 0.777 on the quantiles of the corrected law would cross
_NEWTON_STEPS = 50
_LEFT, _RIGHT = -14.0, 18.0  # the mass of TW_1 beyond them is below 1e-22
_LONGEST_REACH = 1e4
_STRONGEST_BEND = 1.0  # in units of 1/(standard deviation of ln λ)
_LARGEST_EXPONENT = 200.0  # whose exponential's cube is a double


@dataclass(frozen=True)
class EdgeLaw(Distribution):
    """Law of an extreme eigenvalue at a soft edge, to second order in r^(-1/3).

    With ζ Langer's coordinate of the edge (``rmtbase/laws/_edge/_edge_coordinate.py`` derives shift and v) and F the
    Tracy–Widom distribution function of β = 1,

        P(extreme eigenvalue nearer the bulk than λ) = F(s) + (v/2) F''(s),    s = ζ(λ) + shift,

    which is F with its variance changed by v < 0. Evaluated through its quantiles, s = t - (v/2) (ln F')'(t) with t
    distributed as TW_1: the same to this order, and a distribution function. No fitted numbers. Asymptotic: neglected
    terms are of relative order 1/r. The tail towards zero of the smallest eigenvalue is a power of λ, as it must
    be. What lies beyond the other edge of the support, less than 1e-25 at r = 8, counts as there.

    A law derived by :meth:`with_log_cumulants` is that of a Box-Cox transform of the eigenvalue,
    ln value = offset + linear (e^(bend u) - 1)/bend with u = ln λ - centre.

    Attributes:
        coordinate: the coordinate of the edge.
        log_unit: ln of the eigenvalue at which the dimensionless map has x = 1.
        centre, offset, linear, bend: of the derived law; 0, 0, 1, 0 for the eigenvalue itself.
    """

    coordinate: EdgeCoordinate
    log_unit: float
    centre: float = 0.0
    offset: float = 0.0
    linear: float = 1.0
    bend: float = 0.0

    @property
    def side(self) -> Side:
        """``"upper"`` for the largest, ``"lower"`` for the smallest eigenvalue."""
        return self.coordinate.side

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    def var(self) -> float:
        log_values, weights = self.quadrature()
        centre = float(weights @ log_values)
        relative = np.exp(log_values - centre)
        return math.exp(2.0 * centre) * float(weights @ (relative - weights @ relative) ** 2)

    def moment(self, k: int) -> float:
        """E[λ^k], k = 0, 1, 2, ..., by quadrature."""
        return self.expect_power(float(require_order(k)))

    def expect_power(self, power: float) -> float:
        """E[λ^power], by quadrature.

        Inf at the lower edge where power ≤ -(n - r)/2, n the second smallest dimension: the law's density falls
        towards zero as the power (n - r)/2 - 1 of λ. (The true one has 1/2 more in the exponent.)
        """
        right = _RIGHT
        if self.side == "lower" and power < 0.0:
            kept = 1.0 + power * self.linear / self.coordinate.tail_power  # of the exponent of the tail
            right = _RIGHT * max(kept, 0.0) ** (-2.0 / 3.0) if kept > 0.0 else math.inf
            if right > _LONGEST_REACH:
                return math.inf
        log_values, weights = self.quadrature(right if not self.bend else _RIGHT)
        return float(weights @ np.exp(power * log_values))

    def entropy(self) -> float:
        """Differential entropy -E[ln pdf], by quadrature."""
        log_values, weights = self.quadrature()
        density = self.pdf(np.exp(log_values))
        return -float(weights @ np.log(np.maximum(density, np.finfo(float).tiny)))

    def log_cumulants(self) -> tuple[float, float, float]:
        """Mean, variance and third cumulant of the logarithm."""
        log_values, weights = self.quadrature()
        mean = float(weights @ log_values)
        return mean, float(weights @ (log_values - mean) ** 2), float(weights @ (log_values - mean) ** 3)

    def with_log_cumulants(self, mean: float, variance: float, third: float) -> EdgeLaw:
        """The law whose logarithm has these first three cumulants: that of a Box-Cox transform of the eigenvalue.

        For an eigenvalue divided by something that varies with it. The skewness of the transform grows with ``bend``
        (van Zwet 1964), so that there is one at most.

        Raises:
            ParameterError: for a variance that is not positive, or a third cumulant that no ``bend`` reaches whose
                inverse is more than the standard deviation of ln λ.
        """
        if not variance > 0.0:
            raise ParameterError("variance", variance, "a positive number")
        log_values, weights = self._log_eigenvalues, _tracy_widom_quadrature(_RIGHT)[1]
        centre = float(weights @ log_values)
        u = log_values - centre
        size = math.sqrt(float(weights @ u**2))

        def standardized(bend: float) -> tuple[float, float, float]:
            """Mean, standard deviation and skewness of the transform at offset 0 and linear 1."""
            value = _bent(u, bend)
            first = float(weights @ value)
            spread = math.sqrt(float(weights @ (value - first) ** 2))
            return first, spread, float(weights @ ((value - first) / spread) ** 3)

        def excess(bend: float) -> float:
            return standardized(bend)[2] - third / variance**1.5

        strongest = min(_STRONGEST_BEND / size, _LARGEST_EXPONENT / float(np.abs(u).max()))
        if not excess(-strongest) < 0.0 < excess(strongest):
            raise ParameterError("third", third, "a third cumulant that a Box-Cox transform of the eigenvalue can have")
        bend: float = brentq(excess, -strongest, strongest, xtol=1e-15 / size)  # type: ignore[assignment]
        first, spread, _ = standardized(bend)
        linear = math.sqrt(variance) / spread
        return replace(self, centre=centre, offset=mean - linear * first, linear=linear, bend=bend)

    def quadrature(self, right: float = _RIGHT) -> tuple[FloatArray, FloatArray]:
        """Nodes ln λ and weights of total mass 1 for expectations over the law, as far out as TW_1 = ``right``."""
        nodes, weights = _tracy_widom_quadrature(right)
        own = self._log_eigenvalues if right == _RIGHT else self._own_log_eigenvalue(nodes)
        return self._derived(own), weights

    def _cdf(self, x: FloatArray) -> FloatArray:
        t = self._standardized(x)
        return _TRACY_WIDOM.cdf(t) if self.side == "upper" else _TRACY_WIDOM.sf(t)

    def _sf(self, x: FloatArray) -> FloatArray:
        t = self._standardized(x)
        return _TRACY_WIDOM.sf(t) if self.side == "upper" else _TRACY_WIDOM.cdf(t)

    def _pdf(self, x: FloatArray) -> FloatArray:
        log_x, steepness = self._own(x)
        density = np.zeros(x.shape)
        inside = np.isfinite(log_x)
        at = log_x[inside]
        t = self._t(self.coordinate.zeta(at) + self.coordinate.shift)
        slope = steepness[inside] * self.coordinate.zeta_slope(at) / self._s(t)[1]
        density[inside] = _TRACY_WIDOM.pdf(t) * slope / x[inside]
        return density

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self._at_tracy_widom(_TRACY_WIDOM.ppf(q) if self.side == "upper" else _TRACY_WIDOM.isf(q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return self._at_tracy_widom(_TRACY_WIDOM.isf(q) if self.side == "upper" else _TRACY_WIDOM.ppf(q))

    @cached_property
    def _log_eigenvalues(self) -> FloatArray:
        """ln of the eigenvalue itself at the nodes of the usual quadrature."""
        return self._own_log_eigenvalue(_tracy_widom_quadrature(_RIGHT)[0])

    def _own_log_eigenvalue(self, t: FloatArray) -> FloatArray:
        """ln of the eigenvalue itself at finite values t of TW_1."""
        return self.log_unit + self.coordinate.log_x(self._s(t)[0] - self.coordinate.shift)

    def _derived(self, log_eigenvalue: FloatArray) -> FloatArray:
        """ln of the derived value."""
        return self.offset + self.linear * _bent(log_eigenvalue - self.centre, self.bend)

    def _own(self, value: FloatArray) -> tuple[FloatArray, FloatArray]:
        """ln x of the eigenvalue itself at a derived value, infinite outside the range, and d ln x / d ln value."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = (np.log(np.maximum(value, 0.0)) - self.offset) / self.linear
            bent = np.maximum(self.bend * rise, -1.0)
            u = np.log1p(bent) / self.bend if self.bend else rise
            return np.asarray(self.centre + u - self.log_unit), np.asarray(1.0 / (self.linear * (1.0 + bent)))

    def _s(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """S at the value t of TW_1, and ds/dt."""
        half = 0.5 * self.coordinate.variance
        return t - half * _score(t, 0), 1.0 - half * _score(t, 1)

    def _t(self, s: FloatArray) -> FloatArray:
        """Invert :meth:`_s`, increasing and convex, by Newton's method."""
        t = s.copy()
        for _ in range(_NEWTON_STEPS):
            value, slope = self._s(t)
            step = (value - s) / slope
            t = t - step
            if (np.abs(step) <= 1e-14 * (1.0 + np.abs(t))).all():
                break
        return t

    def _standardized(self, x: FloatArray) -> FloatArray:
        """The value t of TW_1 that corresponds to x."""
        log_x, _ = self._own(x)
        t = log_x if self.side == "upper" else -log_x
        inside = np.isfinite(log_x)
        t[inside] = self._t(self.coordinate.zeta(log_x[inside]) + self.coordinate.shift)
        return t

    def _at_tracy_widom(self, t: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.exp(self._derived(self._own_log_eigenvalue(t)))


@takes(ChainKeywords)
def largest_eigenvalue(*shape: Any, self_normalized: bool = False, **chain: Unpack[ChainKeywords]) -> EdgeLaw:
    """Return the law of the largest eigenvalue of Wᵀ W for the chain W = X_1 ... X_L, to second order.

    Measured for W_QK against 20 000 to 500 000 draws at d_head from 16 to 256 and d_head/d_model from 1/64 to 1: the
    mean is within 0.005 and every quantile from 1 % to 99.9 % within 0.05 standard deviations, the standard deviation
    within 0.3 %, tail probabilities within 10 % to 1e-3, all beyond two standard errors of the draws. At d_head = 8
    and 4 the mean is within 0.01 standard deviations, the standard deviation within 0.7 %. Self-normalised, tail
    probabilities are within 20 % to 1e-3 and 35 % to 1e-4.

    ``self_normalized`` gives the law of the
    eigenvalue divided by Π_l s_l²/σ_l², s_l² = |X_l|_F² / (n_{l-1} n_l) the estimate of σ_l² from the factor itself.
    The estimates are independent of the factors' directions, so the cumulants of their logarithms (digamma and its
    derivatives at n_{l-1} n_l / 2) are subtracted from those of ln λ.

    Raises:
        ParameterError: as :class:`rmtbase.laws.GaussianChain`; where the correction v of the variance is below -3/4, as
            for many factors of few eigenvalues; self-normalised, where the eigenvalue does not vary (rank 1).
    """
    return _edge_law(ChainParameters(*shape, **chain), self_normalized, "upper")


@takes(ChainKeywords)
def smallest_eigenvalue(*shape: Any, self_normalized: bool = False, **chain: Unpack[ChainKeywords]) -> EdgeLaw:
    """Return the law of the smallest of the r nonzero eigenvalues at a soft lower edge, to second order.

    Measured like :func:`largest_eigenvalue`, at d_head ≥ 16: mean within 0.02 and quantiles from 1 % to 99.9 % within
    0.1 standard deviations, standard deviation within 1.5 %, tail probabilities within 20 % to 1e-3. Not near a hard
    edge: the true standard deviation is larger by 4 % at (72, 64), 8 % at (68, 64) and 60 % at (65, 64).

    Raises:
        ParameterError: as :func:`largest_eigenvalue`, and at a hard edge (two or more of the n_l equal r, as for
            d_head = d_model), where the fluctuations are not Tracy–Widom's.
    """
    return _edge_law(ChainParameters(*shape, **chain), self_normalized, "lower")


def _edge_law(of: ChainParameters, self_normalized: bool, side: Side) -> EdgeLaw:
    dims = of.dims
    factor = variance_factor(dims, require_moderate_sigmas(of.sigmas, len(dims) - 1), of.normalization)
    own = require_flag("self_normalized", self_normalized)
    chain = chain_map(dims)
    if side == "lower" and chain.has_hard_edge:
        raise ParameterError(
            "dims",
            dims,
            "a single smallest dimension: with two or more (d_head = d_model) the lower edge is hard, "
            "and the smallest eigenvalue has no Tracy-Widom law",
        )
    coordinate = edge_coordinate(chain, side)
    if coordinate.variance < -_LARGEST_CORRECTION:
        raise ParameterError(
            "dims", dims, "more eigenvalues or fewer factors: the expansion about the Tracy-Widom law fails here"
        )
    law = EdgeLaw(coordinate, math.log(chain_scale(chain, factor)))
    if not own:
        return law
    mean, variance, third = law.log_cumulants()
    own_mean, own_variance, own_third = own_variance_log_cumulants(dims)
    try:
        return law.with_log_cumulants(mean - own_mean, variance - own_variance, third - own_third)
    except ParameterError as error:
        raise ParameterError("dims", dims, "more eigenvalues: these hardly vary when self-normalised") from error


def _bent(u: FloatArray, bend: float) -> FloatArray:
    """(e^(bend u) - 1) / bend."""
    return np.expm1(bend * u) / bend if bend else u


@cache
def _score_spline() -> CubicSpline:
    """(ln F')' of TW_1 between the ends."""
    pieces = pairwise(_SCORE_ENDS)
    slopes = [Chebyshev.interpolate(lambda s: np.log(_TRACY_WIDOM.pdf(s)), 40, ends).deriv() for ends in pieces]
    nodes = np.linspace(_SCORE_ENDS[0], _SCORE_ENDS[-1], 1501)
    piece = np.clip(np.searchsorted(_SCORE_ENDS, nodes) - 1, 0, len(slopes) - 1)
    return CubicSpline(nodes, np.choose(piece, [slope(nodes) for slope in slopes]))


def _score(s: FloatArray, derivative: int) -> FloatArray:
    """(ln F')'(s) of TW_1, or its derivative; continued straight to the left and as s^(1/2) to the right.

    To the left (ln F')' grows as s², which as a correction to s would not stay one; nothing is left of F there.
    """
    spline = _score_spline()
    low, high = _SCORE_ENDS[0], _SCORE_ENDS[-1]
    inside = spline(np.clip(s, low, high), derivative)
    beyond = np.maximum(s, high) / high
    if derivative == 0:
        below = spline(low) + spline(low, 1) * (s - low)
        return np.where(s < low, below, np.where(s > high, spline(high) * np.sqrt(beyond), inside))
    return np.where(s > high, 0.5 * spline(high) / (high * np.sqrt(beyond)), inside)


@cache
def _tracy_widom_quadrature(right: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of total mass 1 for expectations over TW_1, up to ``right``."""
    nodes, weights = np.polynomial.legendre.leggauss(12)
    ends = np.linspace(_LEFT, right, math.ceil((right - _LEFT) / 1.6) + 1)
    half, centre = 0.5 * np.diff(ends), 0.5 * (ends[1:] + ends[:-1])
    s = (centre[:, None] + half[:, None] * nodes).ravel()
    mass = (half[:, None] * weights).ravel() * _TRACY_WIDOM.pdf(s)
    return s, mass / mass.sum()
