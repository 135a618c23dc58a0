"""Corrections to the expansions of scale-free statistics of Gaussian chains, fitted to draws.

An expansion gives a law of T by its first moments. Where the true normal score of T is z, the score of that law is
z + δ(z). In 300 000 draws of each chain, δ is a cubic polynomial to 0.02 for |z| ≤ 3.1 and one to six factors. In
Hermite polynomials its coefficients c_j for shift, spread, skewness and tails are 1e-3 to 1e-2 (except the shift of the
mean at a hard edge, up to 0.14). They are smooth functions of a few sizes, all of which vanish as the rank r grows:

    s       standard deviation of ln T from the expansion,
    p       standard deviation of the logarithm of the participation ratio of the eigenvalues, to the same orders,
    e       exp(-(n - r)/2), with n the second smallest dimension; one where the lower edge is hard;
    t, d    for stable ranks: relative standard deviation of the sum, and sd(ln λ_max)/sd(ln T) - 1 (s_max for s);
    f       for the participation ratio of eigenvalues, if the moments of its inverse are known up to the fourth: by how
            much less than usual the fourth adds to the skewness. It is inaccurate for many factors and few eigenvalues.

``studies/spectral_tails`` makes the draws, fits the coefficients of the products of sizes below, and tests them on
other chains. Each product is clipped to the range of its values among the chains of the fit.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._null._simulated_law import MendedLaw

_CLOSENESS = 0.5
_SCORES = np.linspace(-4.0, 4.0, 33)


def bulk_sizes(dims: tuple[int, ...], s: float, p: float) -> FloatArray:
    """Return the sizes for entropies, and for participation ratios of singular values."""
    r, e = min(dims), _nearly_hard(dims)
    return np.array([1.0 / r, s, s * p, p**2, r * p**2, p**3, e / r, e / (r**2 * s)])


def edge_sizes(dims: tuple[int, ...], s: float, p: float, t: float, d: float) -> FloatArray:
    """Return the sizes for stable ranks."""
    r, e = min(dims), _nearly_hard(dims)
    return np.array([1.0 / r, s, t, (t / s) ** 2, d, p**2, p**3, e / (r**2 * s)])


def participation_sizes(p: float, f: float) -> FloatArray:
    """Return the sizes for participation ratios of eigenvalues."""
    return np.array([p**3, f, f * p])


def hermite(score: FloatArray) -> FloatArray:
    return np.polynomial.hermite_e.hermevander(score, 3)


def mended_by_draws(statistic: str, law: Distribution, sizes: FloatArray) -> MendedLaw:
    fit = _coefficients()[statistic]
    rest = hermite(_SCORES) @ (np.clip(sizes, fit["smallest"], fit["largest"]) @ np.array(fit["coefficients"]))
    return MendedLaw(law, _SCORES + rest, _SCORES)


def _nearly_hard(dims: tuple[int, ...]) -> float:
    smallest, second = sorted(dims)[:2]
    return math.exp(-_CLOSENESS * (second - smallest))


@cache
def _coefficients() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("expansion_rest.json").read_text(encoding="utf-8"))
