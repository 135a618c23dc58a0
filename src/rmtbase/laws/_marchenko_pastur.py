"""The Marchenko-Pastur law, and the wrong use of it for W_QK."""

from __future__ import annotations

import math

from rmtbase.laws._gaussian_chain import GaussianChain
from rmtbase.parameters import (
    require_head_shape,
    require_normalization,
    require_positive_integer,
    require_positive_number,
)


def marchenko_pastur(
    n_rows: int, n_columns: int, sigma: float = 1.0, normalization: str = "none", atom: bool = False
) -> GaussianChain:
    """Return the limiting law of the eigenvalues of X^T X, X of shape (n_rows, n_columns) with entries N(0, sigma^2).

    Support sigma^2 (sqrt(n_rows) +- sqrt(n_columns))^2, divided by n_rows for ``sqrt_d``. Without the atom, the law
    of the min(n_rows, n_columns) nonzero eigenvalues; with it, of all n_columns (Marchenko & Pastur 1967).

    Raises:
        ParameterError: as :class:`GaussianChain`.
    """
    dims = (require_positive_integer("n_rows", n_rows), require_positive_integer("n_columns", n_columns))
    return GaussianChain(dims, (require_positive_number("sigma", sigma),), normalization, atom)


def naive_marchenko_pastur(
    d_model: int,
    d_head: int,
    sigma_q: float = 1.0,
    sigma_k: float = 1.0,
    normalization: str = "sqrt_d",
    atom: bool = False,
) -> GaussianChain:
    """Return the Marchenko-Pastur law that is often overlaid on W_QK. It is not the law of W_QK.

    Erratum, offered for comparison only. Its edges are d_model sigma_q^2 sigma_k^2 (1 +- sqrt(gamma))^2 with
    gamma = d_head/d_model (times d_model without ``sqrt_d``): those of one Gaussian factor, rescaled to
    the right mean. A product of two factors spreads wider: at (768, 64) these edges are 388.59 and 1275.41, the
    right ones 290.44 and 1564.23, so 18 % of the eigenvalues of an untrained head look like outliers. Use
    :func:`low_rank_product`.

    Raises:
        ParameterError: as :func:`low_rank_product`.
    """
    width, head = require_head_shape(d_model, d_head)
    scale = require_positive_number("sigma_q", sigma_q) * require_positive_number("sigma_k", sigma_k)
    if require_normalization(normalization) == "none":
        scale *= math.sqrt(width)
    return GaussianChain((head, width), (scale,), "none", atom)
