"""Limiting eigenvalue law of a product of Gaussian matrices: any chain, W_QK, Marchenko–Pastur."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmtbase.arguments import checked
from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import ChainMap, chain_map, chain_scale, edge_scale
from rmtbase.laws._chain._chain_profile import ChainProfile, Position, chain_profile
from rmtbase.laws._cut import CutLaw
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, as_float, takes
from rmtbase.parameters import require_order, require_positive_integer, require_positive_number, require_real_numbers


@dataclass(frozen=True, init=False)
class GaussianChain(ChainParameters, CutLaw):
    """Limiting law of the eigenvalues λ of Wᵀ W, W = X_1 X_2 ... X_L with independent Gaussian factors.

    X_l has shape (n_{l-1}, n_l) and entries N(0, σ_l²). With r = min n_l, c_l = r/n_l and ψ(λ) = Σ_k m_k λ^{-k} the
    moment generating function of the r structurally nonzero eigenvalues,

        C Π_{l=0..L} (1 + c_l ψ) / ψ = λ,    C = Π σ_l² Π n_l / r,    density(λ) = |Im ψ(λ)| / (π λ)

    (Burda, Jarosz, Livan, Nowak, Swiech 2010; Dupic & Perez Castillo 2014), with C divided by n_0 for ``sqrt_d``. L = 1
    is Marchenko–Pastur; (d, h, d) is W_QK. Asymptotic: exact for n_l → infinity at fixed ratios; the mean density of a
    draw differs by O(1/r) inside the support and has tails of Tracy–Widom width. Numerical: relative errors are within
    2e-14 for pdf and sf and 1e-13 for cdf, up to the last double inside an edge (ratios from 1e-12 to 1, L up to 20).

    Attributes:
        dims: (n_0, ..., n_L), positive integers, L ≥ 1; ``d_model=, d_head=`` give those of W_QK.
        sigmas: the L standard deviations.
        normalization: ``"sqrt_d"``: W is divided by √n_0, which is √d_model for W_QK; ``"none"``: the raw product.
        atom: False: the law of the r structurally nonzero eigenvalues. True: the law of all n_L eigenvalues of Wᵀ W,
            with an atom of mass 1 - r/n_L at zero; ``pdf`` is then the continuous part, all else includes the atom.

    Raises:
        ParameterError: for dimensions that are not two or more positive integers, a positional pair of them, d_head >
            d_model, sigmas that are not L positive numbers, or keywords that are unknown or exclude each other.
    """

    atom: bool

    @takes(ChainKeywords)
    def __init__(self, *shape: Any, atom: bool = False, **chain: Unpack[ChainKeywords]) -> None:
        super().__init__(*shape, **chain)
        object.__setattr__(self, "atom", bool(atom))
        if not 1e-280 < self._scale < 1e280:
            raise ParameterError("sigmas", self.sigmas, "values for which the eigenvalues are finite doubles")

    @property
    def has_hard_edge(self) -> bool:
        """True if the nonzero eigenvalues reach down to zero: two or more of the n_l equal r."""
        return self._map.has_hard_edge

    @property
    def atom_mass(self) -> float:
        """Mass of the atom at zero: 1 - r/n_L with ``atom=True``, else 0."""
        return 1.0 - self.rank / self.dims[-1] if self.atom else 0.0

    @property
    def support(self) -> tuple[float, float]:
        """(lower, upper) edge of the nonzero eigenvalues; the atom, if any, lies outside it."""
        return self._scale * math.exp(self._map.log_lower), self._scale * math.exp(self._map.log_upper)

    @property
    def edge_scale(self) -> tuple[float | None, float]:
        """(lower, upper) Tracy–Widom scale (λ √(F''/F λ / 2) / r)^(2/3); None at a hard edge.

        λ_max is close to support[1] + edge_scale[1] TW_1 and λ_min to support[0] - edge_scale[0] TW_1 (asymptotic; El
        Karoui, Ann. Probab. 35, 663 (2007); see :func:`rmtbase.laws.largest_eigenvalue` for the finite-size shift).
        """
        lower, upper = self.support
        return (
            None if self.has_hard_edge else edge_scale(self._map, self._map.lower_delta, lower),
            edge_scale(self._map, self._map.upper_delta, upper),
        )

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at eigenvalue ``x``, same shape, in 1/eigenvalue; inf at a hard edge, 0 outside the support."""
        values = require_real_numbers("x", x)
        inside, at = self._locate(values)
        density = np.where(np.isnan(values), np.nan, 0.0)
        density[inside] = self._profile.imag_psi(at) / (np.pi * values[inside])
        if self.has_hard_edge:
            density[values == 0.0] = np.inf
        return self._mass * density

    def pdf_singular_values(self, s: ArrayLike) -> FloatArray:
        """Density 2 s pdf(s²) of the singular value s = √λ, s ≥ 0; inf at a hard edge."""
        values = require_real_numbers("s", s)
        positive = values > 0.0
        density = np.where(np.isnan(values), np.nan, 0.0)
        density[positive] = 2.0 * values[positive] * self.pdf(values[positive] ** 2)
        if self.has_hard_edge:
            # s pdf(s²) ~ s^(2/k - 1), with k the number of minimal n_l, is finite and nonzero only for k = 2.
            at_zero = math.inf
            if self._map.minimal_count == 2:  # 1 + ψ = i ρ with ρ² = x / Π (1 - c): the density of λ is ρ / (π λ)
                gaps = math.prod(gap**multiplicity for _, gap, multiplicity in self._map.wide)
                at_zero = self._mass * 2.0 / (math.pi * math.sqrt(self._scale * gaps))
            density[values == 0.0] = at_zero
        return density

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(λ ≤ x), including the jump at the atom; without an atom the relative error is small."""
        return self._mass_beyond(x, self._profile.cdf, np.greater) + self.atom_mass * (np.asarray(x) >= 0.0)

    def sf(self, x: ArrayLike) -> FloatArray:
        """P(λ > x) = 1 - cdf(x), with a small relative error up to the upper edge."""
        return self._mass_beyond(x, self._profile.sf, np.less) + self.atom_mass * (np.asarray(x) < 0.0)

    def ppf(self, q: ArrayLike) -> FloatArray:
        """Smallest λ with cdf(λ) ≥ q: 0 for q up to the atom's mass; nan for q outside [0, 1]."""
        below = require_real_numbers("q", q)
        with np.errstate(invalid="ignore"):
            return self._eigenvalue_between((below - self.atom_mass) / self._mass, (1.0 - below) / self._mass)

    def isf(self, q: ArrayLike) -> FloatArray:
        """Smallest λ with sf(λ) ≤ q: ``ppf(1 - q)``, but accurate for tiny q."""
        above = require_real_numbers("q", q)
        with np.errstate(invalid="ignore"):
            return self._eigenvalue_between((self._mass - above) / self._mass, above / self._mass)

    def moment(self, k: int) -> float:
        """E[λ^k], k = 0, 1, 2, ...: exact for the law, rounded once.

        m_k = (C^k / k) [ψ^(k-1)] Π_l (1 + c_l ψ)^k, by Lagrange inversion of ψ(λ) in rational arithmetic.
        """
        order = require_order(k)
        return as_float(self._rational_moments(order)[-1]) if order else 1.0

    def cumulant(self, k: int) -> float:
        """Return the k-th classical cumulant of λ, k = 1, 2, ...: mean, variance, ...; exact, rounded once."""
        moments, cumulants = self._rational_moments(require_positive_integer("k", k, 1_000)), []
        for n, moment in enumerate(moments, 1):  # κ_n = m_n - Σ_j C(n-1, j-1) κ_j m_{n-j}
            lower = (math.comb(n - 1, j - 1) * kappa * moments[n - j - 1] for j, kappa in enumerate(cumulants, 1))
            cumulants.append(moment - sum(lower))
        return as_float(cumulants[-1])

    def free_cumulant(self, k: int) -> float:
        """Return the k-th free cumulant of the law, k = 1, 2, ...: exact, rounded once.

        Free cumulants add when free random matrices are added. With ``atom=True`` those of one raw factor X of shape
        (n, p) are n p^(k-1) σ^(2k), the free Poisson law.
        """
        moments = self._rational_moments(require_positive_integer("k", k, 1_000))
        # m_n = Σ_s κ_s [z^(n-s)] M(z)^s, M(z) = 1 + Σ_k m_k z^k (Speicher 1994).
        series, order = [Fraction(1), *moments], len(moments)
        powers = [[Fraction(1)] + [Fraction(0)] * order]
        for _ in range(order):
            last = powers[-1]
            powers.append([sum((last[i] * series[j - i] for i in range(j + 1)), Fraction(0)) for j in range(order + 1)])
        cumulants: list[Fraction] = []
        for n, moment in enumerate(moments, 1):
            cumulants.append(moment - sum(kappa * powers[s][n - s] for s, kappa in enumerate(cumulants, 1)))
        return as_float(cumulants[-1])

    def var(self) -> float:
        """Variance of λ, without cancellation: C² (Σ_l c_l - 1), plus the contribution of the atom."""
        spread = math.fsum(self.rank / n for n in self.dims) - 1.0
        if self._map.minimal_count == 1:
            spread = math.fsum(c * m for c, _, m in self._map.wide)
        mass = self._mass
        return self._scale**2 * mass * (spread + self.atom_mass)

    @checked
    def expect(self, f: Callable[[FloatArray], ArrayLike], rtol: float = 1e-12) -> float:
        """E[f(λ)], computed as in :meth:`CutLaw.expect`; it includes the atom, where f must be finite."""
        total = super().expect(f, rtol)
        if self.atom_mass == 0.0:
            return total
        with np.errstate(all="ignore"):
            at_zero = float(np.asarray(f(np.zeros(1)), dtype=np.float64)[0])
        if not math.isfinite(at_zero):
            raise ParameterError("f", f, "a function that is finite at 0, where the law has its atom")
        return self._mass * total + self.atom_mass * at_zero

    @property
    def _mass(self) -> float:
        return self.rank / self.dims[-1] if self.atom else 1.0

    @property
    def _map(self) -> ChainMap:
        return chain_map(self.dims)

    @cached_property
    def _scale(self) -> float:
        return chain_scale(self._map, self._variance_factor)

    @property
    def _profile(self) -> ChainProfile:
        return chain_profile(self._map)

    @cached_property
    def _edge_remainders(self) -> tuple[float, float]:
        unit = self._variance_factor * math.prod(self.dims) / self.rank
        lower, upper = self.support
        below = (
            0.0 if self.has_hard_edge else float(unit * self._map.rational_x(self._map.lower_delta) - Fraction(lower))
        )
        return below, float(unit * self._map.rational_x(self._map.upper_delta) - Fraction(upper))

    def _locate(self, values: FloatArray) -> tuple[NDArray[np.bool_], Position]:
        (lower, upper), (lower_remainder, upper_remainder) = self.support, self._edge_remainders
        from_upper = (upper - values) + upper_remainder
        from_lower = (values - lower) - lower_remainder
        inside = (from_upper > 0.0) & (from_lower > 0.0)
        x, from_upper, from_lower = values[inside], from_upper[inside], from_lower[inside]
        with np.errstate(over="ignore"):
            above = np.log1p(from_upper / x)
        if self.has_hard_edge:
            above = np.where(np.isinf(above), math.log(upper) - np.log(x), above)
            return inside, Position(np.sqrt(above), above, from_upper / upper, 1.0)
        chi = 2.0 * np.arctan2(np.sqrt(above), np.sqrt(np.log1p(from_lower / lower)))
        return inside, Position(chi, above, from_upper / upper, from_lower / x)

    def _mass_beyond(self, x: ArrayLike, function: Callable[[Position], FloatArray], beyond: np.ufunc) -> FloatArray:
        values = require_real_numbers("x", x)
        inside, at = self._locate(values)
        mass = np.where(np.isnan(values), np.nan, beyond(values, sum(self.support) / 2.0))
        mass[inside] = function(at)
        return self._mass * mass

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.cdf(x)

    def _eigenvalue(self, at: Position) -> FloatArray:
        return self.support[1] * np.exp(-at.above)

    def _eigenvalue_between(self, below: FloatArray, above: FloatArray) -> FloatArray:
        """Return the eigenvalue with mass ``below`` and ``above`` it, as fractions of the continuous part's mass."""
        lower, upper = self.support
        quantile = np.full(below.shape, np.nan)
        quantile[(below <= 0.0) & (above <= 1.0 / self._mass)] = 0.0 if self.atom_mass > 0.0 else lower
        quantile[above == 0.0] = upper
        between = (below > 0.0) & (above > 0.0)
        at = self._profile.quantile(below[between], above[between])
        quantile[between] = np.clip(self._eigenvalue(at), lower, upper)
        return quantile[()]

    def _rational_moments(self, order: int) -> list[Fraction]:
        mass = Fraction(self.rank, self.dims[-1]) if self.atom else Fraction(1)
        unit, moments = self._variance_factor * Fraction(math.prod(self.dims), self.rank), []
        for k in range(1, order + 1):  # (C^k / k) [ψ^(k-1)] Π_l (1 + c_l ψ)^k
            series = [Fraction(1)] + [Fraction(0)] * (k - 1)
            for n in self.dims:
                binomial = [math.comb(k, j) * Fraction(self.rank, n) ** j for j in range(k)]
                series = [sum((series[i] * binomial[j - i] for i in range(j + 1)), Fraction(0)) for j in range(k)]
            moments.append(mass * unit**k * series[k - 1] / k)
        return moments

    @property
    def _last_angle(self) -> float:
        """Angle beyond which the mass, and its part in E[λ^p] for p > -1/(2k), are negligible (1e-17)."""
        # At a hard edge with k minimal n_l, λ ~ exp(-χ²), and the mass below λ is ~ λ^(1/k).
        return math.sqrt(min(80.0 * self._map.minimal_count, 690.0)) if self.has_hard_edge else math.pi

    def _at_angle(self, chi: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        at = self._profile.position(chi)
        return self._eigenvalue(at), self._profile.imag_psi(at) / np.pi, self._map.log_x_slope_at_angle(chi)


def low_rank_product(
    d_model: int,
    d_head: int,
    sigma_q: float | None = None,
    sigma_k: float | None = None,
    normalization: str = "sqrt_d",
    atom: bool = False,
    *,
    sigma: float | None = None,
) -> GaussianChain:
    """Return the limiting law of the eigenvalues of W_QKᵀ W_QK, W_QK = W_Qᵀ W_K: the chain (d_model, d_head, d_model).

    With γ = d_head/d_model and ``sqrt_d``, (1 + ψ) (1 + γ ψ)² / ψ = λ / (d_model σ_q² σ_k²), ψ_± = (-1 ± √(1 + 8/γ))/4
    at the edges, the mean is d_model σ_q² σ_k² and the variance 2 γ mean². ``sigma_q`` and ``sigma_k`` default to 1;
    ``sigma`` sets both. Errors as for :class:`GaussianChain`.
    """
    scale: dict[str, Any] = {"sigma_q": sigma_q, "sigma_k": sigma_k, "sigma": sigma, "normalization": normalization}
    return GaussianChain(d_model=d_model, d_head=d_head, atom=atom, **scale)


def marchenko_pastur(n_rows: int, n_columns: int, sigma: float = 1.0, atom: bool = False) -> GaussianChain:
    """Return the limiting law of the eigenvalues of Xᵀ X, X of shape (n_rows, n_columns) with entries N(0, σ²).

    The support is σ² (√n_rows ± √n_columns)², without any normalization, the same for X and Xᵀ; σ = 1/√n_rows gives the
    sample covariance Xᵀ X/n_rows. Without the atom it is the law of the min(n_rows, n_columns) nonzero eigenvalues;
    with it, of all n_columns (Marchenko & Pastur 1967). Errors as for :class:`GaussianChain`.
    """
    dims = (require_positive_integer("n_rows", n_rows), require_positive_integer("n_columns", n_columns))
    return GaussianChain(dims=dims, sigma=require_positive_number("sigma", sigma), atom=atom)


def naive_marchenko_pastur(
    d_model: int,
    d_head: int,
    sigma_q: float | None = None,
    sigma_k: float | None = None,
    normalization: str = "sqrt_d",
    atom: bool = False,
    *,
    sigma: float | None = None,
) -> GaussianChain:
    """Return the Marchenko–Pastur law that is often overlaid on W_QK, for comparison. It is not the law of W_QK.

    Its edges are d_model σ_q² σ_k² (1 ± √γ)², γ = d_head/d_model (times d_model without ``sqrt_d``), as for one factor
    rescaled to the right mean. At (768, 64) they are 388.59 and 1275.41, the right ones 290.44 and 1564.23, so 18 % of
    the eigenvalues of an untrained head look like outliers. Arguments and errors as for :func:`low_rank_product`.
    """
    product = low_rank_product(d_model, d_head, sigma_q, sigma_k, normalization, sigma=sigma)
    width, head, _ = product.dims
    scale = math.prod(product.sigmas) * (math.sqrt(width) if normalization == "none" else 1.0)
    return GaussianChain(dims=(head, width), sigma=scale, normalization="none", atom=atom)
