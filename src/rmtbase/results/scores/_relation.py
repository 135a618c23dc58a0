r"""Relation of a head's keys to its queries: how much of :math:`\|W_{QK}\|_F^2` reads what the queries read.

Let P be the projector on the row space of W_Q, of dimension h in d, and
:math:`S = \|W_{QK} P\|_F^2 / \|W_{QK}\|_F^2` the share of a head's strength with the key side in that space. Then

.. math:: R = (S - h/d) / (1 - h/d)

is 0 on average for unrelated W_Q and W_K and 1 for W_K = B W_Q with any B. It is a function of W_QK alone, and no
spectrum shows it.

Null: the coordinates that W_K reads are those that W_Q reads in random order and sign, as for independent entries of
any law with any gains of rows. Then, with the shares p_i of the eigenvalues and Q = W_QKᵀW_QK/‖W_QK‖²,

.. math:: E S = \frac hd, \quad \operatorname{Var} S =
   \frac{(\sum_j P_{jj}^2 - h^2/d) (\sum_j Q_{jj}^2 - 1/d)}{d-1}
   + \frac{2 (h - \sum_j P_{jj}^2) (\sum_i p_i^2 - \sum_j Q_{jj}^2)}{d (d-1)},

exactly, for any spectrum. The diagonals are taken as if the rows of W_Q were orthogonal, which saves the cost of P and
makes the test conservative where h is more than a quarter of d. p-values are those of the beta law with these moments;
``studies/how_much`` measures their sizes. Common gains of columns are a relation.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import betainc, betaincinv

from rmtbase.heads.read_sites import KeyShares
from rmtbase.nulls import UPPER


class Relation(NamedTuple):
    """Relation of each head's keys to its queries; NaN where it is not defined."""

    value: Float[np.ndarray, "..."]  #: R
    p_value: Float[np.ndarray, "..."]  #: probability of so large an R for unrelated W_Q and W_K
    upper: Float[np.ndarray, "..."]  #: R below which a share of :data:`rmtbase.nulls.UPPER` of such heads lie


def relation(shares: KeyShares, eigenvalues: Float[np.ndarray, "... index"], d_head: int, d_model: int) -> Relation:
    """Return R of heads (d_head, d_model), and its p-value at their own spectrum."""
    h, d = float(d_head), float(d_model)
    mean = h / d
    with np.errstate(invalid="ignore", divide="ignore"):
        p = eigenvalues / np.nansum(eigenvalues, axis=-1, keepdims=True)
        squares = np.nansum(p * p, axis=-1)
        of_diagonals = (shares.query_columns - h * mean) * (shares.key_columns - 1.0 / d) / (d - 1.0)
        of_others = np.maximum(h - shares.query_columns, 0.0) * np.maximum(squares - shares.key_columns, 0.0)
        variance = of_diagonals + 2.0 * of_others / (d * (d - 1.0))
        concentration = mean * (1.0 - mean) / variance - 1.0
        value = (shares.share - mean) / (1.0 - mean)
        defined = np.isfinite(value) & (concentration > 0.0)
    a, b = (np.where(defined, concentration, 1.0) * max(each, 0.5 / d) for each in (mean, 1.0 - mean))
    tail = betainc(b, a, np.where(defined, 1.0 - shares.share, 1.0))
    upper = (betaincinv(a, b, UPPER) - mean) / max(1.0 - mean, 0.5 / d)
    return Relation(*(np.where(defined, each, np.nan) for each in (value, tail, upper)))
