"""The limiting eigenvalue law of a residual path."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rmtbase.errors import ParameterError
from rmtbase.laws._arrays import ComplexArray
from rmtbase.laws._residual._eigenvalue_law import EigenvalueLaw, exponential
from rmtbase.laws._residual._log_eigenvalue import LogEigenvalue
from rmtbase.laws._residual._residual_map import ResidualMap
from rmtbase.parameters import require_order, require_positive_integer, require_positive_number


@dataclass(frozen=True)
class ResidualParameters:
    """L and σ of a residual path, checked: the fields of every law of one."""

    depth: int
    sigma: float

    def __post_init__(self) -> None:
        depth, sigma = require_residual(self.depth, self.sigma)
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "sigma", sigma)


@dataclass(frozen=True)
class ResidualPath(ResidualParameters, EigenvalueLaw):
    """Limiting law of the eigenvalues λ of P Pᵀ, P = Π_{l=1..L} (I + σ G_l / √d), as d → infinity.

    G_l are independent d x d matrices with independent entries of mean 0 and variance 1. P is the sum over all 2^L
    paths through L residual blocks. With ψ(λ) = Σ_k m_k λ^{-k} the moment generating function,

        λ = (1 + p)^(L+1) (p + σ²) (p + 1 + σ²)^(L-1) / p,    ψ = p (p + 1 + σ²) / σ²,
        density(λ) = |Im ψ(λ)| / (π λ),    S(ψ) = ((1 + p)(p + 1 + σ²))^(-L)

    (the information-plus-noise law of Dozier & Silverstein 2007, and the S-transform's product; see Tarnowski,
    Warchol, Jastrzebski, Tabor & Nowak 2018 for residual networks). The lower edge is soft for σ < 1. For
    σ ≥ 1 it is hard, at zero, with a mass ~ λ^(1/(L+1)) for σ > 1 and λ^(2/(L+2)) at σ = 1.

    The law is asymptotic in d alone, exact for every depth and σ; a finite draw differs by O(1/d) inside the
    support. Its functions are numerical, to rounding: a few units of it in ln λ. Their closed forms are those
    of the cdf and of the moments.

    Attributes:
        depth: L, a positive integer.
        sigma: the standard deviation of the entries of a block is σ / √d.

    Raises:
        ParameterError: for a depth that is not a positive integer, or a σ that is not a number in
            [1e-100, 1e100].
    """

    @property
    def log_eigenvalue(self) -> LogEigenvalue:
        """The law of ln λ, with the same methods: use it where λ itself overflows."""
        return LogEigenvalue(_residual_map(self.depth, self.sigma))

    def moment(self, k: int) -> float:
        """E[λ^k], k = 0, 1, 2, ...: exact for the law, rounded once; inf if it is too large for a double.

        m_k = [p^(k-1)] ψ'(p) ((1 + p)^(L+1) (p + σ²) (p + 1 + σ²)^(L-1))^k / k, Lagrange's inversion in
        integers: σ² = N/D, and p = σ² q.
        """
        order = require_order(k)
        if order == 0:
            return 1.0
        try:
            return _moment(order, self.depth, self.sigma)
        except OverflowError:
            return math.inf

    def mean(self) -> float:
        """E[λ] = (1 + σ²)^L, exact at every d."""
        return self.moment(1)

    def var(self) -> float:
        """Variance of lambda: L σ² (2 + σ²) (1 + σ²)^(2L-2)."""
        variance = self.sigma**2
        growth = 2.0 * (self.depth - 1) * math.log1p(variance)
        return exponential(growth + math.log(self.depth) + math.log(variance) + math.log(2.0 + variance))

    def log_mean(self) -> float:
        """E[ln λ]: 0 for σ ≤ 1, L (ln σ² - 1 + 1/σ²) for σ > 1, in closed form.

        ln λ averages 2 L ln|1 + σ z| over the circular law, uniform for |z| < 1.
        """
        if self.sigma <= 1.0:
            return 0.0
        return self.depth * (2.0 * math.log(self.sigma) - (1.0 - 1.0 / self.sigma) * (1.0 + 1.0 / self.sigma))

    def edge_scale(self, d_model: int) -> tuple[float | None, float]:
        """(lower, upper) Tracy–Widom scale (λ √(|F''/F| λ / 2) / d)^(2/3) at width d; None at a hard edge.

        λ = F(ψ). The largest eigenvalue is close to support[1] + edge_scale[1] TW_1, the smallest to
        support[0] - edge_scale[0] TW_1: asymptotic, with a neglected shift of the mean by a part of the scale
        that vanishes as d^(-1/3). The scale is that of a general edge (El Karoui 2007).
        """
        width = require_positive_integer("d_model", d_model)
        cut = _residual_map(self.depth, self.sigma)
        lower, upper = self.support

        def scale(w: ComplexArray, eigenvalue: float) -> float:
            return eigenvalue * (math.sqrt(0.5 * abs(cut.log_curvature(float(w[0].real)))) / width) ** (2.0 / 3.0)

        return None if cut.lower is None else scale(cut.lower, lower), scale(cut.upper, upper)

    def _density_at_zero_singular_value(self) -> float:
        # s pdf(s²) ~ s^(2a - 1) where the mass below λ is ~ λ^a.
        exponent = 2.0 / (self.depth + 2) if self.sigma == 1.0 else 1.0 / (self.depth + 1)
        if self.sigma < 1.0 or exponent > 0.5:
            return 0.0
        if exponent < 0.5:
            return math.inf
        # (L, σ) = (2, 1): ψ + 1 = i s. L = 1: ψ + 1 = i s √(σ² - 1) / σ².
        return 2.0 / math.pi * (1.0 if self.depth == 2 else math.sqrt(self.sigma**2 - 1.0) / self.sigma**2)


def require_residual(depth: object, sigma: object) -> tuple[int, float]:
    """(depth, σ) of a residual path in their own types, or a :class:`ParameterError` that names the bad one."""
    checked_depth = require_positive_integer("depth", depth)
    checked_sigma = require_positive_number("sigma", sigma)
    if not 1e-100 <= checked_sigma <= 1e100:
        raise ParameterError("sigma", sigma, "a number in [1e-100, 1e100], of which sigma^2 is a normal double")
    return checked_depth, checked_sigma


@lru_cache(maxsize=256)
def _residual_map(depth: int, sigma: float) -> ResidualMap:
    return ResidualMap(depth, sigma)


@lru_cache(maxsize=256)
def _moment(k: int, depth: int, sigma: float) -> float:
    """[q^(k-1)] (2Nq + N + D) (1 + q)^k (D + Nq)^((L+1)k) (D + N + Nq)^((L-1)k) / (k D^(2Lk+1))."""
    n, d = (Fraction(sigma) ** 2).as_integer_ratio()
    series = [n + d, 2 * n, *[0] * k][:k]
    for constant, linear, power in ((1, 1, k), (d, n, (depth + 1) * k), (d + n, n, (depth - 1) * k)):
        series = _times_power(series, constant, linear, power)
    return series[k - 1] / (k * d ** (2 * depth * k + 1))


def _times_power(series: list[int], constant: int, linear: int, power: int) -> list[int]:
    """Product of a truncated series with (constant + linear q)^power."""
    count = min(len(series), power + 1)
    factor = [math.comb(power, j) * linear**j * constant ** (power - j) for j in range(count)]
    return [sum(factor[j] * series[i - j] for j in range(min(i + 1, count))) for i in range(len(series))]
