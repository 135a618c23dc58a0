"""What draws of Gaussian chains show that the expansions of their scale-free statistics leave of the normal score.

An expansion gives a law of T in its first moments. At T's own normal score z that law's score is z + δ(z), and of draws
of 300 000 each δ is a cubic to 0.02 within ±3.1, between one factor and six: in Hermite polynomials, with coefficients
c_j of 1e-3 to 1e-2 for shift, spread, skewness and tails (the shift of the mean at a hard edge apart, up to 0.14). They
are small, and smooth functions of few sizes, all of which vanish as the rank r grows:

    s       the standard deviation of ln T from the expansion,
    p       that of the logarithm of the participation ratio of the eigenvalues, to the same orders,
    e       exp(-(n - r)/2), n the second smallest dimension: one where the lower edge is hard;
    t, d    of stable ranks, the relative standard deviation of the sum, and sd(ln λ_max)/sd(ln T) - 1, of s_max for s;
    f       of the participation ratio of eigenvalues, where the moments of its inverse are known up to the fourth, how
            little that one adds to the skewness: where many factors meet few eigenvalues it comes out wrong.

``studies/spectral_tails`` draws, fits the coefficients on the products of these below and tries them on other chains.
A product below the smallest or beyond the largest value that it had among the chains drawn is taken to be that one.
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
    """Of entropies, and of participation ratios of singular values."""
    r, e = min(dims), _nearly_hard(dims)
    return np.array([1.0 / r, s, s * p, p**2, r * p**2, p**3, e / r, e / (r**2 * s)])


def edge_sizes(dims: tuple[int, ...], s: float, p: float, t: float, d: float) -> FloatArray:
    """Of stable ranks."""
    r, e = min(dims), _nearly_hard(dims)
    return np.array([1.0 / r, s, t, (t / s) ** 2, d, p**2, p**3, e / (r**2 * s)])


def participation_sizes(p: float, f: float) -> FloatArray:
    """Of participation ratios of eigenvalues."""
    return np.array([p**3, f, f * p])


def hermite(score: FloatArray) -> FloatArray:
    """1, z, z² - 1 and z³ - 3 z, (score, 4)."""
    return np.polynomial.hermite_e.hermevander(score, 3)


def mended_by_draws(statistic: str, law: Distribution, sizes: FloatArray) -> MendedLaw:
    """The law of a statistic from that of its expansion."""
    known = _coefficients()[statistic]
    rest = hermite(_SCORES) @ (np.clip(sizes, known["smallest"], known["largest"]) @ np.array(known["coefficients"]))
    return MendedLaw(law, _SCORES + rest, _SCORES)


def _nearly_hard(dims: tuple[int, ...]) -> float:
    smallest, second = sorted(dims)[:2]
    return math.exp(-_CLOSENESS * (second - smallest))


@cache
def _coefficients() -> dict[str, Any]:
    """Made by ``studies/spectral_tails/study.py``."""
    return json.loads(Path(__file__).with_name("expansion_rest.json").read_text(encoding="utf-8"))
