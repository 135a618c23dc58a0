"""The law of W_QK = W_Q^T W_K."""

from __future__ import annotations

from rmtbase.laws._gaussian_chain import GaussianChain
from rmtbase.parameters import require_head_shape, require_positive_number


def low_rank_product(
    d_model: int,
    d_head: int,
    sigma_q: float = 1.0,
    sigma_k: float = 1.0,
    normalization: str = "sqrt_d",
    atom: bool = False,
) -> GaussianChain:
    """Return the limiting law of the eigenvalues of W_QK^T W_QK, W_QK = W_Q^T W_K with Gaussian W_Q, W_K.

    W_Q and W_K have shape (d_head, d_model) and entries N(0, sigma_q^2), N(0, sigma_k^2). It is the chain
    (d_model, d_head, d_model): with gamma = d_head/d_model and ``sqrt_d``,

        (1 + psi) (1 + gamma psi)^2 / psi = lambda / (d_model sigma_q^2 sigma_k^2),
        psi_+- = (-1 +- sqrt(1 + 8/gamma)) / 4 at the edges.

    Mean d_model sigma_q^2 sigma_k^2 and variance 2 gamma mean^2 (``sqrt_d``); without the atom, the law of the
    d_head nonzero eigenvalues.

    Raises:
        ParameterError: for d_head > d_model, dimensions that are not positive integers, sigmas that are not
            positive and finite, or an unknown normalization.
    """
    width, head = require_head_shape(d_model, d_head)
    sigmas = (require_positive_number("sigma_q", sigma_q), require_positive_number("sigma_k", sigma_k))
    return GaussianChain((width, head, width), sigmas, normalization, atom)
