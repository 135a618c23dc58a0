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
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import chain_map, edge_scale
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._edge._outlier_map import OutlierMap
from rmtbase.laws._edge._spiked_tracy_widom import spiked_tracy_widom_cdf, spiked_tracy_widom_score
from rmtbase.laws._edge._tracy_widom import TracyWidom
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes, variance_factor
from rmtbase.parameters import require_real_numbers

_STRONGEST = 1e150
_AT_EDGE = 1e-6  # relative distance from ψ_+ below which 0/0 is replaced by its limit
_NODES = 128  # of the curve along which quantiles are tabulated
_FARTHEST = 40.0  # in ln ψ


class Outlier(NamedTuple):
    """A spike, told by its eigenvalue λ = s²; limits.

    Attributes:
        strength: θ.
        std: standard deviation of the eigenvalue at that strength.
        shrunken: the x that minimises E‖x û v̂ᵀ - S‖_F², û and v̂ the outlier's singular vectors and S the spike's image
            in W: x = θ gain cos_u cos_v = s (1 - S)/(1 - S_in). For a spike on the product it is -2 D(s)/D'(s)
            (Nadakuditi 2014), for one on a factor s (1 - S) = -s d ln λ/d ln ψ.
        excess: (θ gain)² - λ, negative: Σ λ grows by (θ gain)² with the spike, in the mean, of which its own eigenvalue
            has λ, so that the other eigenvalues make up the difference.
    """

    strength: FloatArray
    std: FloatArray
    shrunken: FloatArray
    excess: FloatArray


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
        return self.outlier(eigenvalue).strength

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

    @property
    def gain(self) -> float:
        """The singular value, in W, of the image of a spike of strength 1: 1 for a spike on the product.

        A spike on X_l is X_1 ... X_(l-1) u (X_(l+1) ... X_L)ᵀ v in W, of strength θ Π σ_k √n over the other factors;
        limit.
        """
        return math.exp(self._map.log_gain)

    def outlier(self, eigenvalue: ArrayLike) -> Outlier:
        """What is known of the spike whose outlier is at ``eigenvalue``, each of its shape; see :class:`Outlier`.

        At and below the edge strength and std are nan, shrunken is 0, and excess that of a spike at the threshold.

        Raises:
            ParameterError: infinite eigenvalues, or what is no real numbers.
        """
        values = require_real_numbers("eigenvalue", eigenvalue)
        if np.isinf(values).any():
            raise ParameterError("eigenvalue", eigenvalue, "finite numbers, NaN where one is not known")
        at_edge = (self.threshold * self.gain) ** 2 - self.edge
        found = [np.where(np.isnan(values), np.nan, one) for one in (np.nan, np.nan, 0.0, at_edge)]
        out = values > self.edge
        psi, own = self._map.psi_of_eigenvalue(np.log(values[out])), values[out]
        strength = np.exp(self._map.log_strength(psi))
        of_outlier = (
            strength,
            self._map.relative_std(psi) * own,
            self._map.overlap(psi) * np.sqrt(own),
            (strength * self.gain) ** 2 - own,
        )
        for whole, part in zip(found, of_outlier, strict=True):
            whole[out] = part
        return Outlier(*(one[()] for one in found))

    def strength_limits(self, eigenvalue: ArrayLike, level: float = 0.05) -> tuple[FloatArray, FloatArray]:
        """Confidence limits (lower, upper) of the strength whose outlier is at ``eigenvalue``; each of its shape.

        Each limit is the strength at which an eigenvalue as far up (or down) has the probability level/2, by the law
        of :meth:`power`: 0 below where the eigenvalue is none that needs a spike. Above the threshold the law tends to
        the normal one of :meth:`eigenvalue_std`; at and below it that would cover too rarely.

        Raises:
            ParameterError: for a level outside (0, 1).
        """
        half = 0.5 * _require_probability("level", level)
        with np.errstate(divide="ignore"):
            log_values = np.log(np.maximum(require_real_numbers("eigenvalue", eigenvalue), 0.0))

        def limit(q: float) -> FloatArray:
            log_theta, log_quantile = self._quantiles(q)
            at = np.interp(log_values, log_quantile, log_theta)
            at = at + 0.5 * np.maximum(log_values - log_quantile[-1], 0.0)
            return np.where(log_values <= log_quantile[0], 0.0, np.exp(at))[()]

        return limit(1.0 - half), limit(half)

    def eigenvalue_quantile(self, q: float, strength: ArrayLike) -> FloatArray:
        """The q-quantile of the largest eigenvalue at ``strength``, same shape, by the law of :meth:`power`.

        Raises:
            ParameterError: for a negative or infinite strength, or q outside (0, 1).
        """
        theta = _require_strength(strength)
        log_theta, log_quantile = self._quantiles(_require_probability("q", q))
        with np.errstate(divide="ignore"):
            return np.exp(np.interp(np.log(theta), log_theta, log_quantile))[()]

    def power(self, strength: ArrayLike, level: float = 0.05) -> FloatArray:
        """Probability that the λ_max test of size ``level`` finds the spike, same shape as ``strength``.

        The test rejects above ``largest_eigenvalue(dims=dims, ...).isf(level)``. λ_max follows the spiked Tracy–Widom
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
        critical = float(TracyWidom(1).isf(size))

        def beyond(theta: float) -> float:
            return 1.0 - goal - float(self._largest_eigenvalue_cdf(np.array([theta]), critical)[0])

        low, high = 0.0, self.threshold
        while beyond(high) < 0.0:
            low, high = high, 2.0 * high
        return float(brentq(beyond, low, high, xtol=1e-10 * high))  # type: ignore[arg-type]

    @cached_property
    def _map(self) -> OutlierMap:
        return self._outlier_map(0.0)

    @cached_property
    def _shifted_map(self) -> OutlierMap:
        return self._outlier_map(0.5)

    def _quantiles(self, q: float) -> tuple[FloatArray, FloatArray]:
        """(ln θ, ln of the q-quantile of λ_max) along the curve that the outlier takes, both ascending."""
        spiked = self._shifted_map
        edge, scale, lattice = self._edge_units
        below = spiked.psi_edge * np.exp(np.linspace(0.0, math.log(spiked.psi_end / spiked.psi_edge), _NODES))[::-1]
        w = 2.0 * lattice * (below - spiked.psi_edge) / (below + spiked.psi_edge)
        near = edge + scale * (2.0 * spiked_tracy_widom_score(q, w) - 0.5 / lattice)
        above = spiked.psi_edge * np.exp(-np.geomspace(_AT_EDGE, _FARTHEST, 2 * _NODES))
        depth = lattice * np.log(spiked.psi_edge / above)
        outlier = np.exp(spiked.log_eigenvalue(above))
        score = spiked_tracy_widom_score(q, -depth) * np.sqrt(1.0 + 1.0 / depth) - 0.25 / (lattice * np.sqrt(depth))
        far = outlier * (1.0 + spiked.relative_std(above) * score)
        log_quantile = np.log(np.maximum(np.concatenate([near, far]), np.finfo(float).tiny))
        log_theta = spiked.log_strength(np.concatenate([below, above]))
        return log_theta, np.maximum.accumulate(log_quantile)

    @cached_property
    def _edge_units(self) -> tuple[float, float, float]:
        """Edge and scale of the null's λ_max, dimensions shifted, and l: λ - edge = F''/2 (ψ - ψ_+)² = scale w²."""
        chain = self._shifted_map.chain
        edge = math.exp(self._shifted_map.log_scale + chain.log_upper)
        scale = edge_scale(chain, chain.upper_delta, edge)
        curvature = chain.log_curvature(chain.upper_delta) * edge
        return edge, scale, self._shifted_map.psi_edge * math.sqrt(curvature / (2.0 * scale))

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
        with np.errstate(over="ignore"):  # of an eigenvalue beyond float64
            found = function(self._map.psi_of_strength(np.log(theta[above])))
        result = np.empty((*found.shape[:-1], *theta.shape))
        result[...] = np.where(np.isnan(theta), np.nan, otherwise)
        result[..., above] = found
        return result[()]

    def _largest_eigenvalue_cdf(self, theta: FloatArray, x: float) -> FloatArray:
        """P(λ_max ≤ edge + scale x) at strengths ``theta``, edge and scale the null's, shifted."""
        spiked = self._shifted_map
        psi_edge, (edge, scale, lattice) = spiked.psi_edge, self._edge_units
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
    theta = require_real_numbers("strength", strength)
    if (theta < 0.0).any() or (theta > _STRONGEST).any():
        raise ParameterError("strength", strength, f"numbers from 0 to {_STRONGEST:g}, whose squares are doubles")
    return theta


def _require_probability(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0.0 < float(value) < 1.0:
        raise ParameterError(name, value, "a number between 0 and 1, both excluded")
    return float(value)
