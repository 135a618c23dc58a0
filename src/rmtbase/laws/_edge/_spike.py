"""A planted rank-one spike: its threshold, its outlier, and the power of the test that looks for it.

A spike θ u vᵀ is added to the sub-product X_{a+1} ... X_b of the chain X_1 ... X_L: to the whole product
(a = 0, b = L), or to one factor (b = a + 1). u and v are unit vectors, fixed or independent of the chain. With
r = min n_l, c_l = r/n_l and ψ the moment generating function of the r nonzero eigenvalues (see ``_chain_map``), an
outlier at λ = F(ψ), 0 < ψ < ψ_+, belongs to the strength

    θ² = 1/D = K Π_{a<l<b} (1 + c_l ψ) / ψ,    K = Π_{a<l≤b} σ_l² Π_{a≤l≤b} n_l / r.

For the whole product it is the D-transform D = (1 + c_0 ψ)(1 + c_L ψ)/λ of Benaych-Georges & Nadakuditi
(2012), their φ being (1 + c ψ)/√λ with the zero eigenvalues of either side counted. A spike inside the
chain sees the resolvent R = (λ - W Wᵀ)^(-1) through the factors around it, W = A Y B: with <.> the normalized
trace, λ <Aᵀ R A> = <Aᵀ A> Π_{l≤a} (1 + c_l ψ) by free multiplicativity, alike for B, and D is λ times
the product of <Aᵀ R A> and its counterpart.

With p_l = c_l ψ / (1 + c_l ψ), S = Σ_l p_l and S_in its part a < l < b, the logarithmic slopes are
d ln λ / d ln ψ = S - 1 and d ln θ² / d ln ψ = S_in - 1; everything else follows from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.optimize.elementwise import find_root

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import ChainMap, chain_map, edge_scale
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._edge._spiked_tracy_widom import spiked_tracy_widom_cdf
from rmtbase.laws._edge._tracy_widom import TracyWidom
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes, variance_factor

_AT_EDGE = 1e-6  # relative distance from ψ_+ below which 0/0 is replaced by its limit
_LARGEST_PSI = 1e12


@dataclass(frozen=True, init=False)
class RankOneSpike(ChainParameters):
    """A rank-one spike θ u vᵀ in a Gaussian chain W = X_1 X_2 ... X_L, as learning would plant it.

    u and v are unit vectors, fixed or independent of the chain. By default the spike is added to the product,
    W + θ u vᵀ; with ``factor`` it is added to X_factor before the product is taken, as training adds it to W_Q
    (``factor=0`` of the chain (d_model, d_head, d_model)). In the limit n_l → infinity the largest eigenvalue of Wᵀ W
    stays at the bulk's edge for θ ≤ threshold and leaves it beyond (Benaych-Georges & Nadakuditi 2012).

    With ψ the moment generating function (see :class:`GaussianChain`), σ = 1 and no normalization, for W_QK:

        spike on W_QK:  ψ = d² / (θ² - d²),   √λ_out = θ (1 + γ ψ),
        spike on W_Q:   ψ = d / θ²,

    and λ_out = F(ψ) in both. At (768, 64) the thresholds are 925.45 on W_QK (33.39 for ``sqrt_d``) and 18.63 on
    W_Q; in the spectrum of W_Q alone the latter shows from (d d_head)^(1/4) = 14.89 on. L = 1, dims (n, m):
    θ_c = σ (n m)^(1/4) and λ_out = (θ² + σ² n)(θ² + σ² m)/θ².

    Accuracy: threshold, eigenvalue and overlaps are limits, exact to rounding; at finite size they are off by O(1/r),
    measured below 0.06 of :meth:`eigenvalue_std` at θ ≥ 1.3 threshold for d_head = 32 and 64.

    Attributes:
        dims, sigmas, normalization: as :class:`GaussianChain`. A strength on the product is in units of the
            normalized product; a strength on a factor is in units of that factor, which is not divided.
        factor: None for a spike on the product; 0, ..., L - 1 for one on that factor, numbered as ``sigmas``.

    Raises:
        ParameterError: as :class:`GaussianChain`, and for a factor that the chain does not have.
    """

    factor: int | None

    @takes(ChainKeywords)
    def __init__(self, *shape: Any, factor: int | None = None, **chain: Unpack[ChainKeywords]) -> None:
        super().__init__(*shape, **chain)
        count = len(self.dims) - 1
        named = isinstance(factor, int | np.integer) and not isinstance(factor, bool)
        if factor is not None and not (named and 0 <= factor < count):
            raise ParameterError("factor", factor, f"None (the product), or a factor from 0 to {count - 1}")
        object.__setattr__(self, "factor", factor)

    @property
    def threshold(self) -> float:
        """The strength θ_c = 1/√(D(λ_+)) beyond which an eigenvalue leaves the bulk."""
        return float(np.exp(self._map.log_strength(np.asarray(self._map.psi_edge))))

    @property
    def edge(self) -> float:
        """The upper edge λ_+ of the bulk."""
        return float(np.exp(self._map.log_scale + self._map.chain.log_upper))

    def eigenvalue(self, strength: ArrayLike) -> FloatArray:
        """Limit of the largest eigenvalue at ``strength``, same shape: the outlier, or the edge below the threshold."""
        return self._of_outlier(strength, self.edge, lambda psi: np.exp(self._map.log_eigenvalue(psi)))

    def strength(self, eigenvalue: ArrayLike) -> FloatArray:
        """The strength whose outlier is at ``eigenvalue``, same shape: the inverse of :meth:`eigenvalue`.

        nan at or below the edge, where the eigenvalue says no more than strength ≤ threshold.
        """
        values = np.asarray(eigenvalue, dtype=np.float64)
        out = values > self.edge
        theta = np.full(values.shape, np.nan)
        theta[out] = np.exp(self._map.log_strength(self._map.psi_of_eigenvalue(np.log(values[out]))))
        return theta[()]

    def overlaps(self, strength: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Squared cosines (left, right) of the outlier's singular vectors with the spike's directions in W; limits.

        The directions are u and v, carried outward by the chain: for a spike on X_l, X_1 ... X_{l-1} u and
        (X_{l+1} ... X_L)ᵀ v, normalized. 0 at and below the threshold.
        """
        left, right = self._of_outlier(strength, 0.0, lambda psi: np.stack(self._map.overlaps(psi)))
        return left, right

    def eigenvalue_std(self, strength: ArrayLike) -> FloatArray:
        """Standard deviation of the outlier eigenvalue, of order r^(-1/2) relative; nan at or below the threshold.

        The outlier is asymptotically normal about :meth:`eigenvalue`, for u and v with no preferred direction relative
        to the bulk (true of every Gaussian chain). Neglected: relative order r^(-1), and r^(-1/3) within r^(-1/3) of
        the threshold. Measured at d_head = 32 and 64, θ from 1.3 to 6 thresholds: within 4 %, Monte
        Carlo errors of 1.6 % included.
        """
        return self._of_outlier(
            strength, math.nan, lambda psi: self._map.relative_std(psi) * np.exp(self._map.log_eigenvalue(psi))
        )

    def power(self, strength: ArrayLike, level: float = 0.05) -> FloatArray:
        """Probability that the λ_max test of size ``level`` finds the spike, same shape as ``strength``.

        The test rejects above ``largest_eigenvalue(dims, ...).isf(level)``. λ_max follows the spiked Tracy–Widom
        law F(x; w) of Bloemendal & Virág (2013), w = l ln(ψ/ψ_+) with l = ψ_+ √(F''(ψ_+) / (2 δ_+)).
        Above the threshold its centre w² and spread 2 √|w| are matched to :meth:`eigenvalue` and
        :meth:`eigenvalue_std`, so that it tends to that normal law. Dimensions are shifted by 1/2 (Johnstone 2001), and
        x by 1/(2 l), half a step of the lattice whose continuum limit the edge is.

        Asymptotic, relative order r^(-1/3). That a chain has the law proved for one spiked Wishart matrix is
        universality, assumed; w and l then follow. The corrections (coordinate, matching, both shifts) are heuristic,
        and this form was chosen among several by simulation of W_QK at (128, 16), (256, 32), (512, 64) and (128,
        128), level 0.05. At sizes that had no part in the choice, (320, 40), (240, 20) and (160, 80), spike on the
        product or on W_Q, 0.7 to 1.4 thresholds, it is within 0.035 of simulation at levels 0.05 and 0.01 (Monte
        Carlo error up to 0.016), worst near the threshold: there, at level 0.01, it says 0.085 where 0.055 is true.
        For a spike on a product of three or four factors, two chains tried: within 0.05, with a step of that size at
        the threshold. At strength 0 it is ``level`` to 4 % for r ≥ 16 and level ≥ 0.001.

        Raises:
            ParameterError: for a negative or infinite strength, or a level outside (0, 1).
        """
        theta = _require_strength(strength)
        x = float(TracyWidom(1).isf(_require_probability("level", level)))
        power = np.full(theta.shape, np.nan)
        known = ~np.isnan(theta)
        power[known] = 1.0 - self._largest_eigenvalue_cdf(theta[known], x)
        return power[()]

    def detectable_strength(self, power: float = 0.5, level: float = 0.05) -> float:
        """The strength that the λ_max test of size ``level`` finds with probability ``power``.

        The inverse of :meth:`power`, with its accuracy.

        Raises:
            ParameterError: for a level outside (0, 1), or a power not between level and 1.
        """
        size = _require_probability("level", level)
        goal = _require_probability("power", power)
        if goal <= size:
            raise ParameterError("power", power, f"more than level = {level}: no spike is needed for that")
        low, high = 0.0, self.threshold
        while self.power(high, size) < goal:
            low, high = high, 2.0 * high
        return float(brentq(lambda theta: float(self.power(theta, size)) - goal, low, high, xtol=1e-10 * high))  # type: ignore[arg-type]

    @cached_property
    def _map(self) -> OutlierMap:
        return self._outlier_map(0.0)

    @cached_property
    def _shifted_map(self) -> OutlierMap:
        return self._outlier_map(0.5)

    def _outlier_map(self, shift: float) -> OutlierMap:
        chain = chain_map([n - shift for n in self.dims])
        first, last = (0, len(self.dims) - 1) if self.factor is None else (self.factor, self.factor + 1)
        whole = self._variance_factor
        spanned = whole if self.factor is None else variance_factor(self.dims, self.sigmas[first:last], "none")
        dims, log_rank = [math.log(n) for n in chain.dims], math.log(chain.rank)

        def unit(variance: object, spanned_dims: list[float]) -> float:
            return math.log(variance) + math.fsum(spanned_dims) - log_rank  # type: ignore[arg-type]

        return OutlierMap(chain, unit(whole, dims), unit(spanned, dims[first : last + 1]), first, last)

    def _of_outlier(
        self, strength: ArrayLike, otherwise: float, function: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """``function`` of the ψ of the outlier where there is one, shape (..., *strength); nan in → nan out."""
        theta = _require_strength(strength)
        above = theta > self.threshold
        found = function(self._map.psi_of_strength(np.log(theta[above])))
        result = np.empty((*found.shape[:-1], *theta.shape))
        result[...] = np.where(np.isnan(theta), np.nan, otherwise)
        result[..., above] = found
        return result[()]

    def _largest_eigenvalue_cdf(self, theta: FloatArray, x: float) -> FloatArray:
        """P(λ_max ≤ edge + scale x) at strengths ``theta``, edge and scale the null's, shifted."""
        spiked = self._shifted_map
        chain, psi_edge = spiked.chain, spiked.psi_edge
        edge = math.exp(spiked.log_scale + chain.log_upper)
        scale = edge_scale(chain, chain.upper_delta, edge)
        # λ - edge = F''/2 (ψ - ψ_+)² = scale w².
        lattice = psi_edge * math.sqrt(chain.log_curvature(chain.upper_delta) * edge / (2.0 * scale))
        with np.errstate(divide="ignore"):
            log_theta = np.log(theta)
        above = log_theta > spiked.log_strength(np.asarray(psi_edge))
        w, centred = np.empty(theta.shape), np.full(theta.shape, x)

        beyond = spiked.psi_of_strength(log_theta[above])
        w[above] = lattice * np.log(beyond / psi_edge)
        away = beyond < (1.0 - _AT_EDGE) * psi_edge
        depth = -w[above][away]
        outlier = np.exp(spiked.log_eigenvalue(beyond[away]))
        spread = spiked.relative_std(beyond[away]) * outlier
        matched = centred[above]
        matched[away] = depth**2 + 2.0 * np.sqrt(depth) * (edge + scale * x - outlier) / spread
        centred[above] = matched

        # Below the threshold the logarithm becomes 2 tanh(half of it), whose limit, w = 2 l, puts the absorbing end
        # of the lattice half a step away: the null at strength 0.
        ratio = psi_edge / spiked.psi_below_threshold(log_theta[~above])
        w[~above] = 2.0 * lattice * (1.0 - ratio) / (1.0 + ratio)
        return spiked_tracy_widom_cdf(centred + 0.5 / lattice, w)


def _require_strength(strength: ArrayLike) -> FloatArray:
    theta = np.asarray(strength, dtype=np.float64)
    if (theta < 0.0).any() or np.isinf(theta).any():
        raise ParameterError("strength", strength, "finite numbers, none of them negative")
    return theta


def _require_probability(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0.0 < float(value) < 1.0:
        raise ParameterError(name, value, "a number between 0 and 1, both excluded")
    return float(value)


@dataclass(frozen=True)
class OutlierMap:
    """The maps ψ → λ, θ and the outlier's statistics for one chain and one place of the spike.

    Attributes:
        chain: the chain's map.
        log_scale: ln C, the unit of the eigenvalues.
        log_unit: ln K, the unit of θ².
        first: a, the index of the spike's left dimension.
        last: b, the index of its right dimension.
    """

    chain: ChainMap
    log_scale: float
    log_unit: float
    first: int
    last: int

    @property
    def ratios(self) -> FloatArray:
        """The c_l = r/n_l of the whole chain."""
        return self.chain.rank / np.asarray(self.chain.dims)

    @property
    def inner(self) -> FloatArray:
        """The c_l strictly inside the spike's span."""
        return self.ratios[self.first + 1 : self.last]

    @property
    def psi_edge(self) -> float:
        """ψ_+, where the outlier leaves the bulk."""
        return self.chain.upper_delta - 1.0

    def log_eigenvalue(self, psi: FloatArray) -> FloatArray:
        """ln λ."""
        return self.log_scale + _log_product(self.ratios, psi) - np.log(psi)

    def log_strength(self, psi: FloatArray) -> FloatArray:
        """ln θ."""
        return 0.5 * (self.log_unit + _log_product(self.inner, psi) - np.log(psi))

    def psi_of_eigenvalue(self, log_eigenvalue: FloatArray) -> FloatArray:
        """ψ in (0, ψ_+] at ln λ above the edge."""
        return self._solve(self.ratios, log_eigenvalue - self.log_scale, 0.0, self.psi_edge)

    def psi_of_strength(self, log_strength: FloatArray) -> FloatArray:
        """ψ in (0, ψ_+] at ln θ above the threshold."""
        return self._solve(self.inner, 2.0 * log_strength - self.log_unit, 0.0, self.psi_edge)

    def psi_below_threshold(self, log_strength: FloatArray) -> FloatArray:
        """ψ > ψ_+ at ln θ below the threshold: the continuation of the outlier; inf where it ends."""
        end = _LARGEST_PSI
        if self.inner.size > 1:  # θ has a minimum, S_in = 1
            low, high = math.log(self.psi_edge), math.log(_LARGEST_PSI)
            end = math.exp(find_root(lambda t: _slope(self.inner, np.exp(t)) - 1.0, (low, high)).x)
        target = 2.0 * log_strength - self.log_unit
        reached = target > _log_product(self.inner, np.asarray(end)) - math.log(end)
        psi = np.full(target.shape, np.inf)
        psi[reached] = self._solve(self.inner, target[reached], self.psi_edge, end)
        return psi

    def overlap(self, psi: FloatArray) -> FloatArray:
        """(1 - S)/(1 - S_in), the overlap up to the factors of each side."""
        return (1.0 - _slope(self.ratios, psi)) / (1.0 - _slope(self.inner, psi))

    def overlaps(self, psi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Squared overlaps of the outlier's left and right singular vectors with the spike's images."""
        both = self.overlap(psi)
        left = np.exp(_log_product(self.ratios[: self.first + 1], psi))
        right = np.exp(_log_product(self.ratios[self.last :], psi))
        return both * left, both * right

    def relative_std(self, psi: FloatArray) -> FloatArray:
        """Standard deviation of ln λ_out, leading order.

        Var = (2/r) Q [(S - S_in)/ψ - (c_a + c_b) Q], Q = (1 - S)/(1 - S_in): the fluctuations of uᵀ Aᵀ R A u,
        vᵀ B R Bᵀ v and the cross term, which are independent, with u and v uniform on their spheres.
        """
        both = self.overlap(psi)
        free = (_slope(self.ratios, psi) - _slope(self.inner, psi)) / psi
        ends = self.ratios[self.first] + self.ratios[self.last]
        return np.sqrt(np.maximum(2.0 / self.chain.rank * both * (free - ends * both), 0.0))

    def _solve(self, ratios: FloatArray, target: FloatArray, low: float, high: float) -> FloatArray:
        """The ψ in [low, high] with sum ln(1 + c ψ) - ln ψ = target, which falls with ψ there."""
        least = np.maximum(-target, math.log(low) if low else -np.inf)
        most = np.maximum(least, math.log(high))
        if not ratios.size:
            return np.exp(least)
        root = find_root(
            lambda t, goal: _log_product(ratios, np.exp(t)) - t - goal,
            (least, most),
            args=(target,),
            tolerances={"xatol": 1e-16, "xrtol": 4e-16},
        )
        # At either end rounding may leave no change of sign: the nearer end is the root.
        at_end = np.where(_log_product(ratios, np.exp(most)) - most >= target, most, least)
        return np.exp(np.where(root.success, root.x, at_end))


def _log_product(ratios: FloatArray, psi: FloatArray) -> FloatArray:
    """Sum of ln(1 + c ψ)."""
    return np.log1p(np.multiply.outer(psi, ratios)).sum(axis=-1)


def _slope(ratios: FloatArray, psi: FloatArray) -> FloatArray:
    """Sum of c ψ/(1 + c ψ)."""
    terms = np.multiply.outer(psi, ratios)
    return (terms / (1.0 + terms)).sum(axis=-1)
