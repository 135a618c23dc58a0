"""Law of a Gaussian chain in the coordinate χ of its map, as piecewise polynomials of a, b and c, analytic in χ.

    Im ψ = u^(1/2) v^(1/2) exp(a),   sf = u^(3/2) exp(b),   cdf = v^(3/2) exp(c)              (soft edges)
    Im ψ = u^(1/2) (x/x_+)^(1/k) exp(a),                    cdf = (x/x_+)^(1/k) exp(c)        (hard edge)

with u = 1 - x/x_+, v = 1 - x_-/x, and k the number of minimal n_l. The prefactors hold all that is singular.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from rmtbase.laws._chain._chain_map import ChainMap
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._piecewise import PiecewisePolynomial, nodes, roughness

_FEWEST_PIECES, _MOST_PIECES = 32, 1024
_ROUGH = 2e-14  # just above the rounding of a, b and c at the nodes
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(16)
_NOTHING = 40.0  # exp(-40) is lost beside 1
_LARGEST_ANGLE = 40.0  # at a hard edge: exp(-1600) is zero in any unit
_NEWTON_STEPS = 3


@dataclass(frozen=True, eq=False)
class Position:
    """Points inside the support, with small relative errors of the distances to the edges."""

    chi: FloatArray  # the coordinate of :meth:`ChainMap.angle`
    above: FloatArray  # ln(x_+/x)
    u: FloatArray  # 1 - x/x_+
    v: FloatArray | float  # 1 - x_-/x; 1 at a hard edge


@dataclass(frozen=True, eq=False)
class _Masses:
    middle: float  # angle near the median
    cdf_at_middle: float  # mass below ``middle``
    upper: PiecewisePolynomial  # b, on [0, middle]
    lower: PiecewisePolynomial  # c, on [middle, end]
    guess_of_upper: tuple[FloatArray, FloatArray]  # interpolation table of χ by sf^(1/3), ascending
    # interpolation table of χ by cdf^(1/3), or by (-ln cdf)^(1/2) at a hard edge; both are nearly linear in χ
    guess_of_lower: tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class ChainProfile:
    """Dimensionless law of a chain. Numerical; relative errors are a few units of rounding."""

    chain: ChainMap

    def position(self, chi: FloatArray) -> Position:
        if self.chain.has_hard_edge:
            return Position(chi, chi**2, -np.expm1(-(chi**2)), 1.0)
        above = self.chain.log_span * np.sin(0.5 * chi) ** 2
        below = self.chain.log_span * np.cos(0.5 * chi) ** 2
        return Position(chi, above, -np.expm1(-above), -np.expm1(-below))

    def imag_psi(self, at: Position) -> FloatArray:
        return np.sqrt(at.u * at.v) * np.exp(self._height(at.chi) - self._fall(at))

    def mass_per_angle(self, at: Position) -> FloatArray:
        if self.chain.has_hard_edge:
            return self.imag_psi(at) * (2.0 / np.pi) * at.chi
        return self.imag_psi(at) * (0.5 * self.chain.log_span / np.pi) * np.sin(at.chi)

    def sf(self, at: Position) -> FloatArray:
        return np.where(at.chi < self._masses.middle, self._upper_mass(at), 1.0 - self._lower_mass(at))

    def cdf(self, at: Position) -> FloatArray:
        return np.where(at.chi < self._masses.middle, 1.0 - self._upper_mass(at), self._lower_mass(at))

    def quantile(self, below: FloatArray, above: FloatArray) -> Position:
        masses = self._masses
        chi = np.empty(below.shape)
        upper = below > masses.cdf_at_middle
        low, high = below[~upper], above[upper]
        key = np.sqrt(-np.log(low)) if self.chain.has_hard_edge else np.cbrt(low)
        chi[upper] = self._root(np.interp(np.cbrt(high), *masses.guess_of_upper), high, self._upper_mass, 1.0)
        chi[~upper] = self._root(np.interp(key, *masses.guess_of_lower), low, self._lower_mass, -1.0)
        return self.position(chi)

    def _root(
        self, chi: FloatArray, mass: FloatArray, function: Callable[[Position], FloatArray], sign: float
    ) -> FloatArray:
        """Solve ln function(χ) = ln mass by Newton's method; ``sign`` is -1 if the function falls with χ, else +1."""
        # Beyond this angle at a hard edge the mass is not a normal double; the eigenvalue is zero long before.
        farthest = math.sqrt(700.0 * self.chain.minimal_count) if self.chain.has_hard_edge else math.inf
        for _ in range(_NEWTON_STEPS):
            at = self.position(np.minimum(chi, farthest))
            value = function(at)
            chi = at.chi - sign * np.log(value / mass) * value / self.mass_per_angle(at)
        return chi

    def _upper_mass(self, at: Position) -> FloatArray:
        return at.u * np.sqrt(at.u) * np.exp(self._masses.upper(at.chi))

    def _lower_mass(self, at: Position) -> FloatArray:
        return at.v * np.sqrt(at.v) * np.exp(self._masses.lower(at.chi) - self._fall(at))

    def _fall(self, at: Position) -> FloatArray | float:
        return at.above / self.chain.minimal_count if self.chain.has_hard_edge else 0.0

    @cached_property
    def _end(self) -> float:
        chain = self.chain
        if not chain.has_hard_edge:
            return math.pi
        # There ln|1 + ψ| = (ln x - sum ln(1 - c)) / k is far below the logarithm of the smallest gap 1 - c.
        gaps = math.fsum(multiplicity * math.log(gap) for _, gap, multiplicity in chain.wide)
        smallest = math.log(min((gap for _, gap, _ in chain.wide), default=1.0))
        return math.sqrt(chain.log_upper - gaps - chain.minimal_count * (smallest - _NOTHING))

    @cached_property
    def _height(self) -> PiecewisePolynomial:
        pieces = _FEWEST_PIECES
        while True:
            chi = nodes(0.0, self._end, pieces)
            at = self.position(chi)
            height = np.log(self.chain.solve_at_angle(chi).imag) - 0.5 * np.log(at.u * at.v) + self._fall(at)
            if roughness(height) < _ROUGH or pieces == _MOST_PIECES:
                return PiecewisePolynomial.through(height, 0.0, self._end)
            pieces *= 2

    @cached_property
    def _masses(self) -> _Masses:
        pieces = self._height.coefficients.shape[1]
        chi, ends = nodes(0.0, self._end, pieces), np.linspace(0.0, self._end, pieces + 1)
        masses = self._mass_between(ends[:-1], ends[1:])
        # Sums of positive terms from either edge: each mass has a small relative error.
        to_left = np.concatenate([[0.0], np.cumsum(masses[:-1])])
        to_right = np.concatenate([np.cumsum(masses[:0:-1])[::-1], [0.0]])
        if self.chain.has_hard_edge:  # k Im ψ / π, the leading form of the cdf
            end = self.position(np.array([self._end]))
            to_right = to_right + float(self.imag_psi(end)[0]) * self.chain.minimal_count / math.pi
        log_sf = np.log(to_left[:, None] + self._mass_between(ends[:-1, None], chi))
        log_cdf = np.log(to_right[:, None] + self._mass_between(chi, ends[1:, None]))
        at = self.position(chi)
        middle = int(np.clip(np.searchsorted(to_left, 0.5), 1, pieces - 1))
        upper = PiecewisePolynomial.through((log_sf - 1.5 * np.log(at.u))[:middle], 0.0, ends[middle])
        lower = (log_cdf - 1.5 * np.log(at.v) + self._fall(at))[middle:]
        lower = PiecewisePolynomial.through(lower, ends[middle], self._end)
        above, below = log_sf[:middle].ravel(), log_cdf[middle:].ravel()
        high, low = np.append(0.0, chi[:middle]), chi[middle:].ravel()
        if self.chain.has_hard_edge:
            far = np.linspace(self._end, _LARGEST_ANGLE, 500)
            low = np.append(low, far)
            key = np.sqrt(-np.append(below, lower.coefficients[-1, -1] - far**2 / self.chain.minimal_count))
        else:
            low = np.append(low, np.pi)[::-1]
            key = np.append(np.exp(below / 3.0), 0.0)[::-1]
        guesses = (np.append(0.0, np.exp(above / 3.0)), high), (key, low)
        return _Masses(ends[middle], float(to_right[middle - 1]), upper, lower, *guesses)

    def _mass_between(self, start: FloatArray, stop: FloatArray) -> FloatArray:
        half = 0.5 * (stop - start)[..., None]
        chi = start[..., None] + half * (1.0 + _GAUSS_NODES)
        return half[..., 0] * (self.mass_per_angle(self.position(chi)) @ _GAUSS_WEIGHTS)


chain_profile = lru_cache(maxsize=256)(ChainProfile)
