"""The limiting eigenvalue law of a product of Gaussian matrices."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import IntegrationWarning
from scipy.optimize.elementwise import find_root

from rmtbase.errors import ParameterError
from rmtbase.laws._chain_map import ChainMap, FloatArray
from rmtbase.laws._parameters import as_float, checked_dims, checked_sigmas, variance_factor
from rmtbase.parameters import require_normalization

_SMALLEST_LOG = -740.0  # below ln of the smallest positive double the eigenvalue is reported as zero
_MOST_NODES = 2**16


@lru_cache(maxsize=256)
def chain_map(dims: tuple[float, ...]) -> ChainMap:
    """Return the dimensionless map of a chain; maps are shared by all sigma."""
    return ChainMap(dims)


@dataclass(frozen=True)
class GaussianChain:
    """Limiting law of the eigenvalues lambda of W^T W, W = X_1 X_2 ... X_L with independent Gaussian factors.

    X_l has shape (n_{l-1}, n_l) and entries N(0, sigma_l^2). With r = min n_l, c_l = r/n_l and
    psi(lambda) = sum_k m_k lambda^{-k} the moment generating function of the r structurally nonzero eigenvalues,

        C prod_{l=0..L} (1 + c_l psi) / psi = lambda,    C = prod sigma_l^2 prod n_l / r,
        density(lambda) = |Im psi(lambda)| / (pi lambda)

    (Burda, Jarosz, Livan, Nowak, Swiech 2010; Dupic & Perez Castillo 2014). L = 1 is Marchenko-Pastur; (d, h, d) is
    W_QK. Sorted lambda_k of one draw lie at the law's quantiles up to fluctuations of order 1/r.

    The law itself is asymptotic: exact for n_l -> infinity at fixed ratios; the mean density of a finite draw
    differs by O(1/r) inside the support and has tails of Tracy-Widom width beyond it. Its functions are
    numerical, to rounding (about 1e-13 relative to the value, away from the edges' own conditioning).

    Attributes:
        dims: (n_0, ..., n_L), positive integers, L >= 1.
        sigmas: the L standard deviations; None means 1 for each.
        normalization: ``"none"`` for the raw product; ``"sqrt_d"`` divides W by sqrt(n_0), which is d_model for W_QK.
        atom: False: the law of the r structurally nonzero eigenvalues, of mass 1. True: the law of all
            n_L eigenvalues of the (n_L, n_L) matrix W^T W, with an atom of mass 1 - r/n_L at zero.
            ``pdf`` is then the continuous part, of mass r/n_L; ``cdf``, ``sf``, ``ppf``, the moments and ``expect``
            include the atom.

    Raises:
        ParameterError: for dimensions that are not positive integers, fewer than two of them, sigmas that are not
            positive and finite or not L in number, or an unknown normalization.
    """

    dims: tuple[int, ...]
    sigmas: Sequence[float] | None = None
    normalization: str = "none"
    atom: bool = False

    def __post_init__(self) -> None:
        dims = checked_dims(self.dims)
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "sigmas", checked_sigmas(self.sigmas, len(dims) - 1))
        object.__setattr__(self, "normalization", require_normalization(self.normalization))
        if not isinstance(self.atom, bool):
            raise ParameterError("atom", self.atom, "True or False")
        if not 1e-280 < self._scale < 1e280:
            raise ParameterError("sigmas", self.sigmas, "values for which the eigenvalues are finite doubles")

    @property
    def rank(self) -> int:
        """The rank r = min n_l: how many eigenvalues are structurally nonzero."""
        return min(self.dims)

    @property
    def has_hard_edge(self) -> bool:
        """Whether the nonzero eigenvalues reach down to zero: two or more of the n_l equal r."""
        return self._map.has_hard_edge

    @property
    def atom_mass(self) -> float:
        """Mass at zero: 1 - r/n_L with ``atom=True``, else 0."""
        return 1.0 - self.rank / self.dims[-1] if self.atom else 0.0

    @property
    def support(self) -> tuple[float, float]:
        """(lower, upper) edge of the nonzero eigenvalues; the atom, if any, lies outside it."""
        return self._scale * math.exp(self._map.log_lower), self._scale * math.exp(self._map.log_upper)

    @property
    def edge_scale(self) -> tuple[float | None, float]:
        """(lower, upper) Tracy-Widom scale (lambda sqrt(F''/F lambda / 2) / r)^(2/3); None at a hard edge.

        lambda_max is close to support[1] + edge_scale[1] TW_1 and lambda_min to support[0] - edge_scale[0] TW_1
        (asymptotic; see :func:`rmtbase.laws.largest_eigenvalue` for the finite-size shift).
        """
        lower, upper = self.support
        return (
            None if self.has_hard_edge else edge_scale(self._map, self._map.lower_delta, lower),
            edge_scale(self._map, self._map.upper_delta, upper),
        )

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at eigenvalue ``x``, same shape, in 1/eigenvalue; inf at a hard edge, 0 outside the support."""
        values = np.asarray(x, dtype=np.float64)
        inside, delta = self._solve(values)
        density = np.where(np.isnan(values), np.nan, 0.0)
        density[inside] = delta.imag / (np.pi * values[inside])
        if self.has_hard_edge:
            density[values == 0.0] = np.inf
        return self._mass * density

    def pdf_singular_values(self, s: ArrayLike) -> FloatArray:
        """Density 2 s pdf(s^2) of the singular value s = sqrt(lambda), s >= 0; inf at a hard edge."""
        values = np.asarray(s, dtype=np.float64)
        positive = values > 0.0
        density = np.where(np.isnan(values), np.nan, 0.0)
        density[positive] = 2.0 * values[positive] * self.pdf(values[positive] ** 2)
        if self.has_hard_edge:
            # s pdf(s^2) ~ s^(2/k - 1), k the number of minimal n_l: finite for k = 2 alone.
            density[values == 0.0] = self._density_at_zero_singular_value()
        return density

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(lambda <= x), in closed form in psi(x); the atom's jump at zero included."""
        values = np.asarray(x, dtype=np.float64)
        inside, delta = self._solve(values)
        nonzero = np.where(np.isnan(values), np.nan, (values >= self.support[1]).astype(np.float64))
        nonzero[inside] = self._map.cdf(delta)
        return self._mass * nonzero + self.atom_mass * (values >= 0.0)

    def sf(self, x: ArrayLike) -> FloatArray:
        """P(lambda > x) = 1 - cdf(x), without the cancellation."""
        values = np.asarray(x, dtype=np.float64)
        inside, delta = self._solve(values)
        nonzero = np.where(np.isnan(values), np.nan, (values < self.support[1]).astype(np.float64))
        nonzero[inside] = self._map.sf(delta)
        return self._mass * nonzero + self.atom_mass * (values < 0.0)

    def ppf(self, q: ArrayLike) -> FloatArray:
        """Smallest lambda with cdf(lambda) >= q: 0 for q up to the atom's mass; nan for q outside [0, 1].

        ``ppf(0)`` is the lower edge (0 with an atom), ``ppf(1)`` the upper edge.
        """
        probability = np.asarray(q, dtype=np.float64)
        lower, upper = self.support
        with np.errstate(invalid="ignore"):
            valid = (probability >= 0.0) & (probability <= 1.0)
            inner = (probability - self.atom_mass) / self._mass
        quantile = np.full(probability.shape, np.nan)
        quantile[valid & (inner <= 0.0)] = 0.0 if self.atom_mass > 0.0 else lower
        quantile[valid & (inner >= 1.0)] = upper
        between = valid & (inner > 0.0) & (inner < 1.0)
        if between.any():
            quantile[between] = self._scale * np.exp(self._log_x_quantile(inner[between]))
        return quantile if quantile.ndim else quantile[()]

    def moment(self, k: int) -> float:
        """E[lambda^k], k = 0, 1, 2, ...: exact for the law, rounded once.

        m_k = (C^k / k) [psi^(k-1)] prod_l (1 + c_l psi)^k, Lagrange's inversion of psi(lambda) in rational arithmetic.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
            raise ParameterError("k", k, "a non-negative integer")
        if k == 0:
            return 1.0
        moment = _rational_moment(self.dims, int(k)) * self._variance_factor ** int(k)
        if self.atom:
            moment *= Fraction(self.rank, self.dims[-1])
        return as_float(moment)

    def mean(self) -> float:
        """E[lambda]."""
        return self.moment(1)

    def var(self) -> float:
        """Variance of lambda, without cancellation: C^2 (sum_l c_l - 1), plus the atom's share."""
        spread = math.fsum(self.rank / n for n in self.dims) - 1.0
        if self._map.minimal_count == 1:
            spread = math.fsum(c * m for c, _, m in self._map.wide)
        mass = self._mass
        return self._scale**2 * mass * (spread + self.atom_mass)

    def std(self) -> float:
        """Standard deviation of lambda."""
        return math.sqrt(self.var())

    def expect(self, f: Callable[[FloatArray], ArrayLike], rtol: float = 1e-12) -> float:
        """E[f(lambda)] for a function that maps an array of eigenvalues to an array of the same shape.

        Numerical. The trapezoidal rule in the coordinate of :class:`ChainMap`, in which both edges are removed
        and an analytic f gives geometric convergence (ln lambda and powers above -1/2 included); the number
        of nodes doubles until two results agree to ``rtol`` relative to E|f|. A kink or a jump in f costs nodes.

        Raises:
            ParameterError: if f does not return one finite number per eigenvalue.

        Warns:
            scipy.integrate.IntegrationWarning: if 65 536 nodes do not reach ``rtol``.
        """
        total, previous, count = 0.0, math.nan, 32
        while count <= _MOST_NODES:
            eigenvalues, weights = self._quadrature(count)
            values = np.asarray(f(eigenvalues), dtype=np.float64)
            if values.shape != eigenvalues.shape or not np.isfinite(values).all():
                raise ParameterError("f", f, "a function that returns one finite number per eigenvalue")
            total, size = float(weights @ values), float(weights @ np.abs(values))
            if abs(total - previous) <= rtol * size:
                break
            previous, count = total, 2 * count
        else:
            warnings.warn(f"expect: {_MOST_NODES} nodes do not reach rtol = {rtol}", IntegrationWarning, stacklevel=2)
        if self.atom_mass > 0.0:
            at_zero = float(np.asarray(f(np.zeros(1)), dtype=np.float64)[0])
            return self._mass * total + self.atom_mass * at_zero
        return total

    @property
    def _mass(self) -> float:
        """Mass of the continuous part."""
        return self.rank / self.dims[-1] if self.atom else 1.0

    @property
    def _map(self) -> ChainMap:
        return chain_map(tuple(float(n) for n in self.dims))

    @property
    def _variance_factor(self) -> Fraction:
        return variance_factor(self.dims, tuple(self.sigmas or ()), self.normalization)

    @cached_property
    def _scale(self) -> float:
        return chain_scale(self._map, self._variance_factor)

    def _solve(self, values: FloatArray):
        lower, upper = self.support
        inside = (values > lower) & (values < upper)
        log_x = np.log(values[inside] / self._scale)
        return inside, self._map.solve(log_x)

    def _log_x_quantile(self, q: FloatArray) -> FloatArray:
        chain = self._map
        nodes, at_node = chain.curve[0], chain.curve_cdf
        if chain.has_hard_edge:
            nodes = np.append(nodes, math.sqrt(chain.log_upper - _SMALLEST_LOG))
            at_node = np.append(at_node, 0.0)
        # Rounding may leave neighbours out of order by an ulp; one node of slack on both sides covers it.
        right = np.searchsorted(-np.maximum.accumulate(at_node[::-1])[::-1], -q)
        low, high = nodes[np.clip(right - 2, 0, None)], nodes[np.clip(right + 1, None, nodes.size - 1)]

        def excess(chi: FloatArray, target: FloatArray) -> FloatArray:
            log_x = chain.log_x_at_angle(chi)
            inside = (log_x > chain.log_lower) & (log_x < chain.log_upper)
            mass = np.where(log_x >= chain.log_upper, 1.0, 0.0)
            mass[inside] = chain.cdf(chain.solve(log_x[inside]))
            if chain.has_hard_edge:
                mass[log_x <= _SMALLEST_LOG + 1e-9] = 0.0
            return mass - target

        result = find_root(excess, (low, high), args=(q,), tolerances={"xrtol": 4e-16, "xatol": 1e-15})
        return chain.log_x_at_angle(result.x)

    def _quadrature(self, count: int) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues and weights (of total mass 1) of the rule with ``count`` nodes."""
        chain = self._map
        if chain.has_hard_edge:
            # lambda ~ exp(-chi^2) and mass ~ lambda^(1/k): beyond this chi nothing is left at 1e-17, nor of
            # a power of lambda above -1/(2k).
            end = math.sqrt(min(80.0 * chain.minimal_count, 690.0))
            step = end / count
            chi = step * np.arange(0.5, count, dtype=np.float64)
            log_slope = 2.0 * chi
        else:
            step = math.pi / count
            chi = step * np.arange(0.5, count, dtype=np.float64)
            log_slope = 0.5 * (chain.log_upper - chain.log_lower) * np.sin(chi)
        log_x = chain.log_x_at_angle(chi)
        delta = chain.solve(log_x)
        return self._scale * np.exp(log_x), step * log_slope * delta.imag / np.pi

    def _density_at_zero_singular_value(self) -> float:
        if self._map.minimal_count > 2:
            return math.inf
        # 1 + psi = i rho with rho^2 = x / prod(1 - c): the density of lambda is rho / (pi lambda).
        gaps = math.prod(gap**multiplicity for _, gap, multiplicity in self._map.wide)
        return self._mass * 2.0 / (math.pi * math.sqrt(self._scale * gaps))


def chain_scale(chain: ChainMap, factor: Fraction) -> float:
    """Return C = factor prod n_l / r, the unit of the eigenvalues, rounded once."""
    return as_float(factor * math.prod(map(Fraction, chain.dims)) / Fraction(chain.rank))


def edge_scale(chain: ChainMap, delta: float, eigenvalue: float) -> float:
    """Return (lambda sqrt(|F''|/2) / r)^(2/3) at the edge psi = delta - 1, lambda = F(psi)."""
    curvature = abs(chain.log_curvature(delta)) * eigenvalue
    return (eigenvalue * math.sqrt(curvature / 2.0) / chain.rank) ** (2.0 / 3.0)


def _rational_moment(dims: tuple[int, ...], k: int) -> Fraction:
    """(C^k / k) [psi^(k-1)] prod_l (1 + c_l psi)^k for sigma = 1."""
    rank = min(dims)
    series = [Fraction(1)] + [Fraction(0)] * (k - 1)
    for n in dims:
        ratio = Fraction(rank, n)
        binomial = [math.comb(k, j) * ratio**j for j in range(k)]
        series = [sum(series[i] * binomial[j - i] for i in range(j + 1)) for j in range(k)]  # type: ignore[misc]
    return Fraction(math.prod(dims), rank) ** k * series[k - 1] / k
