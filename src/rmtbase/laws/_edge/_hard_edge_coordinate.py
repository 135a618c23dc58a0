"""Law of the Bessel edge, and the coordinate of a (nearly) hard lower edge in which λ_min follows it.

Derived in docs/mathematics/extreme-eigenvalues.md, with s, ν, y, u, G and D; the rest was simulated
(``studies/hard_edge``).
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline, PchipInterpolator, make_interp_spline
from scipy.optimize import brentq
from scipy.special import gammaln, jv, log_ndtr, ndtri_exp

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import ChainMap, chain_map
from rmtbase.laws._chain._chain_profile import chain_profile
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._edge._edge_coordinate import edge_coordinate
from rmtbase.laws._tabulated import Tabulated
from rmtbase.parameters import require_finite_number

LARGEST_INDEX = 32.0

_NODES = 96  # of the table, on each side of its middle
_FURTHEST = 80.0  # -ln of the tail probability at the ends of the table, beyond a score of 12
_FAR, _FARTHER = 14.0, 18.0  # -ln of the upper tail at the points that fix its expansion, which is used from the first


@dataclass(frozen=True)
class BesselEdge(Tabulated):
    """Law of the smallest point of the hard-edge Bessel process of β = 1.

    For a real m × (m + ν) Gaussian matrix it is that of 2 (2 m + ν - 1) λ_min / σ², up to order 1/m². P(S > s) =
    det(1 - V), V(x, y) = (√s/2) J_ν(√(s x y)) on L²(0, 1) (Bornemann 2010); below e^-14 ln P = τ - s/8 + (ν - 1)√s/2 -
    ν(ν - 1)(ln s)/8 + c/√s (Ramírez, Rider and Zeitouni 2011). Errors of the smaller tail: 1e-8 down to 1e-6.
    """

    index: float  # ν, from 0 to 32; an integer for a matrix

    def __post_init__(self) -> None:
        if not 0.0 <= require_finite_number("index", self.index) <= LARGEST_INDEX:
            raise ParameterError("index", self.index, f"a number from 0 to {LARGEST_INDEX:g}; beyond, the edge is soft")

    def _points(self) -> FloatArray:
        nu = self.index
        low = math.log(4.0) + 2.0 * (gammaln(nu + 2.0) - _FURTHEST) / (nu + 1.0)
        middle, high = (nu + 1.0) ** 2, self._where(self._far_out, -_FURTHEST)
        left = np.exp(np.linspace(low, math.log(middle), _NODES, endpoint=False))
        return np.append(left, np.linspace(math.sqrt(middle), math.sqrt(high), _NODES) ** 2)

    def _tails(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        far = self._ends[0][0]
        log_sf = np.array([self._log_determinant(s) if s < far else self._far_out(s) for s in x])
        return -np.expm1(log_sf), np.exp(log_sf)

    def _log_determinant(self, s: float) -> float:
        nodes, weights = np.polynomial.legendre.leggauss(30 + int(math.sqrt(s)))
        root = 0.5 * (nodes + 1.0)  # of x
        weight = root * weights
        kernel = 0.5 * math.sqrt(s) * jv(self.index, math.sqrt(s) * np.outer(root, root))
        values = np.linalg.eigvalsh(kernel * np.sqrt(np.outer(weight, weight)))
        return float(np.log1p(-values).sum())

    def _expansion(self, s: float) -> float:
        nu = self.index
        return -s / 8.0 + (nu - 1.0) * math.sqrt(s) / 2.0 - nu * (nu - 1.0) * math.log(s) / 8.0

    def _far_out(self, s: float) -> float:
        """ln P(S > s) by the expansion, with τ and c fixed by two values of the determinant."""
        (low, at_low), (high, at_high) = self._ends
        share = (s**-0.5 - low**-0.5) / (high**-0.5 - low**-0.5)
        return self._expansion(s) + at_low + share * (at_high - at_low)

    @cached_property
    def _ends(self) -> list[tuple[float, float]]:
        ends = [self._where(self._log_determinant, level) for level in (-_FAR, -_FARTHER)]
        return [(s, self._log_determinant(s) - self._expansion(s)) for s in ends]

    def _where(self, log_sf: Callable[[float], float], level: float) -> float:
        low = high = self.index + 1.0  # √s near the middle of the law
        while log_sf(high**2) > level:
            low, high = high, high + 2.0
        root: float = brentq(lambda root: log_sf(root**2) - level, low, high, xtol=1e-3)  # type: ignore[assignment]
        return root**2


bessel_edge = lru_cache(maxsize=64)(BesselEdge)


LARGEST_CROWD = 3.0
"""Largest simulated value of :attr:`HardEdgeCoordinate.crowd`."""

_CROWDING = 1.25
_DEEPEST = 0.9  # fraction of the eigenvalues below the last point of the table
_NEAR = 1e-3  # relative distance from the edge within which gaps are 0/0 and are interpolated
_RESOLVED = 1e-7  # s below which the computed corrections are only rounding
_STEEPER = 1e-9
_NEWTON_STEPS = 50


@dataclass(frozen=True)
class HardEdgeCoordinate:
    """Normal score of P(λ_min ≤ λ) as a function of ln λ, for the raw product at σ = 1 with ascending dimensions."""

    dims: tuple[int, ...]
    mended: bool = True  # the simulated remaining error is subtracted

    @property
    def excess(self) -> int:
        return self.dims[1] - self.dims[0]

    @property
    def order(self) -> float:
        """Exponent (ν + 1)/2: P(λ_min ≤ λ) falls to zero as this power of λ."""
        return 0.5 * (self.excess + 1)

    @property
    def crowd(self) -> float:
        """Number of further dimensions near the second smallest; a dimension larger by g counts as exp(-1.25 g)."""
        return math.fsum(math.exp(-_CROWDING * (n - self.dims[1])) for n in self.dims[2:])

    @property
    def psi(self) -> float:
        return self._chain.lower_delta - 1.0

    def score(self, log_eigenvalue: FloatArray) -> FloatArray:
        """Return the normal score at finite ln λ, same shape: a power law below the table, linear above it."""
        places, scores, spline = self._table
        inside = np.clip(log_eigenvalue, places[0], places[-1])
        beyond = log_eigenvalue - inside
        with np.errstate(invalid="ignore"):
            below = ndtri_exp(np.minimum(log_ndtr(scores[0]) + self.order * beyond, 0.0))
        return np.where(beyond < 0.0, below, spline(inside) + spline(places[-1], 1) * np.maximum(beyond, 0.0))

    def slope(self, log_eigenvalue: FloatArray) -> FloatArray:
        places, _, spline = self._table
        inside = spline(np.clip(log_eigenvalue, places[0], places[-1]), 1)
        score = self.score(log_eigenvalue)
        below = self.order * np.exp(log_ndtr(score) + 0.5 * score**2) * math.sqrt(2.0 * math.pi)
        return np.where(log_eigenvalue < places[0], below, inside)

    def log_eigenvalue(self, score: FloatArray) -> FloatArray:
        places, scores, spline = self._table
        target = np.clip(score, scores[0], scores[-1])
        place = np.interp(target, scores, places)
        for _ in range(_NEWTON_STEPS):
            step = (spline(place) - target) / spline(place, 1)
            place = np.clip(place - step, places[0], places[-1])
            if np.abs(step).max(initial=0.0) < 1e-14 * (1.0 + np.abs(place).max(initial=0.0)):
                break
        above = (score - target) / spline(places[-1], 1)
        below = (log_ndtr(score) - log_ndtr(scores[0])) / self.order
        return np.where(score < scores[0], places[0] + below, place + np.maximum(above, 0.0))

    @property
    def _chain(self) -> ChainMap:
        smallest, second, *larger = self.dims
        return chain_map((smallest - 0.5, second - 0.5, *larger))

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray, BSpline]:
        chain, bessel = self._chain, bessel_edge(self.excess)
        s, log_x = self._matched(np.exp(bessel.table[0]))
        # The shift of ln s, and D. Near zero both are constant; values lost to rounding are filled in.
        nu = float(self.excess)
        lost = int(np.searchsorted(s, _RESOLVED * max(nu, 1.0) ** 2))
        at, log_at = s[lost:], log_x[lost:]
        inside = at > nu**2
        upper, lower = np.empty(at.shape, complex), np.empty(at.shape, complex)
        upper[inside] = chain.solve(log_at[inside])
        lower[inside] = upper[inside].conj()
        if not inside.all():
            upper[~inside], lower[~inside] = edge_coordinate(chain, "lower").real_solutions(log_at[~inside])
        gap, bessel_gap = chain.rank * np.abs(upper - lower), np.sqrt(np.abs(at - nu**2))
        slope = np.sqrt(np.abs(chain.log_slope(upper) * chain.log_slope(lower)))
        relative = chain.rank / slope / (0.25 * at / bessel_gap)
        noise = np.where(inside, 1.0, -1.0) * (8.0 * np.log(gap / bessel_gap) - 4.0 * np.log(relative)) / gap**2
        shift = 0.5 * self._log_ratio(upper, lower, inside) / bessel_gap
        if not nu:  # here √s is the integral, and the shift is added to it
            shift = 2.0 * np.log1p(0.5 * shift)
        shift, noise = np.pad(shift, (lost, 0), "edge"), np.pad(noise, (lost, 0), "edge")
        place = log_x + math.fsum(math.log(n) for n in chain.dims) - math.log(chain.rank)
        moved: BSpline = make_interp_spline(place, np.log(s) + shift, k=5)
        log_s = moved(place)
        log_s[(log_s < bessel.table[0][0]) | (log_s > bessel.table[0][-1])] = np.nan
        score, first, second = (bessel.table[2](log_s, k) for k in range(3))
        rise, bend = first * moved(place, 1), second * moved(place, 1) ** 2 + first * moved(place, 2)
        spread: BSpline = make_interp_spline(place, noise, k=5)
        score = score + 0.5 * noise * (bend - score * rise**2) + 0.5 * spread(place, 1) * rise
        if self.mended:
            score = score - simulated_rest(self.excess, self.crowd, score)
        finite = np.where(np.isfinite(score), score, -np.inf)
        rising = np.append(True, np.diff(np.maximum.accumulate(finite)) > _STEEPER) & np.isfinite(score)
        return place[rising], score[rising], make_interp_spline(place[rising], score[rising], k=5)

    def _matched(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values of s and the ln x of the chain at which the integrals agree."""
        chain, nu = self._chain, float(self.excess)
        s = s[np.abs(s - nu**2) > _NEAR * nu**2]
        root = np.sqrt(np.abs(s - nu**2))
        inside = s > nu**2
        # π times the number of eigenvalues between λ and the edge, or half the integral outside.
        half = root.copy()
        if nu:
            half[inside] -= nu * np.arctan(root[inside] / nu)
            half[~inside] = nu * np.log((nu + root[~inside]) / np.sqrt(s[~inside])) - root[~inside]
        resolved = ~inside | (half < _DEEPEST * np.pi * chain.rank)
        s, half, inside = s[resolved], half[resolved], inside[resolved]
        if not nu:
            mass = half / (np.pi * chain.rank)
            return s, chain.log_upper - chain_profile(chain).quantile(mass, 1.0 - mass).above
        zeta = (1.5 * half) ** (2.0 / 3.0)
        return s, edge_coordinate(chain, "lower").log_x(np.where(inside, -zeta, zeta))

    def _log_ratio(self, upper: NDArray[Any], lower: NDArray[Any], inside: NDArray[np.bool_]) -> FloatArray:
        """ln(-G_+/G_-), over i inside; G is ψ λ'/λ times the 1 + c ψ of all n_l but the two smallest."""
        chain = self._chain
        first, second = ((delta - 1.0) * chain.log_slope(delta) for delta in (upper, lower))
        ratio = -first / second
        total = np.where(inside, np.angle(ratio), np.log(np.abs(ratio)))
        for c, gap, multiplicity in chain.wide if chain.has_hard_edge else chain.wide[1:]:
            factor = (gap + c * upper) / (gap + c * lower)
            total = total + multiplicity * np.where(inside, 2.0 * np.angle(gap + c * upper), np.log(np.abs(factor)))
        return total


def simulated_rest(excess: int, crowd: float, score: FloatArray) -> FloatArray:
    """Return the simulated error of a score, by linear interpolation in the crowd and in ln(1 + ν)."""
    table = json.loads(Path(__file__).with_name("hard_edge_rest.json").read_text(encoding="utf-8"))
    at = np.log1p(np.array(table["excess"]))
    rests = np.array(table["rest"])  # (ν, crowd, score)
    of_excess = make_interp_spline(at, rests, k=1)(min(math.log1p(excess), at[-1]))
    of_crowd = np.concatenate([np.zeros((1, of_excess.shape[1])), of_excess])
    rest = make_interp_spline([0.0, *table["crowd"]], of_crowd, k=1)(crowd)
    raised = np.array(table["score"]) + rest
    return PchipInterpolator(raised, rest)(np.clip(score, raised[0], raised[-1]))


hard_edge_coordinate = lru_cache(maxsize=256)(HardEdgeCoordinate)
