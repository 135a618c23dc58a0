r"""Relation of a head's keys to its queries: how much of :math:`\|W_{QK}\|_F^2` reads what the queries read.

Let P be the projector on the row space of W_Q, of dimension h in d, and
:math:`S = \|W_{QK} P\|_F^2 / \|W_{QK}\|_F^2` the share of a head's strength with the key side in that space. Then

.. math:: R = (S - h/d) / (1 - h/d)

is 0 on average for unrelated W_Q and W_K and 1 for W_K = B W_Q with any B. It is a function of W_QK alone, and no
spectrum shows it.

Null: the row space of W_K has a Haar-random orientation to that of W_Q. Then, with the shares p_i of the eigenvalues,

.. math:: E S = h/d, \quad \operatorname{Var} S = \frac{2}{(d-1)(d+2)} \Big(h - \frac{h^2}{d}\Big)
   \Big(\sum_i p_i^2 - \frac1d\Big),

exactly, for any spectrum. The beta law with these moments is exact for a single eigenvalue; for others
``studies/how_much`` measures its tail.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import betainc, betaincinv

from rmtbase.nulls import UPPER


class Relation(NamedTuple):
    """Relation of each head's keys to its queries; NaN where it is not defined.

    Attributes:
        value: R.
        p_value: probability of so large an R for unrelated W_Q and W_K.
        upper: R below which a share of :data:`rmtbase.nulls.UPPER` of such heads lie.
    """

    value: Float[np.ndarray, "..."]
    p_value: Float[np.ndarray, "..."]
    upper: Float[np.ndarray, "..."]


def relation(
    key_share: Float[np.ndarray, "..."], eigenvalues: Float[np.ndarray, "... index"], d_head: int, d_model: int
) -> Relation:
    """Return R of heads (d_head, d_model) with the share S of their strength, and its p-value at their own spectrum."""
    h, d = float(d_head), float(d_model)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = eigenvalues / np.nansum(eigenvalues, axis=-1, keepdims=True)
        variance = 2.0 / ((d - 1.0) * (d + 2.0)) * (h - h * h / d) * (np.nansum(p * p, axis=-1) - 1.0 / d)
        mean = h / d
        concentration = mean * (1.0 - mean) / variance - 1.0
        value = (key_share - mean) / (1.0 - mean)
    defined = np.isfinite(value) & (concentration > 0.0) & (d_head < d_model)
    a, b = (np.where(defined, concentration, 1.0) * each for each in (mean, max(1.0 - mean, 0.5 / d)))
    tail = betainc(b, a, np.where(defined, np.clip(1.0 - key_share, 0.0, 1.0), 1.0))
    upper = (betaincinv(a, b, UPPER) - mean) / max(1.0 - mean, 0.5 / d)
    return Relation(*(np.where(defined, each, np.nan) for each in (value, tail, upper)))
