"""Finite-size laws of the largest and the smallest eigenvalue of a Gaussian chain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws._chain_map import ChainMap, FloatArray
from rmtbase.laws._gaussian_chain import chain_map, chain_scale, edge_scale
from rmtbase.laws._parameters import checked_dims, checked_sigmas, variance_factor
from rmtbase.laws._tracy_widom import TracyWidom
from rmtbase.parameters import require_normalization

_TRACY_WIDOM = TracyWidom(1)


@dataclass(frozen=True)
class EdgeLaw:
    """Law of an extreme eigenvalue: location + scale TW_1 (upper side) or location - scale TW_1 (lower side).

    Asymptotic; see :func:`largest_eigenvalue` for the neglected terms.

    Attributes:
        location: the edge of the spectrum, in units of the eigenvalues.
        scale: the Tracy-Widom scale, in the same units.
        side: ``"upper"`` or ``"lower"``.
    """

    location: float
    scale: float
    side: str

    @property
    def support(self) -> tuple[float, float]:
        """The whole real line: the approximation gives mass to negative eigenvalues when scale is not small."""
        return -math.inf, math.inf

    def mean(self) -> float:
        """Mean of the extreme eigenvalue."""
        return self.location + self._sign * self.scale * _TRACY_WIDOM.mean()

    def std(self) -> float:
        """Standard deviation of the extreme eigenvalue."""
        return self.scale * _TRACY_WIDOM.std()

    def var(self) -> float:
        """Variance of the extreme eigenvalue."""
        return self.std() ** 2

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(eigenvalue <= x), same shape as ``x``."""
        s = self._standardized(x)
        return _TRACY_WIDOM.cdf(s) if self.side == "upper" else _TRACY_WIDOM.sf(s)

    def sf(self, x: ArrayLike) -> FloatArray:
        """P(eigenvalue > x)."""
        s = self._standardized(x)
        return _TRACY_WIDOM.sf(s) if self.side == "upper" else _TRACY_WIDOM.cdf(s)

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at ``x``, in 1/eigenvalue."""
        return _TRACY_WIDOM.pdf(self._standardized(x)) / self.scale

    def ppf(self, q: ArrayLike) -> FloatArray:
        """Quantile; nan for q outside [0, 1]."""
        if self.side == "upper":
            return self.location + self.scale * _TRACY_WIDOM.ppf(q)
        return self.location - self.scale * _TRACY_WIDOM.isf(q)

    def isf(self, q: ArrayLike) -> FloatArray:
        """Upper quantile, accurate for tiny q; nan for q outside [0, 1]."""
        if self.side == "upper":
            return self.location + self.scale * _TRACY_WIDOM.isf(q)
        return self.location - self.scale * _TRACY_WIDOM.ppf(q)

    @property
    def _sign(self) -> float:
        return 1.0 if self.side == "upper" else -1.0

    def _standardized(self, x: ArrayLike) -> FloatArray:
        return self._sign * (x - self.location) / self.scale  # type: ignore[operator]


def largest_eigenvalue(
    dims: Sequence[int],
    sigmas: Sequence[float] | None = None,
    normalization: str = "none",
    half_shift: bool = True,
) -> EdgeLaw:
    """Return the law of the largest eigenvalue of W^T W for the chain W = X_1 ... X_L.

    lambda_max = lambda_+ + delta_+ TW_1 with delta_+ = (lambda_+ sqrt(|F''(psi_+)|/2) / r)^(2/3). Asymptotic: the
    bare edge neglects terms of relative order r^(-1/3) of the standard deviation. ``half_shift`` replaces every
    n_l (and r) by n_l - 1/2 before taking edge and scale, the chain's analogue of Johnstone's
    (sqrt(n - 1/2) + sqrt(p - 1/2))^2 for one Wishart matrix (Johnstone 2001; Ma 2012); what is left of the mean's error
    is then of relative order r^(-2/3). Measured for W_QK against simulation: for d_head from 32 to 128 and
    d_head <= d_model/8 the mean is within 0.03 standard deviations (0.08 to 0.16 without the shift) and the standard
    deviation within 3 %; at d_head = 16 and near d_head = d_model the mean can be off by 0.12 and the standard
    deviation by 15 % (16, 16). The sigmas, and the d of ``sqrt_d``, are never shifted.

    Args:
        dims: (n_0, ..., n_L); (d_model, d_head, d_model) for W_QK.
        sigmas: the L standard deviations; None means 1 for each.
        normalization: ``"none"``, or ``"sqrt_d"`` to divide W by sqrt(n_0).
        half_shift: whether to shift the dimensions by one half.

    Raises:
        ParameterError: as :class:`rmtbase.laws.GaussianChain`.
    """
    chain, scale = _shifted_chain(dims, sigmas, normalization, half_shift)
    edge = scale * math.exp(chain.log_upper)
    return EdgeLaw(edge, edge_scale(chain, chain.upper_delta, edge), "upper")


def smallest_eigenvalue(
    dims: Sequence[int],
    sigmas: Sequence[float] | None = None,
    normalization: str = "none",
    half_shift: bool = True,
) -> EdgeLaw:
    """Return the law of the smallest of the r nonzero eigenvalues, lambda_- - delta_- TW_1, at a soft lower edge.

    As :func:`largest_eigenvalue`. Measured for W_QK: for d_head <= d_model/8 the mean is within 0.05 standard
    deviations at d_head >= 32 (0.09 to 0.14 without the shift) and 0.08 at 16, the standard deviation within 6 %. The
    nearer the second smallest n_l comes to r, the worse: 0.07 and 10 % at (128, 64), 0.21 and 25 % at (80, 64); at
    n_l - r of a few r^(1/2) or less the edge is hard in all but name, and the law puts mass on negative eigenvalues.

    Raises:
        ParameterError: as :class:`rmtbase.laws.GaussianChain`, and at a hard edge (two or more of the n_l equal r,
            as for d_head = d_model), where the fluctuations are not Tracy-Widom's.
    """
    chain, scale = _shifted_chain(dims, sigmas, normalization, half_shift)
    if chain.has_hard_edge:
        raise ParameterError(
            "dims",
            tuple(dims),
            "a single smallest dimension: with two or more (d_head = d_model) the lower edge is hard, "
            "and the smallest eigenvalue has no Tracy-Widom law",
        )
    edge = scale * math.exp(chain.log_lower)
    return EdgeLaw(edge, edge_scale(chain, chain.lower_delta, edge), "lower")


def _shifted_chain(
    dims: Sequence[int], sigmas: Sequence[float] | None, normalization: str, half_shift: bool
) -> tuple[ChainMap, float]:
    """The chain's map, shifted or not, and the unit C of its eigenvalues."""
    checked = checked_dims(dims)
    factor = variance_factor(checked, checked_sigmas(sigmas, len(checked) - 1), require_normalization(normalization))
    if not isinstance(half_shift, bool):
        raise ParameterError("half_shift", half_shift, "True or False")
    chain = chain_map(tuple(n - 0.5 if half_shift else float(n) for n in checked))
    return chain, chain_scale(chain, factor)
