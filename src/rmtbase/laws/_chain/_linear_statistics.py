"""Linear spectral statistics Σ_k f(λ_k) of a real Gaussian chain: mean, covariance and third cumulants.

One step of the chain, M = Xᵀ B X with X of n columns and B given, is Bai & Silverstein's (2004) sample covariance
matrix. With Psi = Σ_k λ_k / (λ - λ_k) = r ψ and w the point where Psi_B(w) = Psi_M(λ), so that
λ = w (n + Psi), their companion transform of M is -1/w up to the factor n, their correction of the mean of the
resolvent the one-form (1/2) d ln(d λ/d w), and their covariance the kernel

    2 [ d w_1 d w_2 / (w_1 - w_2)² - d λ_1 d λ_2 / (λ_1 - λ_2)² ].

What B itself adds passes through the step unchanged as a form in Psi, because λ/w depends on Psi alone. The
corrections and kernels of the steps add up, and telescope; they start with B = 1, λ_0 = 1 + n_0/Psi, a Moebius
function of Psi:

    mean        (1/2) d ln(d λ/d λ_0) = (1/2) d ln(ψ² λ'(ψ)),
    covariance  2 d ψ_1 d ψ_2 / (ψ_1 - ψ_2)², less a term without effect around the cut.

The third cumulant is the next form of the same curve in the recursion of Eynard & Orantin (2007), x = ln λ and
y = r ψ, times (2/β)²: a sum over all zeros of d λ, those that are no edge of the support included.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.integrate import IntegrationWarning
from scipy.optimize import brentq

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import ChainMap, chain_map, chain_scale
from rmtbase.laws._chain._fourth_cumulant import kurtosis_weight
from rmtbase.laws._chain._gaussian_chain import GaussianChain
from rmtbase.laws._distribution import ComplexArray, FloatArray
from rmtbase.laws._parameters import variance_factor
from rmtbase.shown import in_one_line

_FEWEST, _MOST = 64, 1024
_EIGENVALUE_NODES = 256
_CONVERGED = 1e-10


@in_one_line
@dataclass(frozen=True)
class LinearStatistics:
    """First three joint cumulants of the sums S_i = Σ_k f_i(λ_k) over the r nonzero eigenvalues of one draw.

    Attributes:
        mean: E[S_i] = r E_law[f_i] + the 1/r correction; neglected: order 1/r.
        covariance: neglected: relative order 1/r.
        third_cumulant: of order 1/r; neglected: relative order 1/r.
        upper_response: Cov(ln λ_max, S_i), to leading order.
        lower_response: Cov(ln λ_min, S_i), to leading order; nan at a hard edge.
    """

    mean: Float[np.ndarray, " function"]
    covariance: Float[np.ndarray, "function function"]
    third_cumulant: Float[np.ndarray, "function function function"]
    upper_response: Float[np.ndarray, " function"]
    lower_response: Float[np.ndarray, " function"]


def linear_statistics(
    law: GaussianChain, functions: Sequence[Callable[[FloatArray], ArrayLike]], excess_kurtosis: ArrayLike = 0.0
) -> LinearStatistics:
    """Return the joint cumulants of sums over the eigenvalues of one draw of a chain, the central limit theorem's.

    With ψ on the cut of the chain's law, f(ψ) short for f(λ(ψ)), and contours around the cut,

        E[S]          = r E_law[f] + (1/2) (1/2 π i) ∮ f d ln(ψ² λ'(ψ))           the correction of β = 1
        Cov(S, T)     = 2 (1/2 π i)² ∮∮ f(ψ_1) g(ψ_2) d ψ_1 d ψ_2 / (ψ_1 - ψ_2)²
        k3(S, T, U)   = 4 Σ_a f_a g_a u_a λ(a) / (r λ''(a)),     f_a = (1/2 π i) ∮ f d ψ / (ψ - a)²
        Cov(ln λ_max, S) = 2 f_a / r  at a = ψ_+, and so for λ_min at a soft lower edge,

    a the zeros of λ'(ψ). Derived at the top of the module; for powers of λ these are the two leading terms of the exact
    E tr M^k, and the leading ones of the covariances and third cumulants. Of independent entries with excess kurtosis
    κ_l, K = Σ_l κ_l / (n_{l-1} n_l), to the same orders

        E[S]      += -K r² (1/2 π i) ∮ f ψ d ψ,
        Cov(S, T) += K C(f) C(g),    C(f) = -r (1/2 π i) ∮ f d ψ,

    the second a fluctuation of the scale of W alone; the third cumulants stay those of normal entries. Numerical, by
    the trapezoidal rule in a coordinate in which the integrands are periodic and analytic (soft edges): to 1e-10
    relative.

    Args:
        law: the chain; its atom, if any, is left out.
        functions: each maps an array of eigenvalues to an array of the same shape; analytic on the support. At a
            hard edge f must stay bounded.
        excess_kurtosis: κ of the entries of all factors, or one for each.

    Raises:
        ParameterError: for a law that is no chain, no function, or one that returns anything but one finite number per
            eigenvalue, or a kurtosis that no law has.

    Warns:
        scipy.integrate.IntegrationWarning: if 1024 nodes do not reach 1e-10, as for a function with a kink.

    Source: Bai & Silverstein, Ann. Probab. 32, 553 (2004), for one Wishart matrix; Eynard & Orantin, Commun. Number
        Theory Phys. 1, 347 (2007), for the kernels.
    """
    chain, evaluate, _ = _dimensionless(law, functions)
    return linear_statistics_of_map(chain, evaluate, kurtosis_weight(law.dims, excess_kurtosis))


def eigenvalue_response(
    law: GaussianChain, functions: Sequence[Callable[[FloatArray], ArrayLike]], eigenvalue: float
) -> Float[np.ndarray, " function"]:
    """Return Cov(ln λ, S_i) for the eigenvalue that lies at ``eigenvalue`` inside the support, to leading order.

    It moves by what the sums add to the number of eigenvalues above it: with p the ψ of the upper lip of the cut there,

        Cov = 2 Im J(p) / (r Im p),    J(p) = (1/2 π i) ∮ (f(ψ) - f(p)) d ψ / (ψ - p);

    at an edge it is the response of :class:`LinearStatistics`. Arguments, errors as :func:`linear_statistics`.

    Raises:
        ParameterError: also for an eigenvalue that is not inside the support.
    """
    chain, evaluate, unit = _dimensionless(law, functions)
    lower, upper = law.support
    if np.ndim(eigenvalue) != 0 or not lower < eigenvalue < upper:
        raise ParameterError("eigenvalue", eigenvalue, f"a number inside the support, from {lower:g} to {upper:g}")
    return eigenvalue_response_of_map(chain, evaluate, math.log(eigenvalue / unit))


def _dimensionless(
    law: GaussianChain, functions: Sequence[Callable[[FloatArray], ArrayLike]]
) -> tuple[ChainMap, Callable[[FloatArray], FloatArray], float]:
    """The map of the law, the functions as one of ln x, and the eigenvalue at x = 1."""
    if not isinstance(law, GaussianChain):
        raise ParameterError("law", law, "a GaussianChain")
    chain = chain_map(law.dims)
    unit = chain_scale(chain, variance_factor(law.dims, law.sigmas, law.normalization))
    if not functions:
        raise ParameterError("functions", functions, "at least one function")

    def evaluate(log_x: FloatArray) -> FloatArray:
        eigenvalues = unit * np.exp(log_x)
        values = [np.asarray(f(eigenvalues), dtype=np.float64) for f in functions]
        if any(one.shape != log_x.shape or not np.isfinite(one).all() for one in values):
            raise ParameterError("functions", functions, "functions that return one finite number per eigenvalue")
        return np.stack(values)

    return chain, evaluate, unit


def linear_statistics_of_map(
    chain: ChainMap, functions: Callable[[FloatArray], FloatArray], kurtosis: float = 0.0
) -> LinearStatistics:
    """The same for a map, whose dimensions need not be integers, and functions of ln x with values (i, len(ln x)).

    ``kurtosis`` is K.
    """
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
    third, zero = np.zeros((len(values),) * 3), np.zeros(len(values))
    for delta in _critical_points(chain):
        third += _cubed(cut.response(values, delta - 1.0, zero)) / (rank * chain.log_curvature(delta))
    at_upper, upper = _at_edge(cut, functions, values, chain.log_upper, chain.upper_delta)
    third += _cubed(upper) / (rank * chain.log_curvature(chain.upper_delta))
    at_lower, lower = zero, np.full(zero.shape, np.nan)
    if not chain.has_hard_edge:
        at_lower, lower = _at_edge(cut, functions, values, chain.log_lower, chain.lower_delta)
        third += _cubed(lower) / (rank * chain.log_curvature(chain.lower_delta))
    mean = cut.mean(values, at_upper, at_lower)
    if kurtosis:
        shift, scale = cut.fourth_cumulant(values)
        mean, covariance = mean + kurtosis * shift, covariance + kurtosis * np.outer(scale, scale)
    return LinearStatistics(mean, covariance, 4.0 * third, 2.0 * upper / rank, 2.0 * lower / rank)


def eigenvalue_response_of_map(
    chain: ChainMap, functions: Callable[[FloatArray], FloatArray], log_x: float
) -> Float[np.ndarray, " function"]:
    """:func:`eigenvalue_response` of the eigenvalue at ln x, for functions of ln x."""
    cut = _Cut.of(chain, _EIGENVALUE_NODES)
    here = np.array([log_x])
    p = chain.solve(here)[0] - 1.0
    kernel = cut.first / (cut.psi - p) - (cut.first / (cut.psi - p.conjugate())).conj()
    weight = cut.step * kernel / (2j * np.pi)
    return (functions(cut.log_x) - functions(here)) @ weight.imag * 2.0 / (chain.rank * p.imag)


def _at_edge(
    cut: _Cut, functions: Callable[[FloatArray], FloatArray], values: FloatArray, log_edge: float, delta: float
) -> tuple[FloatArray, FloatArray]:
    """The functions at an edge, ψ = δ - 1, and their f_a there."""
    there = functions(np.array([log_edge]))[:, 0]
    return there, cut.response(values, delta - 1.0, there)


def _critical_points(chain: ChainMap) -> list[float]:
    """1 + ψ at the zeros of λ'(ψ) that are no edge, one between every two poles beyond the edges."""
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
    """The upper lip of the cut at the midpoints of equal steps of the chain's angle χ, from the upper edge down."""

    chain: ChainMap
    step: float
    log_x: FloatArray
    log_slope: FloatArray  # d ln x / d χ
    psi: ComplexArray
    first: ComplexArray  # d ψ / d χ
    second: ComplexArray

    @classmethod
    @lru_cache(maxsize=16)  # of the functions in turn that one chain has
    def of(cls, chain: ChainMap, count: int) -> _Cut:
        # At a hard edge ψ + 1 falls as exp(-χ² / k), k the number of minimal n_l.
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
        """E[S], (i,). λ' has a zero on the contour at each soft edge: a quarter of f there."""
        density = -self.log_slope * self.psi.imag / np.pi
        turning = (2.0 * self.first / self.psi - self.second / self.first).imag / (2.0 * np.pi)
        return values @ (self.step * (self.chain.rank * density - turning)) + 0.25 * (at_upper + at_lower)

    def covariance(self, values: FloatArray) -> FloatArray:
        """Cov, (i, j): with the squares of the differences of f nothing is singular, and both contours are the cut.

        Even and odd nodes of the whole contour make two rules that never meet on the diagonal.
        """
        psi = np.concatenate([self.psi[::-1].conj(), self.psi])
        first = np.concatenate([-self.first[::-1].conj(), self.first])
        both = np.concatenate([values[:, ::-1], values], axis=1)
        kernel = first[::2, None] * first[None, 1::2] / (psi[::2, None] - psi[None, 1::2]) ** 2
        difference = both[:, ::2, None] - both[:, None, 1::2]
        rows = difference.reshape(len(values), -1)
        return (rows * kernel.real.ravel()) @ rows.T * (self.step / np.pi) ** 2

    def fourth_cumulant(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What K adds to E[S], and C, (i,) each: see ``_fourth_cumulant``."""
        scale = self.chain.rank * self.step / np.pi
        return self.chain.rank * scale * (values @ (self.psi * self.first).imag), scale * (values @ self.first.imag)

    def response(self, values: FloatArray, psi_edge: float, at_edge: FloatArray) -> FloatArray:
        """f_a = (1/2 π i) ∮ (f - f(a)) d ψ / (ψ - a)², (i,), a = ``psi_edge``."""
        weight = (self.first / (self.psi - psi_edge) ** 2).imag
        return (values - at_edge[:, None]) @ weight * (self.step / np.pi)
