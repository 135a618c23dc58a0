"""Linear spectral statistics Σ_k f(λ_k) of a real Gaussian chain: mean, covariance and third cumulants.

One factor, λ = w (n + Psi) with Psi = r ψ, adds (1/2) d ln(d λ/d w) to the mean of the resolvent, and to its covariance
the kernel 2 d w_1 d w_2 / (w_1 - w_2)² minus that of λ (Bai & Silverstein 2004). From λ_0 = 1 + n_0/Psi on, the steps
telescope. The third cumulant is the next form of the recursion of Eynard & Orantin (2007), times (2/β)². Entries that
are not normal add, with K = Σ_l κ_l / (n_{l-1} n_l), -(K/2) (r ψ(λ))² to E ln det(λ - W Wᵀ) and K r ψ(λ_1) r ψ(λ_2) to
its covariance (docs/mathematics/product-spectrum.md).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.integrate import IntegrationWarning
from scipy.optimize import brentq

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import ChainMap, chain_map, chain_scale
from rmtbase.laws._chain._gaussian_chain import GaussianChain
from rmtbase.laws._distribution import ComplexArray, FloatArray
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes, variance_factor
from rmtbase.parameters import require_real_numbers
from rmtbase.shown import in_one_line

_FEWEST, _MOST = 64, 1024
_EIGENVALUE_NODES = 256
_CONVERGED = 1e-10


@in_one_line
@dataclass(frozen=True)
class LinearStatistics:
    """First three joint cumulants of the sums S_i = Σ_k f_i(λ_k) over the r nonzero eigenvalues of one draw.

    Attributes:
        mean: E[S_i] = r E_law[f_i] + a correction of order 1; neglected: terms of order 1/r.
        covariance, third_cumulant: of S_i, S_j (and S_k); neglected: terms of relative order 1/r.
    """

    mean: Float[np.ndarray, " function"]
    covariance: Float[np.ndarray, "function function"]
    third_cumulant: Float[np.ndarray, "function function function"]


def linear_statistics(
    law: GaussianChain, functions: Sequence[Callable[[FloatArray], ArrayLike]], excess_kurtosis: ArrayLike = 0.0
) -> LinearStatistics:
    """Return joint cumulants of sums over the eigenvalues of one draw of a chain, by the central limit theorem.

    With ψ on the cut of the chain's law, f(ψ) short for f(λ(ψ)), contours around the cut, and a the zeros of λ'(ψ),

        E[S]          = r E_law[f] + (1/2) (1/2 π i) ∮ f d ln(ψ² λ'(ψ)) - K r² (1/2 π i) ∮ f ψ d ψ
        Cov(S, T)     = 2 (1/2 π i)² ∮∮ f(ψ_1) g(ψ_2) d ψ_1 d ψ_2 / (ψ_1 - ψ_2)² + K C(f) C(g)
        k3(S, T, U)   = 4 Σ_a f_a g_a u_a λ(a) / (r λ''(a)),     f_a = (1/2 π i) ∮ f d ψ / (ψ - a)²

    with K = Σ_l κ_l / (n_{l-1} n_l) and C(f) = -r (1/2 π i) ∮ f d ψ. Numerical, to 1e-10, by a trapezoidal rule (soft
    edges); scipy.integrate.IntegrationWarning if 1024 nodes do not reach that, as at a kink (Bai & Silverstein, Ann.
    Probab. 32, 553 (2004), for one Wishart matrix; Eynard & Orantin 2007 for the kernels).

    Args:
        law: the chain; its atom, if any, is left out.
        functions: map eigenvalues to an array of the same shape; analytic on the support, bounded at a hard edge.
        excess_kurtosis: κ of the entries of all factors, or one for each factor.

    Raises:
        ParameterError: for no function, one that does not return finite numbers, or a kurtosis that no law has.
    """
    if len(functions) == 0:
        raise ParameterError("functions", functions, "at least one function")
    chain = chain_map(law.dims)
    eigenvalue_at_one = chain_scale(chain, variance_factor(law.dims, law.sigmas, law.normalization))

    def evaluate(log_x: FloatArray) -> FloatArray:
        eigenvalues = eigenvalue_at_one * np.exp(log_x)
        values = [np.asarray(f(eigenvalues), dtype=np.float64) for f in functions]
        if any(row.shape != log_x.shape or not np.isfinite(row).all() for row in values):
            raise ParameterError("functions", functions, "functions that return one finite number per eigenvalue")
        return np.stack(values)

    return linear_statistics_of_map(chain, evaluate, kurtosis_weight(law.dims, excess_kurtosis))


def linear_statistics_of_map(
    chain: ChainMap, functions: Callable[[FloatArray], FloatArray], kurtosis: float = 0.0
) -> LinearStatistics:
    """Return :func:`linear_statistics` for a map and functions of ln x, (i, len(ln x)); ``kurtosis`` is K."""
    previous, count = None, _FEWEST
    while True:
        cut = _Cut.of(chain, count)
        values = functions(cut.log_x)
        covariance = cut.covariance(values)
        size = np.sqrt(np.abs(np.diag(covariance)))
        if previous is not None and (np.abs(covariance - previous) <= _CONVERGED * np.outer(size, size)).all():
            break
        if count >= _MOST:
            message = f"linear_statistics: {_MOST} nodes do not reach {_CONVERGED}"
            warnings.warn(message, IntegrationWarning, stacklevel=3)
            break
        previous, count = covariance, 2 * count
    rank = chain.rank
    third, at_lower = np.zeros((len(values),) * 3), np.zeros(len(values))
    for delta in _critical_points(chain):
        third += _cubed(cut.response(values, delta - 1.0, at_lower)) / (rank * chain.log_curvature(delta))
    at_upper, upper = _at_edge(cut, functions, values, chain.log_upper, chain.upper_delta)
    third += _cubed(upper) / (rank * chain.log_curvature(chain.upper_delta))
    if not chain.has_hard_edge:
        at_lower, lower = _at_edge(cut, functions, values, chain.log_lower, chain.lower_delta)
        third += _cubed(lower) / (rank * chain.log_curvature(chain.lower_delta))
    mean = cut.mean(values, at_upper, at_lower)
    if kurtosis:
        unit = rank * cut.step / np.pi
        shift, scale = rank * unit * (values @ (cut.psi * cut.first).imag), unit * (values @ cut.first.imag)
        mean, covariance = mean + kurtosis * shift, covariance + kurtosis * np.outer(scale, scale)
    return LinearStatistics(mean, covariance, 4.0 * third)


def eigenvalue_response_of_map(
    chain: ChainMap, functions: Callable[[FloatArray], FloatArray], log_x: float
) -> Float[np.ndarray, " function"]:
    """Cov(ln λ, S_i) at ln x inside the support: 2 Im ∮ (f(ψ) - f(p)) d ψ / (ψ - p) / (2 π i r Im p), p its ψ."""
    cut = _Cut.of(chain, _EIGENVALUE_NODES)
    place = np.array([log_x])
    p = chain.solve(place)[0] - 1.0
    kernel = cut.first / (cut.psi - p) - (cut.first / (cut.psi - p.conjugate())).conj()
    weight = cut.step * kernel / (2j * np.pi)
    return (functions(cut.log_x) - functions(place)) @ weight.imag * 2.0 / (chain.rank * p.imag)


def _at_edge(
    cut: _Cut, functions: Callable[[FloatArray], FloatArray], values: FloatArray, log_edge: float, delta: float
) -> tuple[FloatArray, FloatArray]:
    at_edge = functions(np.array([log_edge]))[:, 0]
    return at_edge, cut.response(values, delta - 1.0, at_edge)


def _critical_points(chain: ChainMap) -> list[float]:
    """1 + ψ at the zeros of λ'(ψ) that are not edges: one between each two neighbouring poles beyond the edges."""
    poles = ([0.0] if chain.has_hard_edge else []) + [-gap / c for c, gap, _ in chain.wide]

    def between(high: float, low: float) -> float:
        def at(t: float) -> float:
            return high + (low - high) / (1.0 + math.exp(-t))

        root: float = brentq(lambda t: chain.slope(at(t)), -30.0, 30.0, xtol=1e-14)  # type: ignore[assignment]
        return at(root)

    return [between(high, low) for high, low in pairwise(poles)]


def _cubed(vector: FloatArray) -> FloatArray:
    return np.einsum("i,j,k->ijk", vector, vector, vector)


@dataclass(frozen=True)
class _Cut:
    """Upper lip of the cut at the midpoints of equal steps of the chain's angle χ, from the upper edge down."""

    chain: ChainMap
    step: float
    log_x: FloatArray
    log_slope: FloatArray  # d ln x / d χ
    psi: ComplexArray
    first: ComplexArray  # d ψ / d χ
    second: ComplexArray

    @classmethod
    @lru_cache(maxsize=16)  # one chain is asked for several sets of functions in turn
    def of(cls, chain: ChainMap, count: int) -> _Cut:
        # At a hard edge ψ + 1 falls as exp(-χ² / k), with k the number of minimal n_l.
        end = math.sqrt(40.0 * chain.minimal_count) if chain.has_hard_edge else math.pi
        step = end / count
        chi = step * np.arange(0.5, count)
        log_x = chain.log_x_at_angle(chi)
        delta = chain.solve(log_x)
        psi = delta - 1.0
        if chain.has_hard_edge:
            slope, curvature = -2.0 * chi, np.full(count, -2.0)
        else:
            width = chain.log_upper - chain.log_lower
            slope, curvature = -0.5 * width * np.sin(chi), -0.5 * width * np.cos(chi)
        # d/d ψ of ln x, once and twice; then the chain rule for ψ(χ).
        once = chain.log_slope(delta)
        twice = 1.0 / psi**2 - chain.minimal_count / delta**2
        for c, gap, multiplicity in chain.wide:
            twice = twice - multiplicity * (c / (gap + c * delta)) ** 2
        first = slope / once
        return cls(chain, step, log_x, slope, psi, first, (curvature - twice * first**2) / once)

    def mean(self, values: FloatArray, at_upper: FloatArray, at_lower: FloatArray) -> FloatArray:
        """E[S], (i,). The zero of λ' on the contour at each soft edge contributes a quarter of f there."""
        density = -self.log_slope * self.psi.imag / np.pi
        turning = (2.0 * self.first / self.psi - self.second / self.first).imag / (2.0 * np.pi)
        return values @ (self.step * (self.chain.rank * density - turning)) + 0.25 * (at_upper + at_lower)

    def covariance(self, values: FloatArray) -> FloatArray:
        """Cov, (i, j), from differences of f at even and odd nodes of the whole contour, which share no point."""
        psi = np.concatenate([self.psi[::-1].conj(), self.psi])
        first = np.concatenate([-self.first[::-1].conj(), self.first])
        both = np.concatenate([values[:, ::-1], values], axis=1)
        kernel = first[::2, None] * first[None, 1::2] / (psi[::2, None] - psi[None, 1::2]) ** 2
        difference = both[:, ::2, None] - both[:, None, 1::2]
        rows = difference.reshape(len(values), -1)
        return (rows * kernel.real.ravel()) @ rows.T * (self.step / np.pi) ** 2

    def response(self, values: FloatArray, psi_edge: float, at_edge: FloatArray) -> FloatArray:
        """f_a = (1/2 π i) ∮ (f - f(a)) d ψ / (ψ - a)², (i,), at a = ``psi_edge``."""
        weight = (self.first / (self.psi - psi_edge) ** 2).imag
        return (values - at_edge[:, None]) @ weight * (self.step / np.pi)


_LEAST_KURTOSIS = -2.0  # the minimum over all laws, attained by two values of equal probability


@takes(ChainKeywords)
def eigenvalue_displacement(
    eigenvalue: ArrayLike, excess_kurtosis: ArrayLike, *shape: Any, **chain: Unpack[ChainKeywords]
) -> FloatArray:
    """Return the relative displacement K r Re ψ(λ) of eigenvalues by entries with excess kurtosis κ, same shape as λ.

    K = Σ_l κ_l / (n_{l-1} n_l), and ψ is the moment generating function of :class:`rmtbase.laws.GaussianChain`, real
    outside the support. For W_QK it is 2 κ Re ψ / d_model. At (768, 64) it shifts the log-determinant by about -κ/√2 of
    its standard deviations and λ_max by +κ/5 of its own. Self-normalised means, after it is undone, are within 0.07
    standard deviations of those of normal entries at (128, 16) and 0.025 at (256, 32) for uniform entries (κ = -1.2),
    0.24 and 0.19 for Laplace entries (κ = 3); scale-free spreads differ by at most 4 %, 20 % for Laplace ones.

    ``eigenvalue`` is λ ≥ 0 of the chain with its σ and normalization; ``excess_kurtosis`` is κ, at least -2, of the
    entries of all factors, or one for each. Other values raise a ParameterError.
    """
    parameters = ChainParameters(*shape, **chain)
    values = require_real_numbers("eigenvalue", eigenvalue)
    if (values < 0.0).any():
        raise ParameterError("eigenvalue", float(values.min()), "numbers that are not negative")
    weight = kurtosis_weight(parameters.dims, excess_kurtosis)
    chain_of = chain_map(parameters.dims)
    unit = chain_scale(chain_of, variance_factor(parameters.dims, parameters.sigmas, parameters.normalization))
    with np.errstate(divide="ignore"):
        log_x = np.log(values.reshape(-1) / unit)
    defined = ~np.isnan(log_x)
    moved = np.full(log_x.shape, np.nan)
    moved[defined] = weight * parameters.rank * chain_of.real_psi(log_x[defined])
    return moved.reshape(values.shape)[()]


def kurtosis_weight(dims: Sequence[int], excess_kurtosis: ArrayLike) -> float:
    kurtosis = require_real_numbers("excess_kurtosis", excess_kurtosis)
    if kurtosis.shape not in {(), (len(dims) - 1,)}:
        raise ParameterError(
            "excess_kurtosis", kurtosis.tolist(), f"one number, or one for each of {len(dims) - 1} factors"
        )
    if not (np.isfinite(kurtosis) & (kurtosis >= _LEAST_KURTOSIS)).all():
        raise ParameterError("excess_kurtosis", excess_kurtosis, f"finite, and at least {_LEAST_KURTOSIS:g}")
    factors = list(pairwise(dims))
    return math.fsum(
        float(k) / (m * n) for k, (m, n) in zip(np.broadcast_to(kurtosis, len(factors)), factors, strict=True)
    )
