"""Map ψ → x = Π_l (1 + c_l ψ) / ψ of a chain, λ = C x, its edges, and its inverse on the cut; the n_l may be fractions.

On the cut, ψ is on the curve Σ_l arg(1 + c_l ψ) = arg ψ, which selects one of the L + 1 roots: the left side grows with
|ψ| at a given arg ψ. It runs from the upper edge ψ_+ > 0 to the lower: ψ_- < -1, or -1 if two or more n_l equal r.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from scipy.interpolate import CubicSpline

from rmtbase.laws._cut import Cut, find_edge, log_excess
from rmtbase.laws._distribution import ComplexArray, FloatArray
from rmtbase.laws._parameters import as_float

_BISECTIONS = 64
_NEWTON_STEPS = 3  # from a spline that is within 1e-5 of the root
_FARTHEST = 750.0  # in -ln |y|, beyond the smallest double


@dataclass(frozen=True)
class ChainMap(Cut):
    """Dimensionless map of a chain with dimensions (n_0, ..., n_L), positive numbers, integers or not."""

    dims: tuple[float, ...]

    @cached_property
    def rank(self) -> float:
        return min(self.dims)

    @cached_property
    def minimal_count(self) -> int:
        """Number of n_l that equal r: one for a soft lower edge, more for a hard one."""
        return sum(n == self.rank for n in self.dims)

    @cached_property
    def wide(self) -> list[tuple[float, float, int]]:
        """(c, 1 - c, multiplicity) for each distinct n_l > r, widest last."""
        larger = [n for n in self.dims if n > self.rank]
        return [(self.rank / n, (n - self.rank) / n, larger.count(n)) for n in sorted(set(larger))]

    @cached_property
    def factors(self) -> int:
        return len(self.dims) - 1

    @property
    def has_hard_edge(self) -> bool:
        return self.minimal_count > 1

    def slope(self, delta: float) -> float:
        """Return ψ x'(ψ) / x at ψ = δ - 1; its zeros are the critical points of the map."""
        psi = delta - 1.0
        # ψ/δ - 1 = -1/δ for one of the minimal n_l: without the terms of order one that cancel at small aspect ratios.
        wide = math.fsum(multiplicity * c * psi / (gap + c * delta) for c, gap, multiplicity in self.wide)
        return ((self.minimal_count - 1) * psi - 1.0) / delta + wide

    def log_x(self, delta: float) -> float:
        return (
            self.minimal_count * math.log(abs(delta))
            + math.fsum(m * math.log(abs(gap + c * delta)) for c, gap, m in self.wide)
            - math.log(abs(delta - 1.0))
        )

    def rational_x(self, delta: float) -> Fraction:
        """Return x at ψ = δ - 1 exactly; near a critical point its error is of the order of the squared error of δ."""
        psi, rank = Fraction(delta) - 1, Fraction(self.rank)
        return math.prod(1 + rank / Fraction(n) * psi for n in self.dims) / psi

    def log_curvature(self, delta: float) -> float:
        """Return x''/x at a critical point ψ = δ - 1."""
        psi = delta - 1.0
        return (
            (psi + delta) / (psi * delta) ** 2
            - (self.minimal_count - 1) / delta**2
            - math.fsum(m * (c / (gap + c * delta)) ** 2 for c, gap, m in self.wide)
        )

    @cached_property
    def upper_delta(self) -> float:
        # Σ c ψ / (1 + c ψ) = 1 implies ψ ≥ 1/L (all c = 1), and its second term gives a finite upper bound.
        widest = max((1.0 / c for c, _, _ in self.wide), default=1.0)
        root = find_edge(
            lambda log_psi: self.slope(1.0 + math.exp(log_psi)),
            math.log(0.5 / self.factors),
            math.log(2.0 * widest + 2.0),
        )
        return 1.0 + math.exp(root)

    @cached_property
    def lower_delta(self) -> float:
        """1 + ψ_-, where ψ_- is in (-1/c_1, -1) and c_1 is the second largest ratio; 0 for a hard edge."""
        if self.has_hard_edge:
            return 0.0
        c, gap, _ = self.wide[0]
        # x rises from 0 at ψ = -1 and falls back to 0 at -1/c_1. The interval is short for c_1 → 1, so the bracket is
        # in the logit of the position in it.
        width = gap / c
        root = find_edge(lambda t: self.slope(-width / (1.0 + math.exp(-t))), -30.0, 30.0)
        return -width / (1.0 + math.exp(-root))

    @cached_property
    def log_upper(self) -> float:
        return self.log_x(self.upper_delta)

    @cached_property
    def log_lower(self) -> float:
        return -math.inf if self.has_hard_edge else self.log_x(self.lower_delta)

    @cached_property
    def log_span(self) -> float:
        """ln(x_+/x_-), with small relative error also for a narrow support; inf for a hard edge."""
        if self.has_hard_edge:
            return math.inf
        upper, lower = self.rational_x(self.upper_delta), self.rational_x(self.lower_delta)
        return math.log1p(float((upper - lower) / lower))

    def log_slope(self, delta: ComplexArray) -> ComplexArray:
        total = self.minimal_count / delta - 1.0 / (delta - 1.0)
        for c, gap, multiplicity in self.wide:
            total = total + multiplicity * c / (gap + c * delta)
        return total

    @cached_property
    def curve(self) -> tuple[FloatArray, ComplexArray]:
        """(χ, ln(1 + ψ)) at nodes along the curve, from the upper edge down."""
        # Near ψ = -1 the curve bends on the scale of the smallest gap 1 - c; at a hard edge on all scales down to zero.
        smallest_gap = min((gap for _, gap, _ in self.wide), default=1.0)
        finest = (1e-6 if self.has_hard_edge else 0.02) * smallest_gap
        from_pi = np.union1d(np.linspace(0.0, np.pi, 129)[1:-1], np.geomspace(finest, 0.5, 257))[::-1]
        direction = -np.cos(from_pi) + 1j * np.sin(from_pi)
        low = np.full(from_pi.shape, math.log(1e-3 / self.factors))
        high = np.full(from_pi.shape, math.log(1e4 * max(self.dims) / self.rank))
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            psi = np.exp(middle) * direction
            angle = self.minimal_count * np.angle(1.0 + psi)
            for c, _, multiplicity in self.wide:
                angle = angle + multiplicity * np.angle(1.0 + c * psi)
            too_far = angle > np.pi - from_pi
            low, high = np.where(too_far, low, middle), np.where(too_far, middle, high)
        delta = 1.0 + np.exp(0.5 * (low + high)) * direction
        log_delta = np.log(delta)
        log_numerator = self.minimal_count * log_delta
        for c, gap, multiplicity in self.wide:
            log_numerator = log_numerator + multiplicity * np.log(gap + c * delta)
        log_x = np.real(log_numerator - np.log(delta - 1.0))
        chi = np.concatenate([[0.0], self.angle(log_x)])
        log_delta = np.concatenate([[math.log(self.upper_delta)], log_delta])
        if not self.has_hard_edge:
            chi = np.append(chi, np.pi)
            log_delta = np.append(log_delta, math.log(-self.lower_delta) + 1j * np.pi)
        return chi, log_delta

    @cached_property
    def _guess(self) -> CubicSpline:
        return CubicSpline(*self.curve)

    def solve(self, log_x: FloatArray) -> ComplexArray:
        """Return 1 + ψ in the upper half plane at ln x inside the support; near an edge ln x is rounded."""
        return self.solve_at_angle(self.angle(log_x))

    def solve_at_angle(self, chi: FloatArray) -> ComplexArray:
        """Return 1 + ψ in the upper half plane at each χ: a spline along the curve, then Newton steps."""
        # The terms of ln x - ln x_edge that are linear in ψ - ψ_edge cancel and are left out of the steps, so the
        # relative error of Im ψ is a few units of rounding at any distance from the edge.
        shape, chi = np.shape(chi), np.ravel(chi)
        nodes = self.curve[0]
        delta = np.exp(self._guess(np.minimum(chi, nodes[-1])))
        if self.has_hard_edge:
            beyond = chi > nodes[-1]
            gaps = math.fsum(m * math.log(gap) for _, gap, m in self.wide)
            delta[beyond] = np.exp((self.log_upper - chi[beyond] ** 2 - gaps + 1j * np.pi) / self.minimal_count)
            return self._newton(delta, self.upper_delta, -(chi**2)).reshape(shape)
        low = np.abs(delta - self.lower_delta) < 1.5 * abs(self.lower_delta)
        delta[low] = self._newton(delta[low], self.lower_delta, self.log_span * np.cos(0.5 * chi[low]) ** 2)
        delta[~low] = self._newton(delta[~low], self.upper_delta, -self.log_span * np.sin(0.5 * chi[~low]) ** 2)
        return delta.reshape(shape)

    def real_psi(self, log_x: FloatArray) -> FloatArray:
        """Return Re ψ at each ln x of a flat array, on the cut and beyond the edges (where ψ is real); -1 at x = 0."""
        above, below = log_x >= self.log_upper, log_x <= self.log_lower
        inside = ~(above | below)
        psi = np.full(log_x.shape, -1.0)
        psi[inside] = self.solve(log_x[inside]).real - 1.0
        psi[above] = self._beyond_edge(log_x[above], self.upper_delta - 1.0)
        if not self.has_hard_edge:
            psi[below] = -1.0 + self._beyond_edge(log_x[below], self.lower_delta)
        return psi

    def _beyond_edge(self, log_x: FloatArray, edge: float) -> FloatArray:
        """Find y between 0 and ``edge`` by bisection in ln |y|: y = ψ above the support, y = 1 + ψ < 0 below it."""
        sign = math.copysign(1.0, edge)
        near, far = np.full(log_x.shape, math.log(abs(edge))), np.full(log_x.shape, -_FARTHEST)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (near + far)
            y = sign * np.exp(middle)
            psi, log_delta = (y, np.log1p(y)) if sign > 0 else (y - 1.0, middle)
            at = self.minimal_count * log_delta - (middle if sign > 0 else np.log(-psi))
            for c, _, multiplicity in self.wide:
                at = at + multiplicity * np.log1p(c * psi)
            farther = sign * (log_x - at) > 0.0  # x falls with y above the support, and grows with |y| below
            near, far = np.where(farther, middle, near), np.where(farther, far, middle)
        return sign * np.exp(0.5 * (near + far))

    def _newton(self, delta: ComplexArray, edge: float, log_ratio: FloatArray) -> ComplexArray:
        """Improve ψ = δ - 1 at ln(x / x_edge) = ``log_ratio``, where ψ_edge = ``edge`` - 1."""
        w = delta - edge
        for _ in range(_NEWTON_STEPS):
            psi = delta - 1.0
            # ln(1 + ψ) and ln ψ are combined: at small aspect ratios each is large, but their difference is not.
            residual = (
                log_excess(-w / (psi * edge), delta * (edge - 1.0) / (psi * edge))
                + w**2 / (edge * psi * (edge - 1.0))
                - log_ratio
            )
            slope = -1.0 / (delta * psi)
            if self.minimal_count > 1:
                residual = residual + (self.minimal_count - 1) * log_excess(w / edge, delta / edge)
                slope = slope + (self.minimal_count - 1) / delta
            for c, gap, multiplicity in self.wide:
                at_edge = gap + c * edge
                residual = residual + multiplicity * log_excess(c * w / at_edge, (gap + c * delta) / at_edge)
                slope = slope + multiplicity * c / (gap + c * delta)
            step = residual / slope
            w, delta = w - step, delta - step
        return delta


def chain_map(dims: Sequence[float]) -> ChainMap:
    return _chain_map(tuple(map(float, dims)))


_chain_map = lru_cache(maxsize=256)(ChainMap)


def chain_scale(chain: ChainMap, factor: Fraction) -> float:
    return as_float(factor * math.prod(map(Fraction, chain.dims)) / Fraction(chain.rank))


def edge_scale(chain: ChainMap, delta: float, eigenvalue: float) -> float:
    curvature = abs(chain.log_curvature(delta)) * eigenvalue
    return (eigenvalue * math.sqrt(curvature / 2.0) / chain.rank) ** (2.0 / 3.0)
