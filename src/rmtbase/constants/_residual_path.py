"""Edges of residual-path products P_L = Π_{l≤L} (I + (σ/√d) G_l): eigenvalues of PPᵀ, d → ∞."""

from __future__ import annotations

from functools import partial

from mpmath import mp

from rmtbase.constants._conditions import Conditions
from rmtbase.constants._constant import constant
from rmtbase.constants._digits import Number

_FREE_BROWNIAN_MOTION = r"\sigma^2 = t/L,\ L \to \infty,\ t = 1"


def _edge(side: int) -> Number:
    """(1 + t ± √(t² + 2t)) exp(± √(t² + 2t)) at t = 1."""
    root = side * mp.sqrt(3)
    return (2 + root) * mp.exp(root)


def _conditions(depth: str, sigma: str, path: str, holds: str) -> Conditions:
    return Conditions(
        matrix=f"the residual path {path} of independent standard normal G",
        normalization="G divided by √d",
        sigma=sigma,
        shape=f"d×d, {depth}",
        convention="λ: eigenvalues of PPᵀ",
        holds=holds,
    )


_PRODUCT = "P of L blocks I + σG/√d"
_continuum = partial(
    constant,
    conditions=_conditions("L blocks", "σ² = 1/L", _PRODUCT, "limit of large d, then of large L"),
    references=("biane_1997", "tarnowski_2019"),
)
CONSTANTS = (
    constant(
        name="residual_path_upper_edge",
        symbol=r"\lambda_+^{(1)}",
        description="largest eigenvalue of PPᵀ, P = I + G/√d, one residual block at σ = 1",
        definition=r"27/4",
        conditions=_conditions("one block", "σ = 1", "P = I + σG/√d", "limit of large d"),
        references=("dozier_silverstein_2007",),
        compute=lambda: mp.mpf(27) / 4,
    ),
    _continuum(
        name="residual_path_continuum_upper_edge",
        symbol=r"\lambda_+^{(\infty)}",
        description="largest eigenvalue of PPᵀ at infinite depth, σ² = 1/L",
        definition=rf"(1 + t + \sqrt{{t^2 + 2t}}) \, e^{{\sqrt{{t^2 + 2t}}}} = (2 + \sqrt3)\, e^{{\sqrt3}}, \quad"
        rf" {_FREE_BROWNIAN_MOTION}",
        compute=partial(_edge, +1),
    ),
    _continuum(
        name="residual_path_continuum_lower_edge",
        symbol=r"\lambda_-^{(\infty)}",
        description="smallest eigenvalue of PPᵀ at infinite depth, σ² = 1/L",
        definition=rf"(1 + t - \sqrt{{t^2 + 2t}}) \, e^{{-\sqrt{{t^2 + 2t}}}} = (2 - \sqrt3)\, e^{{-\sqrt3}}, \quad"
        rf" {_FREE_BROWNIAN_MOTION}",
        compute=partial(_edge, -1),
    ),
    _continuum(
        name="residual_path_continuum_participation_ratio",
        symbol=r"\mathrm{NPR}^{(\infty)}",
        description="normalized participation ratio of PPᵀ at infinite depth, σ² = 1/L",
        definition=rf"m_1^2 / m_2 = 1 / (1 + 2t) = 1/3, \quad {_FREE_BROWNIAN_MOTION}",
        compute=lambda: mp.mpf(1) / 3,
    ),
)
