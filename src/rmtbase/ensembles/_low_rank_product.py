"""The ensemble of W_QK = W_Qᵀ W_K with standard normal W_Q, W_K of shape (d_head, d_model): the chain (d, h, d)."""

from __future__ import annotations

from typing import Literal

from rmtbase.ensembles._ensemble import Ensemble
from rmtbase.ensembles._gaussian_chain import gaussian_chain
from rmtbase.parameters import require_head_shape


def low_rank_product(d_model: int, d_head: int, method: Literal["thin", "dense"] = "thin") -> Ensemble:
    """The ensemble W_QK = W_Qᵀ W_K with i.i.d. standard normal factors of shape (d_head, d_model).

    Any other scale is exact rescaling: the singular values at (σ_Q, σ_K) are σ_Q σ_K times these. ``norm_squared`` of a
    draw is (‖W_Q‖_F², ‖W_K‖_F²).

    Args:
        d_model: width of the residual stream.
        d_head: head dimension, at most d_model.
        method: ``"thin"`` draws an h × h core with the same singular values, ``"dense"`` the matrix itself.

    Raises:
        ParameterError: a dimension is not a positive integer, d_head > d_model, or the method is unknown.
    """
    d_model, d_head = require_head_shape(d_model, d_head)
    return gaussian_chain((d_model, d_head, d_model), method)
