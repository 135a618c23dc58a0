"""Planted rank-one spike: its threshold, its outlier, and the power of the test for it (docs/mathematics/spikes.md).

θ u vᵀ is added to X_{a+1} ... X_b. With p_l = c_l ψ / (1 + c_l ψ), S = Σ_l p_l and S_in the sum over a < l < b,
d ln λ / d ln ψ = S - 1 and d ln θ² / d ln ψ = S_in - 1.
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
from scipy.optimize.elementwise import find_root

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import ChainMap, chain_map, edge_scale
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._edge._spiked_tracy_widom import spiked_tracy_widom_cdf, spiked_tracy_widom_score
from rmtbase.laws._edge._tracy_widom import TracyWidom
from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes, variance_factor
from rmtbase.parameters import require_integer, require_probability, require_real_numbers

_LARGEST_PSI = 1e12
_NEWTON_STEPS = 64  # each step only halves the distance to a root at the edge, where the slope is zero
_ROUNDING = 4e-16


class OutlierMap:
    """Maps from ψ to λ, θ and the outlier, for one chain and a spike on its dimensions ``first`` to ``last``."""

    def __init__(self, chain: ChainMap, log_scale: float, log_unit: float, first: int, last: int) -> None:
        self.chain, self.log_scale, self.log_unit, self.first, self.last = chain, log_scale, log_unit, first, last
        self.ratios = chain.rank / np.asarray(chain.dims)  # c_l of the whole chain
        self.inner = self.ratios[first + 1 : last]  # strictly inside the sub-product that holds the spike
        self.psi_edge = chain.upper_delta - 1.0  # ψ_+, where the outlier separates from the bulk

    @cached_property
    def psi_end(self) -> float:
        """End of the continuation of the outlier below the threshold: the ψ of minimal θ, where S_in = 1."""
        if self.inner.size < 2:
            return _LARGEST_PSI
        low, high = math.log(self.psi_edge), math.log(_LARGEST_PSI)
        return math.exp(find_root(lambda t: _slope(self.inner, np.exp(t)) - 1.0, (low, high)).x)

    def log_eigenvalue(self, psi: FloatArray) -> FloatArray:
        return self.log_scale + _log_product(self.ratios, psi) - np.log(psi)

    def log_strength(self, psi: FloatArray) -> FloatArray:
        return 0.5 * (self.log_unit + _log_product(self.inner, psi) - np.log(psi))

    def psi_of_strength(self, log_strength: FloatArray) -> FloatArray:
        return self.solve(self.inner, 2.0 * log_strength - self.log_unit, 0.0, self.psi_edge)

    def psi_below_threshold(self, log_strength: FloatArray) -> FloatArray:
        """ψ > ψ_+ at ln θ below the threshold: the continuation of the outlier; inf where it ends."""
        end = self.psi_end
        target = 2.0 * log_strength - self.log_unit
        reached = target > _log_product(self.inner, np.asarray(end)) - math.log(end)
        psi = np.full(target.shape, np.inf)
        psi[reached] = self.solve(self.inner, target[reached], self.psi_edge, end)
        return psi

    def overlap(self, psi: FloatArray) -> FloatArray:
        return (1.0 - _slope(self.ratios, psi)) / (1.0 - _slope(self.inner, psi))

    def overlaps(self, psi: FloatArray) -> tuple[FloatArray, FloatArray]:
        both = self.overlap(psi)
        left = np.exp(_log_product(self.ratios[: self.first + 1], psi))
        right = np.exp(_log_product(self.ratios[self.last :], psi))
        return both * left, both * right

    def relative_std(self, psi: FloatArray) -> FloatArray:
        """Return the std of ln λ_out to leading order: Var = (2/r) Q [(S - S_in)/ψ - (c_a + c_b) Q], Q the overlap."""
        both = self.overlap(psi)
        free = (_slope(self.ratios, psi) - _slope(self.inner, psi)) / psi
        ends = self.ratios[self.first] + self.ratios[self.last]
        return np.sqrt(np.maximum(2.0 / self.chain.rank * both * (free - ends * both), 0.0))

    def solve(self, ratios: FloatArray, target: FloatArray, low: float, high: float) -> FloatArray:
        """Find ψ in [low, high] with Σ ln(1 + c ψ) - ln ψ = target, convex in ln ψ: Newton steps do not pass it."""
        least = np.maximum(-target, math.log(low) if low else -np.inf)
        if not ratios.size:
            return np.exp(least)
        most = np.maximum(least, math.log(high))
        t = least
        for _ in range(_NEWTON_STEPS):
            psi = np.exp(t)
            left = _log_product(ratios, psi) - t - target
            with np.errstate(invalid="ignore", divide="ignore"):
                step = left / (1.0 - _slope(ratios, psi))
            # At the edge the slope is zero up to rounding, and the end is the root.
            t, before = np.where(left > 0.0, np.where(step > 0.0, np.minimum(t + step, most), most), t), t
            if (t - before <= _ROUNDING * np.maximum(np.abs(t), 1.0)).all():
                break
        return np.exp(t)


def _log_product(ratios: FloatArray, psi: FloatArray) -> FloatArray:
    return np.log1p(np.multiply.outer(psi, ratios)).sum(axis=-1)


def _slope(ratios: FloatArray, psi: FloatArray) -> FloatArray:
    terms = np.multiply.outer(psi, ratios)
    return (terms / (1.0 + terms)).sum(axis=-1)


_STRONGEST = 1e150
_AT_EDGE = 1e-6  # relative distance from ψ_+ below which 0/0 is replaced by its limit
_NODES = 128  # of the curve along which quantiles are tabulated
_FARTHEST = 40.0  # in ln ψ


class Outlier(NamedTuple):
    """Spike inferred from its outlier eigenvalue λ = s², in the limit of large matrices.

    Attributes:
        strength: θ.
        std: standard deviation of the eigenvalue at that strength.
        shrunken: the x that minimises E‖x û v̂ᵀ - S‖_F², û and v̂ the singular vectors of the outlier, S the image of
        the
            spike in W: x = θ gain cos_u cos_v = s (1 - S)/(1 - S_in), on the product -2 D(s)/D'(s) (Nadakuditi 2014).
        excess: (θ gain)² - λ, negative: the spike raises the mean of Σ λ by (θ gain)², its own eigenvalue is λ.
    """

    strength: FloatArray
    std: FloatArray
    shrunken: FloatArray
    excess: FloatArray


@dataclass(frozen=True, init=False)
class RankOneSpike(ChainParameters):
    """Rank-one spike θ u vᵀ in a Gaussian chain W = X_1 X_2 ... X_L, a model of what learning adds.

    u and v are unit vectors, fixed or independent of the chain. By default the spike is added to the product; with
    ``factor`` to X_factor before the product is taken, as training adds it to W_Q (``factor=0`` of the chain (d_model,
    d_head, d_model)). In the limit n_l → infinity the largest eigenvalue of Wᵀ W stays at the edge of the bulk for
    θ ≤ threshold and lies outside it for larger θ (Benaych-Georges & Nadakuditi 2012). With ψ the moment generating
    function (see :class:`GaussianChain`), σ = 1 and no normalization, for W_QK and λ_out = F(ψ),

        spike on W_QK:  ψ = d² / (θ² - d²), √λ_out = θ (1 + γ ψ);    spike on W_Q:  ψ = d / θ².

    At (768, 64) the thresholds are 925.45 on W_QK (33.39 for ``sqrt_d``) and 18.63 on W_Q; W_Q itself shows a spike
    from (d d_head)^(1/4) = 14.89 on. For L = 1 and dims (n, m), θ_c = σ (n m)^(1/4). Threshold, eigenvalue and overlaps
    are limits, off at finite size by O(1/r): less than 0.06 of :meth:`eigenvalue_std` at θ ≥ 1.3 threshold.

    Attributes:
        dims, sigmas, normalization: as for :class:`GaussianChain`, and so the errors. A strength on the product is in
            units of the normalized product; on a factor in units of that factor, which is not normalized.
        factor: None for a spike on the product; 0, ..., L - 1 for a spike on that factor, numbered like ``sigmas``.
    """

    factor: int | None

    @takes(ChainKeywords)
    def __init__(self, *shape: Any, factor: int | None = None, **chain: Unpack[ChainKeywords]) -> None:
        super().__init__(*shape, **chain)
        count = len(self.dims) - 1
        if factor is not None:
            factor = require_integer("factor", factor, 0, count - 1, "None (the product), or a factor")
        object.__setattr__(self, "factor", factor)

    @property
    def threshold(self) -> float:
        """Strength θ_c = 1/√(D(λ_+)) above which an eigenvalue lies outside the bulk."""
        return float(np.exp(self._map.log_strength(np.asarray(self._map.psi_edge))))

    @property
    def edge(self) -> float:
        """Upper edge λ_+ of the bulk."""
        return float(np.exp(self._map.log_scale + self._map.chain.log_upper))

    def eigenvalue(self, strength: ArrayLike) -> FloatArray:
        """Limit of the largest eigenvalue at ``strength``, same shape: the outlier; below the threshold, the edge."""
        return self._of_outlier(strength, self.edge, lambda psi: np.exp(self._map.log_eigenvalue(psi)))

    def strength(self, eigenvalue: ArrayLike) -> FloatArray:
        """Return the strength whose outlier is at ``eigenvalue``, same shape; nan at or below the edge."""
        return self.outlier(eigenvalue).strength

    def overlaps(self, strength: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Limits of the squared cosines (left, right) between singular vectors of the outlier and the spike in W.

        For a spike on X_l its directions in W are X_1 ... X_{l-1} u and (X_{l+1} ... X_L)ᵀ v, normalized. Each result
        has the shape of ``strength``; 0 up to the threshold.
        """
        left, right = self._of_outlier(strength, 0.0, lambda psi: np.stack(self._map.overlaps(psi)))
        return left, right

    def eigenvalue_std(self, strength: ArrayLike) -> FloatArray:
        """Return the standard deviation of the outlier eigenvalue, same shape; nan at or below the threshold.

        It is of relative order r^(-1/2), neglecting r^(-1), or r^(-1/3) within r^(-1/3) of the threshold: within 4 % at
        d_head = 32 and 64 for θ from 1.3 to 6 thresholds. The outlier is asymptotically normal about
        :meth:`eigenvalue`.
        """
        return self._of_outlier(
            strength, math.nan, lambda psi: self._map.relative_std(psi) * np.exp(self._map.log_eigenvalue(psi))
        )

    @property
    def gain(self) -> float:
        """Singular value of the image in W of a spike of strength 1, in the limit; 1 for a spike on the product."""
        return math.exp(0.5 * (self._map.log_scale - self._map.log_unit))

    def outlier(self, eigenvalue: ArrayLike) -> Outlier:
        """Estimate the spike whose outlier is at ``eigenvalue``; the fields of :class:`Outlier` have its shape.

        At and below the edge, strength and std are nan, shrunken is 0, and excess is that of a spike at the threshold.
        An infinite eigenvalue raises a ParameterError.
        """
        values = require_real_numbers("eigenvalue", eigenvalue)
        if np.isinf(values).any():
            raise ParameterError("eigenvalue", eigenvalue, "finite numbers, NaN where not known")
        at_edge = (self.threshold * self.gain) ** 2 - self.edge
        fields = [np.where(np.isnan(values), np.nan, value) for value in (np.nan, np.nan, 0.0, at_edge)]
        out = values > self.edge
        eigenvalues, at = values[out], self._map
        psi = at.solve(at.ratios, np.log(eigenvalues) - at.log_scale, 0.0, at.psi_edge)
        strength = np.exp(self._map.log_strength(psi))
        of_outlier = (
            strength,
            self._map.relative_std(psi) * eigenvalues,
            self._map.overlap(psi) * np.sqrt(eigenvalues),
            (strength * self.gain) ** 2 - eigenvalues,
        )
        for field, part in zip(fields, of_outlier, strict=True):
            field[out] = part
        return Outlier(*(value[()] for value in fields))

    def strength_limits(self, eigenvalue: ArrayLike, level: float = 0.05) -> tuple[FloatArray, FloatArray]:
        """Confidence limits (lower, upper), each of the shape of ``eigenvalue``, for the strength of its spike.

        The confidence is 1 - level. At the lower (upper) limit an eigenvalue at least as large (small) has the
        probability level/2, by the law of :meth:`power`. A limit is 0 where the eigenvalue does not require a spike. A
        level outside (0, 1) raises a ParameterError.
        """
        half = 0.5 * require_probability("level", level)
        with np.errstate(divide="ignore"):
            log_values = np.log(np.maximum(require_real_numbers("eigenvalue", eigenvalue), 0.0))

        def limit(q: float) -> FloatArray:
            log_theta, log_quantile = self._quantiles(q)
            at = np.interp(log_values, log_quantile, log_theta)
            at = at + 0.5 * np.maximum(log_values - log_quantile[-1], 0.0)
            return np.where(log_values <= log_quantile[0], 0.0, np.exp(at))[()]

        return limit(1.0 - half), limit(half)

    def eigenvalue_quantile(self, q: float, strength: ArrayLike) -> FloatArray:
        """Return the q-quantile of the largest eigenvalue at ``strength``, same shape, by the law of :meth:`power`.

        A negative or infinite strength, or q outside (0, 1), raises a ParameterError.
        """
        theta = _require_strength(strength)
        log_theta, log_quantile = self._quantiles(require_probability("q", q))
        with np.errstate(divide="ignore"):
            return np.exp(np.interp(np.log(theta), log_theta, log_quantile))[()]

    def power(self, strength: ArrayLike, level: float = 0.05) -> FloatArray:
        """Probability that the λ_max test of size ``level`` detects the spike, same shape as ``strength``.

        The test rejects above ``largest_eigenvalue(dims=dims, ...).isf(level)``. λ_max follows the spiked Tracy–Widom
        law F(x; w) of Bloemendal & Virág (2013) with w = l ln(ψ/ψ_+) and l = ψ_+ √(F''(ψ_+) / (2 δ_+)); above the
        threshold centre w² and spread 2 √|w| are matched to :meth:`eigenvalue` and :meth:`eigenvalue_std`. Dimensions
        are shifted by 1/2 (Johnstone 2001), and x by 1/(2 l), half a step of the lattice whose limit is the edge.
        Asymptotic, to relative order r^(-1/3): within 0.035 of simulated W_QK of other sizes at levels 0.05 and 0.01,
        0.05 for three or four factors; at strength 0 it is ``level`` to 4 % for r ≥ 16 and level ≥ 0.001.

        A negative or infinite strength, or a level outside (0, 1), raises a ParameterError.
        """
        theta = _require_strength(strength)
        x = float(TracyWidom(1).isf(require_probability("level", level)))
        power = np.full(theta.shape, np.nan)
        defined = ~np.isnan(theta)
        power[defined] = 1.0 - self._largest_eigenvalue_cdf(theta[defined], x)
        return power[()]

    def detectable_strength(self, power: float = 0.5, level: float = 0.05) -> float:
        """Return the strength that the λ_max test of size ``level`` detects with probability ``power``.

        This is the inverse of :meth:`power`. A level outside (0, 1), or a power not between level and 1, raises a
        ParameterError.
        """
        size = require_probability("level", level)
        goal = require_probability("power", power)
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
        """Edge and scale of the null's λ_max, and l, at shifted dimensions: λ - edge = F''/2 (ψ - ψ_+)² = scale w²."""
        chain = self._shifted_map.chain
        edge = math.exp(self._shifted_map.log_scale + chain.log_upper)
        scale = edge_scale(chain, chain.upper_delta, edge)
        curvature = chain.log_curvature(chain.upper_delta) * edge
        return edge, scale, self._shifted_map.psi_edge * math.sqrt(curvature / (2.0 * scale))

    def _outlier_map(self, shift: float) -> OutlierMap:
        chain = chain_map([n - shift for n in self.dims])
        first, last = (0, len(self.dims) - 1) if self.factor is None else (self.factor, self.factor + 1)
        total = self._variance_factor
        spanned = total if self.factor is None else variance_factor(self.dims, self.sigmas[first:last], "none")
        dims, log_rank = [math.log(n) for n in chain.dims], math.log(chain.rank)
        log_scale = math.log(total) + math.fsum(dims) - log_rank
        log_unit = math.log(spanned) + math.fsum(dims[first : last + 1]) - log_rank
        return OutlierMap(chain, log_scale, log_unit, first, last)

    def _of_outlier(
        self, strength: ArrayLike, otherwise: float, function: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """Evaluate ``function`` at the ψ of the outliers, shape (..., *strength); ``otherwise`` holds where none is."""
        theta = _require_strength(strength)
        above = theta > self.threshold
        with np.errstate(over="ignore"):  # an eigenvalue may exceed float64
            values = function(self._map.psi_of_strength(np.log(theta[above])))
        result = np.empty((*values.shape[:-1], *theta.shape))
        result[...] = np.where(np.isnan(theta), np.nan, otherwise)
        result[..., above] = values
        return result[()]

    def _largest_eigenvalue_cdf(self, theta: FloatArray, x: float) -> FloatArray:
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

        # Below the threshold the logarithm is replaced by 2 tanh(half of it). Its limit, w = 2 l at strength 0, puts
        # the absorbing end of the lattice half a step away and gives the null.
        ratio = psi_edge / spiked.psi_below_threshold(log_theta[~above])
        w[~above] = 2.0 * lattice * (1.0 - ratio) / (1.0 + ratio)
        return spiked_tracy_widom_cdf(centred + 0.5 / lattice, w)


def _require_strength(strength: ArrayLike) -> FloatArray:
    theta = require_real_numbers("strength", strength)
    if (theta < 0.0).any() or (theta > _STRONGEST).any():
        raise ParameterError("strength", strength, f"numbers from 0 to {_STRONGEST:g}, whose squares are doubles")
    return theta
