r"""Share of a head's strength beyond noise: how much a head differs from random heads.

The weaker half of a head's eigenvalues holds a share ℓ of :math:`\|W_{QK}\|_F^2 = \sum_i λ_i`; in random heads of its
shape it holds ℓ₀. If the weaker half is noise, then noise makes up ℓ / ℓ₀ of the head's strength, and the share beyond
noise is

.. math:: 1 - ℓ/ℓ_0, \quad ℓ = \sum_{i > ⌈r/2⌉} λ_i \Big/ \sum_i λ_i, \quad
   ℓ_0 = \sum_{i > ⌈r/2⌉} E[λ_i] \Big/ \sum_i E[λ_i].

It does not depend on σ, has mean 0 over random heads of any shape, and is at most 1. It is negative if the spectrum is
flatter than at random. It estimates the planted share of heads with up to r/2 planted directions. What shrinks the weak
directions, such as weight decay, also counts as beyond noise. ``studies/how_much`` compares it with other measures.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers

LEAST_RANK = 8
"""Smallest rank with a share: of fewer eigenvalues the weaker half fluctuates by as much as the share itself."""


def share_beyond_noise(
    eigenvalues: Float[np.ndarray, "... index"], null_mean: Float[np.ndarray, "... index"]
) -> Float[np.ndarray, "..."]:
    """Return the share of each head's strength beyond noise, 1 − ℓ/ℓ₀.

    Args:
        eigenvalues: eigenvalues of each head, descending, padded with NaN.
        null_mean: mean ordered eigenvalues of the head's null, on any scale, padded as ``eigenvalues``.

    Returns:
        The shares: at most 1. NaN where the rank is below :data:`LEAST_RANK`, all eigenvalues are zero, or a mean of
        the null is not known.

    Raises:
        ParameterError: values that are not real numbers, or fewer means than eigenvalues.
    """
    eigenvalues, null_mean = (
        require_real_numbers(name, value) for name, value in (("eigenvalues", eigenvalues), ("null_mean", null_mean))
    )
    if not eigenvalues.ndim or not null_mean.ndim or null_mean.shape[-1] < eigenvalues.shape[-1]:
        raise ParameterError("null_mean", f"shape {null_mean.shape}", "a mean for each eigenvalue of a head, at least")
    eigenvalues, null_mean = np.broadcast_arrays(eigenvalues, null_mean[..., : eigenvalues.shape[-1]])
    there = ~np.isnan(eigenvalues)
    rank = there.sum(axis=-1)
    weaker = there & (np.arange(there.shape[-1]) >= (rank[..., None] + 1) // 2)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        of_head, of_null = (
            np.sum(values, axis=-1, where=weaker) / np.sum(values, axis=-1, where=there)
            for values in (eigenvalues, null_mean)
        )
        share = 1.0 - of_head / of_null
    return np.where((rank >= LEAST_RANK) & np.isfinite(share), share, np.nan)


def null_eigenvalue_means(null: xr.Dataset) -> Float[np.ndarray, "... index"]:
    """Return the null's mean eigenvalues as they broadcast to those of the heads, (layer, head, index).

    Args:
        null: group ``null`` of a scores file.
    """
    mean = null["eigenvalue_mean"].transpose(..., "index").values
    return mean[null["layer_shape"].values][:, None] if "layer_shape" in null else mean
