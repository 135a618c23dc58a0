"""Langer's coordinate ζ of a soft edge, in which an extreme eigenvalue is Tracy–Widom to second order.

shift = (1/2) ψ''(z)/ψ'(z) - ψ'(z)/ψ at z = ζ^(1/2) = 0 and Var(ζ + shift) = Var TW_1 + {ψ, z}/3, {,} the Schwarzian
derivative; derived in docs/mathematics/extreme-eigenvalues.md (Langer 1931; Eynard & Orantin 2007).
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.polynomial.chebyshev import Chebyshev
from numpy.typing import NDArray
from scipy.optimize.elementwise import find_root

from rmtbase.laws._chain._chain_map import ChainMap
from rmtbase.laws._chain._chain_profile import Position, chain_profile
from rmtbase.laws._distribution import FloatArray

Side = Literal["upper", "lower"]

_DEGREE = 40
_WIDEST = 3.0  # width in ln λ of the interpolated interval: for wider ones the singularities of ln x are too near
_FARTHEST = 300.0  # in ln ψ, so that ψ stays a finite double
_LAST = 0.05  # fraction of an eigenvalue next to a hard edge that is not resolved
_TOLERANCES = {"xrtol": 1e-15, "xatol": 1e-15}
_NEWTON_STEPS = 60


@dataclass(frozen=True)
class EdgeCoordinate:
    """Coordinate ζ of one soft edge, growing outwards; right to 1e-13 of max(1, |ζ|) for r/n_l > 1e-3."""

    chain: ChainMap
    side: Side  # a lower edge must be soft

    @property
    def edge(self) -> float:
        return self.chain.log_upper if self.side == "upper" else self.chain.log_lower

    @property
    def psi(self) -> float:
        return self._delta - 1.0

    @property
    def slope(self) -> float:
        """|d ζ / d ln λ| at the edge: λ / (Tracy–Widom scale)."""
        return self._unit**2

    @property
    def shift(self) -> float:
        """Shift added to ζ, of order r^(-1/3); for one factor that of n_l - 1/2 in place of n_l (Johnstone 2001)."""
        first, second, _ = self._fold
        return -self._sign * (second / first - first / self.psi) / self._unit

    @property
    def variance(self) -> float:
        """Variance of ζ + shift minus that of TW_1; negative, of order r^(-2/3)."""
        first, second, third = self._fold
        schwarzian = (4.8 * third / first - 6.0 * (second / first) ** 2) / self._unit**2
        return schwarzian / 3.0

    @property
    def tail_power(self) -> float:
        """Exponent (n - r)/2, with n the next dimension: exp(-(2/3) ζ^(3/2)) falls to zero as this power of λ."""
        return 0.5 * self.chain.rank * self._width

    def zeta(self, log_x: FloatArray) -> FloatArray:
        """Return ζ at finite ln x, same shape; it is constant beyond the other edge, where no mass is left."""
        result = np.empty(log_x.shape)
        near = self._is_near(log_x)
        result[near] = self._series(log_x[near])
        result[~near] = self._exact(log_x[~near])
        return result

    def zeta_slope(self, log_x: FloatArray) -> FloatArray:
        result = np.empty(log_x.shape)
        near = self._is_near(log_x)
        result[near] = np.abs(self._slope_series(log_x[near]))
        far = log_x[~near]
        result[~near] = self.chain.rank * self._half_gap(far) / np.sqrt(np.abs(self._exact(far)))
        return result

    def log_x(self, zeta: FloatArray) -> FloatArray:
        """Invert :meth:`zeta` at finite values; values of ζ beyond the other edge give that edge."""
        low, high = np.sort(self._series(np.asarray(self._series.domain)))
        inside, beyond = zeta < low, zeta > high
        near = ~(inside | beyond)
        result = np.empty(zeta.shape)
        least, most = self._series.domain
        place = np.clip(self.edge + self._sign * zeta[near] / self.slope, least, most)
        for _ in range(_NEWTON_STEPS):  # invert the series by Newton's method
            step = (self._series(place) - zeta[near]) / self._slope_series(place)
            place = np.clip(place - step, least, most)
            if np.abs(step).max(initial=0.0) < 1e-14:
                break
        result[near] = place
        result[inside] = self._quantile((2.0 / 3.0) / (np.pi * self.chain.rank) * (-zeta[inside]) ** 1.5)
        result[beyond] = self._far_out(zeta[beyond])
        return result

    def real_solutions(self, log_x: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = self._real_solutions(log_x)
        return self._delta_at(first), self._delta_at(second)

    @property
    def _sign(self) -> float:
        return 1.0 if self.side == "upper" else -1.0

    @property
    def _delta(self) -> float:
        return self.chain.upper_delta if self.side == "upper" else self.chain.lower_delta

    @property
    def _unit(self) -> float:
        """Slope of z in t = |ln x - edge|^(1/2) at the edge."""
        return (self.chain.rank * self._fold[0]) ** (1.0 / 3.0)

    @cached_property
    def _fold(self) -> tuple[float, float, float]:
        """(a_1, a_2, a_3) of ψ - ψ_edge = a_1 s + a_2 s² + a_3 s³ with s = t at the lower, -t at the upper edge."""
        delta, psi = self._delta, self.psi
        terms = [(1.0, delta, self.chain.minimal_count)] + [(c, gap + c * delta, m) for c, gap, m in self.chain.wide]

        def taylor(k: int) -> float:
            total = math.fsum(m * (c / u) ** k for c, u, m in terms) - psi**-k
            return self._sign * (-1.0) ** (k - 1) * total / k

        # t = √g_2 p (1 + b p + c p² ...), inverted term by term.
        second, third, fourth = taylor(2), taylor(3), taylor(4)
        b = 0.5 * third / second
        c = 0.5 * fourth / second - 0.5 * b * b
        root = math.sqrt(second)
        return 1.0 / root, -b / second, (2.0 * b * b - c) / (second * root)

    @cached_property
    def _series(self) -> Chebyshev:
        chain = self.chain
        width = min(chain.log_upper - chain.log_lower, _WIDEST)
        inwards, outwards = self.edge - self._sign * 0.5 * width, self.edge + self._sign * width
        return Chebyshev.interpolate(self._exact, _DEGREE, (min(inwards, outwards), max(inwards, outwards)))

    @cached_property
    def _slope_series(self) -> Chebyshev:
        return self._series.deriv()

    def _is_near(self, log_x: FloatArray) -> NDArray[np.bool_]:
        low, high = self._series.domain
        return (log_x >= low) & (log_x <= high)

    def _is_inside(self, log_x: FloatArray) -> NDArray[np.bool_]:
        return self._sign * (log_x - self.edge) < 0.0

    def _exact(self, log_x: FloatArray) -> FloatArray:
        """Compute ζ from its definition; digits are lost just outside the edge, where the solutions nearly agree."""
        chain = self.chain
        inside = self._is_inside(log_x)
        within = inside & (log_x > chain.log_lower) & (log_x < chain.log_upper)
        mass = np.ones(log_x.shape)
        profile, at = chain_profile(chain), self._position(log_x[within])
        mass[within] = profile.sf(at) if self.side == "upper" else profile.cdf(at)
        result = np.empty(log_x.shape)
        result[inside] = -((1.5 * np.pi * chain.rank * mass[inside]) ** (2.0 / 3.0))
        first, second = self._real_solutions(log_x[~inside])
        # The difference between them of L ψ - Σ_l ln(1 + c_l ψ)/c_l, the primitive of ψ d ln x. The factors that vanish
        # at the ends of the parameter's range are represented by their logarithms.
        start = self._delta_at(first)
        step = self._delta_at(second) - start
        area = chain.factors * step - chain.minimal_count * (self._log_delta(second) - self._log_delta(first))
        others = chain.wide
        if self.side == "lower":
            c, _, multiplicity = chain.wide[0]
            area = area + multiplicity / c * (_softplus(second) - _softplus(first))
            others = chain.wide[1:]
        for c, gap, multiplicity in others:
            area = area - multiplicity / c * np.log1p(c * step / (gap + c * start))
        result[~inside] = (0.75 * chain.rank * np.abs(area)) ** (2.0 / 3.0)
        return result

    def _half_gap(self, log_x: FloatArray) -> FloatArray:
        chain = self.chain
        result = np.zeros(log_x.shape)
        inside = self._is_inside(log_x)
        within = inside & (log_x > chain.log_lower) & (log_x < chain.log_upper)
        result[within] = chain_profile(chain).imag_psi(self._position(log_x[within]))
        first, second = self.real_solutions(log_x[~inside])
        result[~inside] = 0.5 * np.abs(second - first)
        return result

    def _position(self, log_x: FloatArray) -> Position:
        return chain_profile(self.chain).position(self.chain.angle(log_x))

    def _quantile(self, mass: FloatArray) -> FloatArray:
        """ln x with this mass between it and the edge; the other edge for a mass of 1 or more."""
        chain = self.chain
        result = np.full(mass.shape, chain.log_lower if self.side == "upper" else chain.log_upper)
        if chain.has_hard_edge:
            mass = np.minimum(mass, 1.0 - _LAST / chain.rank)
        below, above = (1.0 - mass, mass) if self.side == "upper" else (mass, 1.0 - mass)
        within = mass < 1.0
        at = chain_profile(chain).quantile(below[within], above[within])
        result[within] = chain.log_upper - at.above
        return result

    def _far_out(self, zeta: FloatArray) -> FloatArray:
        """Invert ζ outside by Newton's method for ln ζ, concave in ln x, so that steps from the edge fall short."""
        low, high = self._series.domain
        log_x = np.full(zeta.shape, high if self.side == "upper" else low)
        for _ in range(_NEWTON_STEPS):
            value = self._exact(log_x)
            step = self._sign * np.log(value / zeta) * value**1.5 / (self.chain.rank * self._half_gap(log_x))
            log_x = log_x - step
            if (np.abs(step) <= 1e-14 * (1.0 + np.abs(log_x))).all():
                break
        return log_x

    def _height(self, u: FloatArray) -> FloatArray:
        chain, delta = self.chain, self._delta_at(u)
        if self.side == "upper":
            total = chain.minimal_count * self._log_delta(u) - u
            remaining = chain.wide
        else:
            _, gap, multiplicity = chain.wide[0]
            total = self._log_delta(u) - np.log1p(-delta) + multiplicity * (math.log(gap) - _softplus(u))
            remaining = chain.wide[1:]
        for c, gap, multiplicity in remaining:
            total = total + multiplicity * np.log(gap + c * delta)
        return total

    def _real_solutions(self, log_x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Parameters of the two real ψ with ln |x| = log_x, one on either side of the edge."""
        target = np.minimum(log_x, self.edge + _FARTHEST * self.chain.factors)
        at_edge = self.psi if self.side == "upper" else -self._delta / (self._width + self._delta)
        edge = np.full(target.shape, math.log(at_edge))
        # Parameters beyond the two solutions, from asymptotes that bound the map on both sides.
        chain = self.chain
        if self.side == "upper":  # x > 1/ψ, and x > ψ^L Π c_l
            log_ratios = math.fsum(m * math.log(c) for c, _, m in chain.wide)
            first, second = -target - 1.0, (target - log_ratios) / chain.factors + 1.0
        else:
            c, _, multiplicity = chain.wide[0]
            log_width = math.log(self._width)
            at_zero = log_width + math.fsum(m * math.log(gap) for _, gap, m in chain.wide)
            log_gaps = math.fsum(m * math.log(gap) for _, gap, m in chain.wide[1:])
            far = log_width + multiplicity * (math.log(c) + log_width) + log_gaps
            first, second = target - at_zero - 1.0, (far - target + 1.0) / multiplicity
        return self._solution(target, edge, first), self._solution(target, edge, second)

    def _solution(self, target: FloatArray, edge: FloatArray, outer: FloatArray) -> FloatArray:
        """Find the parameter between two at which the height is ``target``; the edge's if rounding leaves no root."""
        if self.side == "lower":
            ends = np.minimum(edge, outer), np.maximum(edge, outer)
            solution = find_root(
                lambda u, target: self._height(u) - target, ends, args=(target,), tolerances=_TOLERANCES
            )
            return np.where(solution.success, solution.x, edge)
        # ln x is convex in ln ψ, so Newton steps from outside never pass the root.
        ratios = [(1.0, self.chain.minimal_count), *((c, m) for c, _, m in self.chain.wide)]
        u, least, most = outer, np.minimum(edge, outer), np.maximum(edge, outer)
        for _ in range(_NEWTON_STEPS):
            psi = np.exp(u)
            slope = sum(m * (c * psi) / (1.0 + c * psi) for c, m in ratios) - 1.0
            excess = self._height(u) - target
            with np.errstate(invalid="ignore", divide="ignore"):
                step = np.where(excess > 0.0, excess / slope, 0.0)
            u, before = np.clip(u - np.where(np.isfinite(step), step, u - edge), least, most), u
            if (np.abs(u - before) <= 4e-16 * np.maximum(np.abs(u), 1.0)).all():
                break
        return u

    # Parameter u of the real ψ outside the support. Upper edge: ψ = e^u. Lower edge: ψ + 1 = -width / (1 + e^-u), from
    # ψ = -1 to the next pole of ln x at ψ = -1/c.

    @property
    def _width(self) -> float:
        c, gap, _ = self.chain.wide[0]
        return gap / c

    def _delta_at(self, u: FloatArray) -> FloatArray:
        return 1.0 + np.exp(u) if self.side == "upper" else -np.exp(self._log_delta(u))

    def _log_delta(self, u: FloatArray) -> FloatArray:
        return _softplus(u) if self.side == "upper" else math.log(self._width) - _softplus(-u)


def _softplus(u: FloatArray) -> FloatArray:
    return np.logaddexp(0.0, u)


edge_coordinate = lru_cache(maxsize=256)(EdgeCoordinate)
